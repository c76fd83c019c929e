"""Rules of operands that warps gather where no tensor map can bring them."""

from __future__ import annotations

from collections.abc import Iterator

from gett.schedule.spec.loader import CpAsyncTile, Gather
from gett.schedule.spec.mainloop import WgmmaSS
from gett.schedule.spec.rule import Lowered, WgmmaOperand, rule
from gett.schedule.spec.scheduler import PersistentRaster
from gett.schedule.spec.wgmma_needs import GATHERING, REACH, chunk_bytes, gathers, warp_pieces
from layouts.box import TileDim
from layouts.swizzle import CHUNK

COPIES = 32
"""Most chunks of a k-tile that a thread copies: a bit each says which lie at the tensor's end."""


def _gathered(x: Lowered) -> list[tuple[WgmmaOperand, Gather]]:
    return [(o, o.loader) for o in x.operands if isinstance(o.loader, Gather)]


def _lead(o: WgmmaOperand, loader: Gather) -> TileDim | None:
    """The dimension of the tile that pieces lie along; where they are transposed, the other operand's comes first."""
    dims = (o.box_k if loader.major == "k" else o.box).dims
    at = 1 if loader.transform else 0
    return dims[at] if at < len(dims) else None


@rule
def producers(x: Lowered) -> Iterator[str]:
    """Two warpgroups gather into chunks of their own; without gathering one fetches."""
    loop = x.s.hopper
    assert isinstance(loop, WgmmaSS)
    there, gathering = (loop.producers, min(loop.cp_async_stages, 1)), gathers(loop)
    if there != ((GATHERING, 1) if gathering else (1, 0)):
        yield f"{loop.producers} warpgroups into {loop.cp_async_stages} k-tiles of chunks, {int(gathering)} operands so"


@rule
def gather(x: Lowered) -> Iterator[str]:
    """Gathering warps serve blocks of a raster, without clusters."""
    raster = type(x.s.scheduler)
    if gathers(x.s.hopper) and (raster is not PersistentRaster or x.s.cluster != (1, 1)):
        yield f"tiles of a {raster.__name__}, clusters of {x.s.cluster}"


@rule
def transpose(x: Lowered) -> Iterator[str]:
    """Pieces of A are transposed where the operands' rows run along two modes of K."""
    (a, b), first, chunk = x.operands, x.s.tiling.k.dims[:1], CHUNK // x.size
    if isinstance(b.loader, Gather) and b.loader.transform:
        yield f"pieces of {b.loader.transform.elements} of B, only A's are transposed"
    if not isinstance(a.loader, Gather) or not a.loader.transform:
        return
    wide, two_modes = a.loader.transform.elements, None not in (a.k_unit, b.k_unit) and a.k_unit != b.k_unit
    if not two_modes or a.loader.major != "k" or not isinstance(b.loader, Gather):
        yield f"pieces of {wide} are transposed, but rows run along modes {a.k_unit} and {b.k_unit} of K"
    if first != (TileDim((b.k_unit or 0,), wide),) or wide % chunk:
        yield f"{wide} of B's mode, {chunk} at a time, but box_k begins with {first}"
    if wide * a.loader.run != x.s.tiling.shape[2]:
        yield f"{wide} of B's mode times {a.loader.run} of A's are not block_k = {x.s.tiling.shape[2]}"


@rule
def pieces(x: Lowered) -> Iterator[str]:
    """Pieces are whole chunks of the unit-stride mode and divide its box."""
    for o, loader in _gathered(x):
        lead, chunk = _lead(o, loader), CHUNK // x.size
        if lead is None or lead.modes != (o.unit,):
            yield f"operand {o.name} has unit stride along mode {o.unit}, pieces lie along {lead}"
        elif loader.run % chunk or lead.box % loader.run:
            yield f"{loader.run} elements of operand {o.name}, a multiple of {chunk} must divide {lead.box}"


@rule
def swizzle(x: Lowered) -> Iterator[str]:
    """The swizzle divides a gathered row."""
    for o, loader in _gathered(x):
        lead = _lead(o, loader)
        assert lead is not None
        row = (o.box_k.size if loader.major == "k" else lead.box) * x.size
        if row % loader.swizzle_bytes:
            yield f"{loader.swizzle_bytes} bytes do not divide rows of {row} bytes of operand {o.name}"


@rule
def offsets(x: Lowered) -> Iterator[str]:
    """32-bit offsets go up through an operand that warps bring."""
    for o in (o for o in x.operands if isinstance(o.loader, Gather | CpAsyncTile)):
        steps = [m.strides[o.tensor] for m in o.modes]
        reach = sum(step * (m.extent - 1) for step, m in zip(steps, o.modes, strict=True)) // x.size
        if any(step < 0 or step % x.size for step in steps):
            yield f"operand {o.name} has strides of {steps} bytes; gathered ones go up in elements of {x.size}"
        if reach >= REACH:
            yield f"operand {o.name} spans {reach} elements, offsets reach {REACH}"


@rule
def gathered_copies(x: Lowered) -> Iterator[str]:
    """A thread copies at most 32 chunks of an operand's k-tile."""
    for o, loader in _gathered(x):
        pieces = warp_pieces(o.box.size, x.s.tiling.shape[2], loader, 4 * GATHERING)
        count = -(-pieces * (chunk_bytes(loader.run, x.size) // CHUNK) // 32)
        if count > COPIES:
            yield f"{count} a thread for a k-tile of operand {o.name}, the limit is {COPIES}"


GATHER_RULES = (producers, gather, transpose, pieces, swizzle, offsets, gathered_copies)
"""How operands travel that are gathered."""
