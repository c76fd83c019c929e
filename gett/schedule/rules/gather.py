"""Operands that warps bring to the tiles of a Hopper kernel where no tensor map can: what they need, and rules.

Some gather pieces of rows, others copy vectors by `cp.async`.
"""

from __future__ import annotations

from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.spec.hopper_needs import planes, up
from gett.schedule.spec.loader import CpAsyncTile, Gather, HopperLoader
from gett.schedule.spec.mainloop import WgmmaSS
from gett.schedule.spec.vectors import whole_vectors
from layouts.box import TileDim
from layouts.swizzle import CHUNK

COPIES = 32  # most chunks of a k-tile that a thread copies: a bit each says which lie at the tensor's end
GATHERING = 2  # warpgroups that gather
REACH = 1 << 30  # elements that the offsets of a gathered operand reach
DEEPEST_COPY = 32  # most k of a tile whose rows run along M or N: a bit each says which are part of K
COPYING = 128  # threads that copy the vectors of a tile by `cp.async`


def chunk_bytes(run: int, size: int) -> int:
    """Bytes of the aligned chunks that cover a piece wherever it starts."""
    return run * size + CHUNK


def warp_pieces(side: int, block_k: int, loader: HopperLoader, warps: int) -> int:
    """Pieces of a k-tile that each of the warps brings in."""
    step = 8 if loader.transform else 1
    return -(-side * block_k // loader.width // (step * warps)) * step


def ring_bytes(pieces: int, loader: HopperLoader, size: int) -> int:
    """What a warp's pieces of a k-tile take of its ring; transposed ones have gaps that separate their banks."""
    return (8 * (pieces // 8 | 1) if loader.transform else pieces) * chunk_bytes(loader.width, size)


def producers(x: Lowered) -> Reasons:
    """Two warpgroups gather into chunks of their own, for blocks of a raster without clusters; else one fetches."""
    loop, made = x.s.loop(WgmmaSS), x.s.scheduler
    there, gathering = (loop.producers, min(loop.cp_async_stages, 1)), loop.by_warps
    if there != ((GATHERING, 1) if gathering else (1, 0)):
        yield f"{loop.producers} warpgroups into {loop.cp_async_stages} k-tiles of chunks, {int(gathering)} operands so"
    if gathering and (made.tensor or made.cluster != (1, 1)):
        yield f"tiles of a {type(made).__name__}, clusters of {made.cluster}"


def transpose(x: Lowered) -> Reasons:
    """Pieces of A are transposed where the operands' rows run along two modes of K."""
    (a, b), first, chunk = x.operands, x.s.tiling.k.dims[:1], CHUNK // x.size
    if b.loader.transform:
        yield f"pieces of {b.loader.transform.elements} of B, only A's are transposed"
    if not a.loader.transform:
        return
    wide, two_modes = a.loader.transform.elements, None not in (a.k_unit, b.k_unit) and a.k_unit != b.k_unit
    if not two_modes or a.loader.major != "k" or not b.loader.by_warps:
        yield f"pieces of {wide} are transposed, but rows run along modes {a.k_unit} and {b.k_unit} of K"
    if first != (TileDim((b.k_unit or 0,), wide),) or wide % chunk:
        yield f"{wide} of B's mode, {chunk} at a time, but box_k begins with {first}"
    if wide * a.loader.width != x.s.tiling.shape[2]:
        yield f"{wide} of B's mode times {a.loader.width} of A's are not block_k = {x.s.tiling.shape[2]}"


def pieces(x: Lowered) -> Reasons:
    """Pieces are whole chunks of the unit-stride mode and divide its box; a thread copies at most 32 of a k-tile."""
    for o, loader in x.brought_by(Gather):
        # Where pieces are transposed, the other operand's dimension comes first.
        dims, chunk = (o.box_k if loader.major == "k" else o.box).dims, CHUNK // x.size
        lead = next(iter(dims[1:] if loader.transform else dims), None)
        if lead is None or lead.modes != (o.unit,):
            yield f"operand {o.name} has unit stride along mode {o.unit}, pieces lie along {lead}"
            return
        if loader.run % chunk or lead.box % loader.run:
            yield f"{loader.run} elements of operand {o.name}, a multiple of {chunk} must divide {lead.box}"
        row = (o.box_k.size if loader.major == "k" else lead.box) * x.size
        if row % loader.swizzle_bytes:
            yield f"{loader.swizzle_bytes} bytes do not divide rows of {row} bytes of operand {o.name}"
        of_warp = warp_pieces(o.box.size, x.s.tiling.shape[2], loader, 4 * GATHERING)
        count = -(-of_warp * (chunk_bytes(loader.run, x.size) // CHUNK) // 32)
        if count > COPIES:
            yield f"{count} chunks a thread for a k-tile of operand {o.name}, the limit is {COPIES}"


def offsets(x: Lowered) -> Reasons:
    """32-bit offsets go up through an operand that warps bring."""
    for o in (o for o in x.operands if o.loader.by_warps):
        steps = [m.strides[o.tensor] for m in o.modes]
        reach = sum(step * (m.extent - 1) for step, m in zip(steps, o.modes, strict=True)) // x.size
        if any(step < 0 or step % x.size for step in steps):
            yield f"operand {o.name} has strides of {steps} bytes; gathered ones go up in elements of {x.size}"
        if reach >= REACH:
            yield f"operand {o.name} spans {reach} elements, offsets reach {REACH}"


def row_table_bytes(loader: HopperLoader, size: int, deep: int) -> int:
    """Shared memory for offsets in a tile that `cp.async` brings, `size` of its free group by `deep` k.

    It has one for each row, and one for each vector of a row.
    """
    if not loader.width:
        return 0
    rows, row = (up(size, 8), deep) if loader.major == "k" else (deep, up(size, 8))
    lanes = max(8, 1 << (row // loader.width - 1).bit_length())
    at_once = COPYING // lanes
    return 4 * (at_once * up(-(-rows // at_once), 4) + up(lanes, 4))


def vectors(x: Lowered) -> Reasons:
    """A copy has 4, 8 or 16 bytes of a row, aligned wherever a tile starts; a thread has one of a row at most."""
    deep = x.s.tiling.shape[2]
    for o, loader in x.brought_by(CpAsyncTile):
        size, vector = loader.vector * x.size, loader.vector
        if size not in (4, 8, 16):
            yield f"{vector} elements of operand {o.name} are {size} bytes"
        group, inner = (o.k, o.box_k) if loader.major == "k" else (o.free, o.box)
        if vector > 1 and not whole_vectors(o.operand, o.tensor, o.modes, group, inner, o.unit, vector):
            yield f"rows of operand {o.name} do not start and end at multiples of {size} bytes"
        row = deep if loader.major == "k" else up(o.box.size, 8)
        if row // loader.vector > COPYING:
            yield f"rows of {row} elements of operand {o.name}, {COPYING} threads copy {loader.vector} each"
        if row * x.size % loader.swizzle_bytes:
            yield f"{loader.swizzle_bytes} bytes do not divide rows of {row * x.size} bytes of operand {o.name}"
        if loader.major == "mn" and deep > DEEPEST_COPY:
            yield f"{deep} rows of operand {o.name}, the most are {DEEPEST_COPY}"


def copying(x: Lowered) -> Reasons:
    """Planes are those of numbers as they are: warps that split scaled ones take registers of those that copy."""
    made = planes(x.plan)
    if x.s.hopper.by_warps and made is not None and made.scaled:
        yield f"planes of scaled {made.tensor.name}, {len(x.brought_by(CpAsyncTile))} operands by cp.async"


GATHER_RULES = (producers, transpose, pieces, offsets)
COPY_RULES = (vectors, copying, offsets)  # how operands travel by `cp.async`
