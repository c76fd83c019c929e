"""The tiles of each family as data, and the hard limits that a schedule must meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gett.errors import ScheduleError
from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.records import Schedule

TENSOR_TYPES = {"float16": 16, "bfloat16": 16, "float64": 4}
"""dtypes that the tensor cores multiply at full accuracy, with the K step of one instruction."""

REGISTER_LIMIT = 252

WORKSPACE_LIMIT = 64 << 20
"""Most bytes of partial sums that split-K may ask for."""

ACCESS_LIMIT = 24
"""Accesses of a thread for one operand's tile; the kernels could hold 32, a bit of validity each, but spill by then."""

ACC_BYTES = {"float16": 4, "bfloat16": 4, "int8": 4, "int16": 4, "uint8": 4, "uint16": 4}


@dataclass(frozen=True, slots=True)
class Tile:
    """Block sizes in elements and warps along M and N."""

    m: int
    n: int
    k: int
    warps: tuple[int, int]


def family_of(plan: GemmPlan) -> str:
    """`sm80` where tensor cores form the products that the precision asks for, else `simt`; `stream` without a GEMM."""
    c = plan.contraction
    if c.b is None or plan.extent_k <= 1 or plan.extent_m == 1 or plan.extent_n == 1:
        return "stream"
    if c.dtype in TENSOR_TYPES or (c.dtype == "float32" and c.precision == "tf32"):
        return "sm80"
    return "simt"


def tiles(plan: GemmPlan, family: str) -> Iterator[Tile]:
    """Tiles worth considering for the extents at hand."""
    size = itemsize(plan.contraction.dtype)
    acc = ACC_BYTES.get(plan.contraction.dtype, size)
    depths: tuple[int, ...]
    if family == "sm80":
        step_m, most, depths = 16, (128 * 256 if size < 8 else 128 * 128), {2: (32, 64), 4: (16, 32), 8: (8, 16)}[size]
    else:
        step_m, most, depths = 16, 128 * 128 * 4 // acc, {1: (16, 32), 2: (16, 32), 4: (8, 16), 8: (8,), 16: (4,)}[size]
    for m in _sides(plan.extent_m, step_m, (32, 64, 128, 256)):
        for n in _sides(plan.extent_n, 8, (32, 64, 128, 256)):
            if m * n > most:
                continue
            warps = _warps(m, n, family, acc)
            if warps is None:
                continue
            for k in depths:
                if k == depths[0] or plan.extent_k > depths[0]:
                    yield Tile(m, n, k, warps)


