"""Multistage: `mma.sync` or multiply-adds, by warps that all fill k-tiles and multiply them: needs and rules."""

from __future__ import annotations

from dataclasses import dataclass

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import data_type, is_complex
from gett.hw.tensor_types import MmaAtom
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule.mainloops.kind import MainloopKind
from gett.schedule.rules import common
from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.mainloop import Multistage
from gett.schedule.spec.schedule import Schedule, SmemPlan, Tiling
from gett.schedule.spec.vectors import operand_dims, row_vector, widest_vector
from layouts.swizzle import CHUNK

REGISTER_LIMIT = 252  # registers of the fit that a thread may need; it has 255

FEW_K_TILES = 12
"""K-tiles up to which a block loads no fragments ahead: with 5 to 12 the mean time stays, beyond it falls (H200)."""

ACCESS_LIMIT = 24
"""Accesses of a thread for one operand's tile; the kernels could hold 32, a bit of validity each, but spill by then."""


def warp_atom(plan: GemmPlan) -> MmaAtom | None:
    """What a warp multiplies by `mma.sync`, by A's elements, which may be real beside complex ones; None if nothing."""
    c, kind = plan.contraction, data_type(plan.contraction.dtype)
    made = kind.by_warp(c.precision)
    return made if made is None or plan.a.dtype == c.dtype else data_type(kind.real).by_warp()


def atom_of(plan: GemmPlan, loop: Multistage) -> MmaAtom | None:
    """What the warps of a loop multiply by `mma.sync`; None for multiply-adds."""
    return warp_atom(plan) if loop.tensor_cores else None


def warp_step(atom: MmaAtom | None) -> tuple[int, int]:
    """What a warp's rows and columns are multiples of."""
    return (4, 8) if atom is None else (atom.m, atom.n)


def short_copies(plan: GemmPlan, loop: Multistage) -> int:
    """How many operands come by `cp.async` of fewer than 16 bytes, and so through the first cache."""
    copied = ((A, loop.a), (B, loop.b))
    return sum(isinstance(x, CpAsync) and x.vector * plan.size(tensor) < CHUNK for tensor, x in copied)


@dataclass(frozen=True, slots=True)
class MultistageSmem:
    """Bytes of the parts of a block's shared memory."""

    stage: int  # a k-tile of A and one of B
    staging: int  # the tile of D, which lies where the stages were
    # Offsets along K of one k-tile, 16 bytes a k; 0 without a table. There is one slot more than stages.
    k_slot: int
    offsets: int  # offsets of rows and columns in D and in C

    def plan(self, stages: int, sliced: bool = False) -> SmemPlan:
        """Where the parts lie. A slice of K stages no D and has no offsets; it asks for no less."""
        pipeline, slots = stages * self.stage, (stages + 1) * self.k_slot
        k_table = pipeline if sliced else max(pipeline, self.staging)
        size = max(pipeline, self.staging) + slots + self.offsets
        return SmemPlan(size, self.stage, k_table=k_table, offsets=k_table + slots)


