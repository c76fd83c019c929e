"""What the rendering of every main loop needs: element strides, named counts, entries, and the launches of split-K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gett.codegen.index import ParamTable
from gett.codegen.params import factor_type, pointer_slots, scalar_slots
from gett.codegen.records import Kernel, KernelSource, Launch, TensorMapSpec
from gett.codegen.tiles import Strides, d_order
from gett.errors import ScheduleError
from gett.ir.contraction import Contraction
from gett.ir.gemm import EXTRA, D, GemmPlan, itemsize
from gett.schedule.spec.schedule import PARTS, Schedule
from layouts.modes import Strided

REDUCE_THREADS = 256
REDUCE_BLOCKS = 4  # that a multiprocessor holds at least, where the compiler is told
REDUCE_ROWS = 32  # most threads that share a vector of outputs
REDUCE_BUSY = 1 << 18  # threads beyond which the machine is busy anyway


def element_strides(plan: GemmPlan, modes: Sequence[Strided], tensor: int) -> tuple[int, ...]:
    """Strides of one tensor along the modes of a group, in elements.

    Raises:
        ScheduleError: A stride is no multiple of the item size.
    """
    c = plan.contraction
    operand = (plan.a, plan.b, c.d, c.c, *c.extras)[tensor]
    if operand is None:
        return tuple(0 for _ in modes)
    size = itemsize(operand.dtype)
    for s in modes:
        if s.strides[tensor] % size:
            name = "ABDC"[tensor] if tensor < EXTRA else f"x{tensor - EXTRA} of the epilogue"
            raise ScheduleError(
                f"operand {name}: its stride of {s.strides[tensor]} bytes is no multiple of its item size "
                f"of {size} bytes; GPU kernels address whole elements"
            )
    return tuple(s.strides[tensor] // size for s in modes)


def factor_types(plan: GemmPlan) -> tuple[str, str]:
    """C++ types of A's and B's elements; where there is no B, A's stands for it."""
    return factor_type(plan.a), factor_type(plan.a if plan.b is None else plan.b)


def strides_of(plan: GemmPlan, modes: Sequence[Strided], names: Mapping[str, int]) -> tuple[Strides, ...]:
    """Element strides of the named tensors along a group."""
    return tuple(Strides(name, element_strides(plan, modes, t)) for name, t in names.items())


def reach(plan: GemmPlan, tensor: int) -> int:
    """Bytes from a tensor's lowest element to its highest."""
    return sum(abs(s.strides[tensor]) * (s.extent - 1) for g in (plan.l, plan.m, plan.n, plan.k) for s in g)


def store_order(plan: GemmPlan, schedule: Schedule) -> list[tuple[str, int]]:
    """The tiled dimensions of M and N, (group, position), in the order in which a tile of D is stored.

    Those of L are among them where a block makes several batches.
    """
    t = schedule.tiling
    boxes = {"m": t.m, "n": t.n} | ({} if t.l is None else {"l": t.l})
    modes = {"m": plan.m, "n": plan.n, "l": plan.l}
    return d_order(boxes, {g: element_strides(plan, modes[g], D) for g in boxes})


def source_c(added: bool, tma: bool = False) -> str:
    """The enumerator of `SourceC` that says where C comes from."""
    return "gett::kSourceNone" if not added else "gett::kSourceTma" if tma else "gett::kSourceVector"


def named_counts(plan: GemmPlan, schedule: Schedule) -> dict[str, int]:
    """The named integers of every GEMM kernel."""
    return {
        "tiles_m": schedule.tiling.m.tiles,
        "tiles_n": schedule.tiling.n.tiles,
        "group_m": schedule.scheduler.group_m,
        "whole_groups": _raster(schedule)[0],
        "split_k": schedule.split_k,
        "k_tiles": schedule.tiling.k.tiles,
        "k_tiles_per_slice": schedule.k_tiles_per_slice,
        "extent_k": plan.extent_k,
    }


def raster_table(schedule: Schedule) -> ParamTable:
    """The table of a GEMM kernel's parameters, with the divisors that number its tiles (`RasterDivisor`)."""
    return ParamTable(divisors=_raster(schedule)[1])