def _sides(extent: int, step: int, usual: tuple[int, ...]) -> list[int]:
    """Usual sides that are not twice too long, and the one that fits a short group."""
    fit = -(-extent // step) * step
    sides = {s for s in usual if s < 2 * fit or s == usual[0]}
    if fit <= usual[1] or (fit <= usual[-1] and fit % 32 == 0) or (fit < usual[2] and fit % 16 == 0):
        sides = {s for s in sides if s <= fit} | {fit}
    return sorted(sides)


def _warps(m: int, n: int, family: str, acc: int) -> tuple[int, int] | None:
    """Warps so that a warp's accumulators fit its registers and its tile is near square."""
    step_m, step_n = (16, 8) if family == "sm80" else (4, 8)
    limit = 64 * 64 * 4 // acc if family == "sm80" else 32 * 64 * 4 // acc
    best: tuple[float, tuple[int, int]] | None = None
    for count in (8, 4, 2, 1):
        for wm in (1, 2, 4, 8):
            wn = count // wm
            if not wn or wm * wn != count or m % (wm * step_m) or n % (wn * step_n):
                continue
            tm, tn = m // wm, n // wn
            if tm * tn > limit or (tm * tn < limit // 4 and count > 4) or (tm * tn < limit // 16 and count > 1):
                continue
            # Fewer, larger warps read less shared memory; four keep every scheduler busy.
            score = (
                (tm + tn) / (tm * tn) * (1.0 if count >= 4 else 3.0) * (1.05 if count == 8 and m * n < 128 * 256 else 1)
            )
            if best is None or score < best[0]:
                best = (score, (wm, wn))
    return best[1] if best else None


def roomy_tiles(family: str, size: int) -> tuple[Tile, ...]:
    """Tiles that meet the limits of a thread whatever the strides are: four warps on little work."""
    step_m = 32 if family == "sm80" else 16
    depth = {1: 16, 2: 32, 4: 16 if family == "sm80" else 8, 8: 8, 16: 4}[size]
    return (Tile(step_m, 32, depth, (2, 2)), Tile(2 * step_m, 64, depth, (2, 2)))


def more_warps(tile: Tile, family: str) -> Tile | None:
    """The tile with as many warps as it can have, at most 8, or None where it has them."""
    step_m, step_n = (16, 8) if family == "sm80" else (4, 8)
    ways = [
        (wm * wn, -(tile.m // wm + tile.n // wn), wm, wn)  # near squares read the least shared memory
        for wm in (1, 2, 4, 8)
        for wn in (1, 2, 4, 8)
        if wm * wn <= 8 and tile.m % (wm * step_m) == 0 and tile.n % (wn * step_n) == 0
    ]
    count, _, wm, wn = max(ways)
    return Tile(tile.m, tile.n, tile.k, (wm, wn)) if count > tile.warps[0] * tile.warps[1] else None


def stages_for(facts: ArchFacts, stage_bytes: int, fixed: int, floor: int, k_tiles: int, copies: bool) -> list[int]:
    """Pipeline depths worth trying, at least 2: as deep as two blocks on an SM allow, and as deep as one does.

    Args:
        facts: Of the GPU.
        stage_bytes: Shared memory of one stage.
        fixed: Shared memory beside the stages.
        floor: Shared memory that the epilogue needs anyway.
        k_tiles: Length of the loop; deeper than that is waste.
        copies: Whether any operand is copied on its own; what goes through registers is one k-tile ahead at most.

    Raises:
        ScheduleError: Not even two stages fit.
    """
    most = min(5 if copies else 3, max(2, k_tiles))
    half = (facts.smem_per_sm - 2048) // 2
    depths = [min(most, (room - fixed) // stage_bytes) for room in (half, facts.smem_per_block)]
    if floor + fixed > half:
        depths = depths[1:]
    found = sorted({d for d in depths if d >= 2})
    if not found:
        raise ScheduleError(
            f"two stages of {stage_bytes} bytes exceed the shared memory of a block "
            f"({facts.smem_per_block} bytes on {facts.arch})"
        )
    return found


def bounded_split(split: int, tile_bytes: int, tiles: int, k_tiles: int) -> tuple[int, int]:
    """The split of K that keeps the partial sums within `WORKSPACE_LIMIT`, and their bytes; (1, 0) for none.

    Args:
        split: Slices wished for.
        tile_bytes: Partial sums of one tile.
        tiles: Tiles of D, batches included.
        k_tiles: Steps along K, shared out evenly: no slice is empty.
    """
    split = min(split, max(1, WORKSPACE_LIMIT // (tiles * tile_bytes)))
    if split > 1:
        split = -(-k_tiles // -(-k_tiles // split))
    return (split, split * tiles * tile_bytes) if split > 1 else (1, 0)


def register_estimate(schedule: Schedule) -> int:
    """Registers a thread is expected to need where the compiler has none to spare.

    Accumulators, and weights for all else: fitted to some 1500 kernels compiled for sm_90a so that what spilled lies
    above `REGISTER_LIMIT` and little else does. Accesses weigh most: an offset, an address and a predicate each.
    """
    m, n, k = schedule.block
    threads, batches = schedule.threads, schedule.batches
    size = schedule.item_bytes
    words = max(size, 4) // 4
    tm, tn = m // schedule.warps[0], n // schedule.warps[1]
    tensor_cores = schedule.family == "sm80"
    fragments = (tm + tn) / 2 if tensor_cores else (tm / 4 + tn / 8) * max(1, 8 // size) * words
    need = 48 + m * n * batches * words / threads + 0.13 * fragments
    box = schedule.box_k
    ragged = not schedule.k_table and any(d.box > 1 and not box.divides(i) for i, d in enumerate(box.dims))
    for access, side in ((schedule.a, m), (schedule.b, n)):
        if access is not None:
            per = -(-side * batches * k // (access.vector * threads))
            each = 4.2
            if not access.asynchronous:  # offset, vector, and a place for each element in half a register
                each = 2.5 + max(1.0, access.vector * size / 4) + 0.5 * access.vector
                each += 0.5 if ragged or schedule.k_table else 0
            need += each * per
    if tensor_cores and size == 4 and k == 32:  # fragments exist twice, as they are and rounded to TF32
        need += 60
    return int(need)


def check_limits(schedule: Schedule, facts: ArchFacts) -> None:
    """Raise `ScheduleError` naming the first hard limit that the schedule breaks."""
    if schedule.smem_bytes > facts.smem_per_block:
        raise ScheduleError(
            f"shared memory: {schedule.smem_bytes} bytes needed, {facts.arch} gives a block {facts.smem_per_block}"
        )
    if schedule.threads > 1024:
        raise ScheduleError("threads: more than 1024 in a block")
    for name, access, side in (("A", schedule.a, schedule.block[0]), ("B", schedule.b, schedule.block[1])):
        if access is not None:
            per = -(-side * schedule.batches * schedule.block[2] // (access.vector * schedule.threads))
            if per > ACCESS_LIMIT:
                raise ScheduleError(f"accesses: {per} a thread to load operand {name}, the limit is {ACCESS_LIMIT}")
    registers = register_estimate(schedule)
    if registers > REGISTER_LIMIT:
        raise ScheduleError(f"registers: about {registers} a thread, the limit is {REGISTER_LIMIT} of 255")
    for name, box, block in zip("mnk", (schedule.box_m, schedule.box_n, schedule.box_k), schedule.block, strict=True):
        if box.size > block:
            raise ScheduleError(f"box_{name} of {box.size} elements does not fit block_{name} = {block}")
        if any(e >= 2**31 for e in box.extents) or box.volume >= 2**31:
            raise ScheduleError(f"extents of group {name.upper()} multiply to {box.volume}, the limit is 2**31 - 1")