def padded_pitch(columns: int, size: int) -> int:
    """Bytes from row to row of the staged tile of D: a gap keeps the rows of a fragment in different banks."""
    return -(-columns * size // CHUNK) * CHUNK + CHUNK


def multistage_smem(
    plan: GemmPlan, tiling: Tiling, a: CpAsync | RegisterStaged, b: CpAsync | RegisterStaged, k_table: bool
) -> MultistageSmem:
    """The parts of a block's shared memory. D is staged in its own type, with C in the accumulator's."""
    c = plan.contraction
    m, n, k = tiling.shape
    size = data_type(c.dtype).accumulator_bytes if c.c is not None else itemsize(c.d.dtype)
    pitch, rows = padded_pitch(n, size), m * tiling.batches
    tensors = 2 if c.c is not None else 1
    return MultistageSmem(
        a.smem.bytes + b.smem.bytes, rows * pitch, 16 * k if k_table else 0, (rows + n) * 8 * tensors
    )  # fmt: skip


def thread_accesses(tiling: Tiling, loop: Multistage, loader: CpAsync | RegisterStaged, side: int) -> int:
    """Accesses of a thread that bring a k-tile of an operand with `side` rows."""
    return -(-side * tiling.batches * tiling.shape[2] // (loader.vector * loop.threads))


def multistage_registers(tiling: Tiling, loop: Multistage, size: int) -> int:
    """Registers that a thread is expected to need where the compiler has none to spare.

    Accumulators, and weights for all else: fitted to some 1500 kernels compiled for sm_90a so that what spilled lies
    above the limit and little else does. Accesses weigh most: an offset, an address and a predicate each.
    """
    m, n, k = tiling.shape
    words = max(size, 4) // 4
    tm, tn = m // loop.warps[0], n // loop.warps[1]
    fragments = (tm + tn) / 2 if loop.tensor_cores else (tm / 4 + tn / 8) * max(1, 8 // size) * words
    need = 48 + m * n * tiling.batches * words / loop.threads + 0.13 * fragments
    for loader, side in ((loop.a, m), (loop.b, n)):
        each = 4.2
        if loader.through_registers:  # offset, vector, and a place for each element in half a register
            each = 2.5 + max(1.0, loader.vector * size / 4) + 0.5 * loader.vector
            each += 0.5 if tiling.k.ragged or loop.k_table else 0
        need += each * thread_accesses(tiling, loop, loader, side)
    if loop.tensor_cores and size == 4 and k == 32:  # fragments exist twice, as they are and rounded to TF32
        need += 60
    return int(need)


def loads_ahead(s: Schedule, atom: MmaAtom | None, k_tiles: int) -> bool:
    """Whether a kernel loads the first fragments of a k-tile during the last products of the one before.

    That takes registers, which a block of few k-tiles has better use for: of 330 such kernels many spilled. With a
    single instruction a step ptxas 13.0 begins a pass of the loop before the sums of the one before are there.

    Args:
        s: Its tiles and warps.
        atom: What its warps multiply; None for multiply-adds.
        k_tiles: Of a block.
    """
    if atom is None or k_tiles <= FEW_K_TILES:
        return False
    (m, n, _), (warps_m, warps_n) = s.tiling.shape, s.multistage.warps
    return m * n >= 2 * warps_m * warps_n * atom.m * atom.n


def cache_bytes(plan: GemmPlan, loop: Multistage, facts: ArchFacts) -> int:
    """Of an SM's first cache, what short copies need: each sector that one of them fetches serves later ones, too."""
    return short_copies(plan, loop) * nearest(facts).multistage.rates.kept_bytes


def resident_blocks(plan: GemmPlan, s: Schedule, facts: ArchFacts, share: float = 1.0) -> int:
    """Blocks of a schedule that an SM holds where its kernel takes a share of the expected registers.

    Sums and fragments of complex numbers fill them, and none can be given up: of 517 such kernels in complex128 125
    spilled at 0.85.
    """
    loop, dtype = s.multistage, plan.contraction.dtype
    share = 1.0 if loop.tensor_cores and is_complex(dtype) else share
    registers = min(255, int(share * multistage_registers(s.tiling, loop, itemsize(dtype))) + 1)
    return facts.resident_blocks(registers, s.threads, s.smem.size, cache_bytes(plan, loop, facts))


def accesses(x: Lowered) -> Reasons:
    """A thread loads a k-tile of an operand in at most 24 accesses."""
    loop = x.s.multistage
    for name, loader, side in (("A", loop.a, x.s.tiling.shape[0]), ("B", loop.b, x.s.tiling.shape[1])):
        count = thread_accesses(x.s.tiling, loop, loader, side)
        if count > ACCESS_LIMIT:
            yield f"{count} a thread to load operand {name}, the limit is {ACCESS_LIMIT}"


def registers(x: Lowered) -> Reasons:
    """A thread needs about 252 registers at most."""
    count = multistage_registers(x.s.tiling, x.s.multistage, x.size)
    if count > REGISTER_LIMIT:
        yield f"about {count} a thread, the limit is {REGISTER_LIMIT} of 255"


def tensor_cores(x: Lowered) -> Reasons:
    """Tensor cores multiply types that they form exact enough products of."""
    c = x.plan.contraction
    if x.s.multistage.tensor_cores and warp_atom(x.plan) is None:
        yield f"they do not multiply {c.dtype} under precision {c.precision!r}"


def block(x: Lowered) -> Reasons:
    """Warps share the batches of a block evenly, and each multiplies as many whole instructions."""
    loop, t = x.s.multistage, x.s.tiling
    atom = atom_of(x.plan, loop)
    if t.batches % loop.batch_warps:
        yield f"{t.batches} batches in a block are not shared evenly by {loop.batch_warps} groups of warps"
    steps = (*warp_step(atom), 1 if atom is None else atom.k)
    for name, side, count, step in zip("mnk", t.shape, (*loop.warps, 1), steps, strict=True):
        if side % (count * step):
            yield f"block_{name} = {side} is no multiple of {count} warps times {step}"


def stream_k(x: Lowered) -> Reasons:
    """Stream-K divides tiles of one batch among single blocks, no more than a GPU holds, in shares of whole k-tiles."""
    made, most = x.s.scheduler, x.facts.sm_count * x.facts.blocks_per_sm
    if not made.stream_k:
        return
    if made.cluster != (1, 1) or made.blocks > most:
        yield f"{made.blocks} blocks in clusters of {made.cluster}, a GPU holds {most}, of 1 each"
    elif x.s.tiling.l is not None:
        yield f"{x.s.tiling.batches} batches in a block take all of K"
    else:
        yield from common.shares(x)


def k_table(x: Lowered) -> Reasons:
    """Offsets along K come from a table where K is flattened, and only there."""
    box = x.s.tiling.k
    flat = len(box.dims) == 1 and (box.size == x.s.tiling.shape[2] or box.tiles == 1)
    if x.s.multistage.k_table and not flat:
        yield "offsets from a table need K flattened into one dimension"
    if not x.s.multistage.k_table and (box.flattens or box.ragged > 1):
        yield f"{box.dims} is flattened or ragged along {box.ragged} dimensions; without a table 1 may be ragged"


def loaders(x: Lowered) -> Reasons:
    """Strides allow the vectors of A and B, walks take each tiled dimension once, rows in shared memory hold tiles."""
    t, loop, deep = x.s.tiling, x.s.multistage, x.s.tiling.shape[2]
    for name, tensor, loader, rows, box in (("A", A, loop.a, t.shape[0], t.m), ("B", B, loop.b, t.shape[1], t.n)):
        dims, size = operand_dims(x.plan, tensor, box, t.k, t.l), x.plan.size(tensor)
        group, walk = dims[0].group if dims else "k", tuple((d.group, d.index) for d in dims)
        if loader.through_registers:
            widest = widest_vector(x.plan, tensor, dims)
            if sorted(loader.walk) != sorted(walk) or (loader.vector > 1 and loader.walk[:1] != walk[:1]):
                yield f"{loader.walk} of operand {name} does not take each tiled dimension once, the vectors' first"
        else:
            widest = row_vector(x.plan, tensor, dims, rows, deep)
            if not widest or loader.vector * size not in (4, 8, 16):
                yield f"cp.async of {loader.vector} elements of operand {name}, its strides allow {widest}"
        if loader.vector_group != group and (loader.vector > 1 or loader.through_registers):
            yield f"{loader.vector} elements of operand {name} along {loader.vector_group}, they lie along {group}"
        if widest % loader.vector:
            yield f"vectors of {loader.vector} elements of operand {name}, its strides allow {widest}"
        tall, smem = rows * t.batches, loader.smem
        shape = (tall, deep * size) if loader.major == "k" else (deep, tall * size)
        if (smem.rows, smem.row_bytes) != shape:
            found = f"{smem.rows} rows of {smem.row_bytes} bytes"
            yield f"{found} hold operand {name}, its tile has {shape[0]} of {shape[1]}"


def smem(s: Schedule, plan: GemmPlan) -> SmemPlan:
    """Stages, then tables of offsets; D is staged where the stages were."""
    loop = s.multistage
    return multistage_smem(plan, s.tiling, loop.a, loop.b, loop.k_table).plan(loop.stages, s.split_k > 1)


LIMITS = (common.shared_memory, common.threads, accesses, registers, common.boxes, common.extents)
"""What a search runs into. It meets the rest by construction; schedules made by hand or read from a file need not."""

RULES = (
    *(common.groups, common.parts, common.source, stream_k, tensor_cores, block, k_table),
    *(common.split, common.workspace, common.grid, *LIMITS, loaders, common.vector),
)

MULTISTAGE = MainloopKind(words="mma.sync or multiply-adds, all warps fill and multiply", rules=RULES, smem=smem)