def _raster(schedule: Schedule) -> tuple[int, list[int]]:
    m, n = (-(-box.tiles // x) for box, x in zip((schedule.tiling.m, schedule.tiling.n), schedule.cluster, strict=True))
    return raster(m, n, schedule.scheduler.group_m, schedule.split_k)


def raster(tiles_m: int, tiles_n: int, group_m: int, slices: int) -> tuple[int, list[int]]:
    """Groups of `group_m` rows of tiles that are whole, and the divisors that number tiles, which are clusters'."""
    rows = min(group_m, tiles_m)
    divisors = tiles_m * tiles_n, rows * tiles_n, rows, tiles_m % rows or rows, slices
    return tiles_m // rows, [min(x, 2**31 - 1) for x in divisors]  # more tiles are refused


def work_tiles(schedule: Schedule, tiles: int) -> tuple[dict[str, int], int]:
    """The named integers of persistent blocks whose clusters make `tiles` tiles, and how many of these are divided."""
    if not schedule.scheduler.stream_k:
        return {"tiles": tiles}, 0
    shares, divided = schedule.shares, tiles % schedule.shares
    each, longer = divmod(divided * schedule.tiling.k.tiles, shares)
    work = tiles - divided + PARTS * shares
    return {"tiles": work, "shares": shares, "share_k_tiles": each, "longer_shares": longer}, divided


def finish_kernel(
    schedule: Schedule,
    contraction: Contraction,
    name: str,
    text: str,
    grid: tuple[int, int, int],
    threads: int,
    tiles: int,
    packed: bytes,
    names: Mapping[str, int],
    maps: tuple[tuple[str, int, TensorMapSpec], ...] = (),
    reduce_blocks: int = 0,
    cache_bytes: int = 0,
) -> Kernel:
    """The launches of a rendered main kernel and, under split-K and stream-K, of the kernel that adds partial tiles.

    The text has the entry `name`, whose argument is `packed`, with named integers and slots of tensor maps. `tiles`
    counts those of all batches; under stream-K, those that are divided. `reduce_blocks` are the blocks of the second
    kernel that a multiprocessor must hold, 0 where the compiler may choose. `cache_bytes` are what the first one needs.

    Raises:
        ScheduleError: The grid is too large.
    """
    if grid[0] >= 2**31:
        raise ScheduleError(f"{grid[0]} blocks exceed the grid's limit of 2**31 - 1")
    slots = pointer_slots(contraction, names, schedule.adds_parts)
    scalars = scalar_slots(contraction.dtype)
    entries = [name]
    main = Launch(name, grid, (threads, 1, 1), schedule.smem.size, packed, slots, maps, scalars, (), cache_bytes)
    launches = [main]
    if schedule.adds_parts:
        bounds = f"{REDUCE_THREADS}, {reduce_blocks}" if reduce_blocks else f"{REDUCE_THREADS} GETT_MIN_BLOCKS"
        box_m = schedule.tiling.m.size
        vectors = box_m * schedule.tiling.n.size // schedule.epilogue.store.vector
        slices = schedule.split_k
        if schedule.scheduler.stream_k:
            slices = -(-schedule.scheduler.blocks // tiles) + 1
        rows = reduce_rows(slices, tiles * vectors)
        function = f"gett::reduce_slices<EpilogueTraits, Index, Scheduler, {REDUCE_THREADS}, {rows}, {box_m}>"
        text = f'#include "gett/kernel/splitk_reduce.cuh"\n{text}\n{entry("gett_reduce", function, bounds)}'
        entries.append("gett_reduce")
        parts = -(-vectors // (REDUCE_THREADS // rows))
        block = (REDUCE_THREADS, 1, 1)
        launches.append(Launch("gett_reduce", (tiles, parts, 1), block, 0, packed, slots, (), scalars))
    return Kernel(KernelSource(text, tuple(entries)), schedule.arch, tuple(launches), schedule.workspace_bytes)


def reduce_rows(split: int, vectors: int) -> int:
    """Threads that share the slices of one vector of outputs: more of them the fewer vectors there are."""
    rows = 1
    while rows < REDUCE_ROWS and 8 * rows <= split and 2 * rows * vectors <= REDUCE_BUSY:
        rows *= 2
    return rows


def cpp_bool(value: bool) -> str:
    """The C++ literal."""
    return "true" if value else "false"


def entry(name: str, function: str, bounds: str, cluster: int = 1) -> str:
    """The `extern "C"` kernel that calls a device function, with its launch bounds and the blocks of a cluster."""
    together = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
    return (
        f'extern "C" __global__ void __launch_bounds__({bounds}) {together}'
        f"{name}(const __grid_constant__ Params p) {{\n  {function}(p);\n}}\n"
    )
