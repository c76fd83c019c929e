"""From plan and schedule to the stream kernels: traits and index functions around its templates.

Emits declarations only. Every index function can be evaluated in Python, where tests compare it with the boxes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gett.codegen.common import cpp_bool, element_strides, entry, factor_types, finish_kernel, source_c, strides_of
from gett.codegen.epilogue_op import extra_tensors, op_struct, output_op, tile_op
from gett.codegen.index import Expr, Function, ParamTable, const, var
from gett.codegen.params import cpp_type, declare_params, dtype_c, pack_params, pointer_slots, scalar_slots
from gett.codegen.records import Kernel, KernelSource, Launch
from gett.codegen.tiles import GroupIndex, Strides, batch_index, dot, group_index, local_coordinates
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.spec.mainloop import Digit, Stream, StreamLoad, StreamMatrix
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.stream_views import image_size, output_modes, output_views
from layouts.box import Box
from layouts.modes import Strided
from layouts.rates import L2_LINE

REDUCE_COLUMNS = 32  # outputs of a block of the second kernel of a split, as in stream_sum.cuh
MIN_BLOCKS = 2  # blocks of an SM that the compiler leaves registers for


@dataclass(frozen=True, slots=True)
class StreamIndex:
    """The generated functions of one kernel.

    Attributes:
        o: Of D's modes, for each tensor.
        k: Of the summed modes, for the operands; None without sums.
        walks: From the position in a tensor's own order to the tile's index, by tensor name.
        images: From the tile's index to that of a tensor's image in shared memory, by tensor name.
        steps: Distance in elements of neighbours along the vector, by tensor name; only of those read in pieces.
        advances: Distance in elements of a thread's vectors in two steps, by tensor name; empty where it varies.
    """

    o: GroupIndex
    k: GroupIndex | None
    walks: Mapping[str, Function]
    images: Mapping[str, Function]
    steps: Mapping[str, Function]
    advances: Mapping[str, Function]

    def to_cpp(self) -> str:
        """The body of `struct Index`."""
        groups = [g.to_cpp() for g in (self.o, self.k) if g is not None]
        functions = (self.walks, self.images, self.steps, self.advances)
        return "\n".join([*groups, *(f.to_cpp() for x in functions for f in x.values())])


def render_stream(plan: GemmPlan, schedule: Schedule, plain: bool = False) -> Kernel:
    """The kernel, or the two kernels of a split K.

    Args:
        plan: What is computed.
        schedule: How.
        plain: Whether a map copies elements as they are; alpha is not asked for.

    Raises:
        DTypeError: The kernels have no such type.
        ScheduleError: A stride is no multiple of its item size.
    """
    s, c = schedule.stream, plan.contraction
    sums = s.sums
    table = ParamTable()
    index = stream_index(plan, schedule, table)
    box = schedule.tiling.m
    k_tiles = schedule.tiling.k.tiles if plan.extent_k else 0
    names = {
        "tiles_o": box.tiles,
        "split_k": schedule.split_k,
        "k_tiles": k_tiles,
        "k_tiles_per_slice": -(-k_tiles // schedule.split_k),
    }
    params = declare_params(c, names, table, factors=factor_types(plan))
    kind = "sum" if sums else "map"
    members = "\n".join([index.to_cpp(), *output_op(c)])
    traits = _traits(plan, schedule, plain)
    text = (
        f'#include "gett/kernel/stream_{kind}.cuh"\n\n{params}\n{op_struct(c)}{traits}\n'
        f"struct Index {{\n{members}\n}};\n\ntypedef gett::Stream{kind.capitalize()}<Traits, Index> Kernel;\n\n"
        f"{entry('gett_stream', 'Kernel::run', f'{s.threads}, {MIN_BLOCKS}')}"
    )
    packed = pack_params(names, table, extras=len(c.extras))
    slots, scalars = pointer_slots(c, names, schedule.adds_parts), scalar_slots(c.dtype)
    grid = (box.tiles * schedule.split_k, 1, 1)
    launches = [Launch("gett_stream", grid, (s.threads, 1, 1), schedule.smem.size, packed, slots, (), scalars)]
    entries = ["gett_stream"]
    if schedule.split_k > 1:
        text += f"\n{entry('gett_reduce', 'Kernel::reduce', str(s.threads))}"
        entries.append("gett_reduce")
        columns = min(REDUCE_COLUMNS, schedule.tiling.shape[0])
        grid = (box.tiles, -(-schedule.tiling.shape[0] // columns), 1)
        launches.append(Launch("gett_reduce", grid, (s.threads, 1, 1), 0, packed, slots, (), scalars))
    return Kernel(KernelSource(text, tuple(entries)), schedule.arch, tuple(launches), schedule.workspace_bytes)


def stream_index(plan: GemmPlan, schedule: Schedule, table: ParamTable) -> StreamIndex:
    """The index functions of a schedule."""
    s, tiling = schedule.stream, schedule.tiling
    sums = s.sums
    loads = {name: (t, load) for name, t, load in (("a", A, s.a), ("b", B, s.b), ("c", C, s.c)) if load is not None}
    modes = output_modes(plan)
    tensors = [Strides(name, element_strides(plan, modes, t)) for name, (t, _) in loads.items()]
    written = {"d": D, **extra_tensors(plan.contraction)}
    tensors += [Strides(name, element_strides(plan, modes, t)) for name, t in written.items()]
    o = group_index("o", _not_empty(tiling.m), tiling.shape[0], tensors, table)
    k = None
    if sums:
        box = tiling.k if plan.extent_k else Box((), ())
        summed = plan.k if plan.extent_k else ()
        operands = [Strides(n, element_strides(plan, summed, t)) for n, (t, _) in loads.items() if n != "c"]
        k = group_index("k", box, tiling.shape[2], operands, table)
    walks = {name: _walk(name, tiling.m, load.walk) for name, (_, load) in loads.items() if load.staged}
    views = output_views(plan)
    images = {
        name: _image(name, tiling.m, views[t].image(tiling.m)) for name, (t, load) in loads.items() if load.staged
    }
    if sums:
        walks["d"] = _walk("d", tiling.m, s.walk_d)
    steps = {}
    for name, (t, load) in loads.items():
        if _in_pieces(load, s.vector) and not (sums and name == "c"):
            value = table.stride(_step(plan, schedule, modes, t))
            steps[name] = Function.of(f"step_{name}", (), value, "long long", "")
    advances = {}
    if rows := vectors_of_step(plan, tiling.m, s)[1]:
        last, direct = tiling.m.tiled[-1][1].modes[0], {n: t for n, (t, load) in loads.items() if not load.staged}
        for name, t in {**direct, "d": D}.items():
            value = table.stride(element_strides(plan, modes, t)[last] * rows)
            advances[name] = Function.of(f"advance_{name}", (), value, "long long", "")
    return StreamIndex(o, k, walks, images, steps, advances)


def vectors_of_step(plan: GemmPlan, box: Box, s: Stream) -> tuple[int, int]:
    """Vectors of a map's step of all threads, and the rows of the tile's last dimension that they are, 0 for none.

    A thread's places in two steps differ by a constant distance where steps are whole rows. They are whole lines of L2
    as well, and a tenth of the threads may be idle for that.
    """
    if s.sums or len(box.tiled) < 2 or len(box.tiled[-1][1].modes) != 1:
        return s.threads, 0
    row = box.size // box.tiled[-1][1].box
    period = math.lcm(row, s.vector, L2_LINE // itemsize(plan.contraction.d.dtype)) // s.vector
    step = s.threads // period * period
    if 10 * step < 9 * s.threads or box.size <= step * s.vector:
        return s.threads, 0
    return step, step * s.vector // row


def _in_pieces(load: StreamLoad, vector: int) -> bool:
    return not load.staged and not load.splat and load.width < vector


def _step(plan: GemmPlan, schedule: Schedule, modes: Sequence[Strided], tensor: int) -> int:
    """Elements between neighbours along the first dimension of the box that holds the vector."""
    s = schedule.stream
    box, group = (schedule.tiling.k, plan.k) if s.along_k else (schedule.tiling.m, modes)
    assert box.dims[0].box % s.vector == 0, "a vector read in pieces lies along one mode"
    return element_strides(plan, group, tensor)[box.dims[0].modes[0]]


def _not_empty(box: Box) -> Box:
    """The box with empty modes made 1 long: its kernel is never launched, but its text must be valid."""
    return Box(tuple(max(1, e) for e in box.extents), box.dims)


def _walk(name: str, box: Box, digits: Sequence[Digit]) -> Function:
    """From the position in a walk to the tile's index."""
    body: list[tuple[str, str, Expr]] = []
    rest, total = var("i"), const(0)
    for j, digit in enumerate(digits):
        last = j == len(digits) - 1
        body.append(("int", f"c{j}", rest if last else rest % const(digit.size)))
        if not last:
            body.append(("int", f"r{j}", rest // const(digit.size)))
            rest = var(f"r{j}")
        total = total + var(f"c{j}") * const(digit.step * box.prefix(digit.dim))
    return Function.of(f"tile_index_{name}", body, total, "int", "i")


def _image(name: str, box: Box, places: Sequence[int]) -> Function:
    """From the tile's index to that of the image, which is the same where no dimension is left out."""
    body: list[tuple[str, str, Expr]] = []
    total = var("i")
    if image_size(box, places) != box.size:
        total = dot(local_coordinates(body, box, total), [const(place) for place in places])
    return Function.of(f"image_{name}", body, total, "int", "i")


def image_is_whole(box: Box, places: Sequence[int], vector: int) -> bool:
    """Whether the elements of every vector of D lie together in the image."""
    return all(places[i] or box.prefix(i) % vector == 0 for i, _ in box.tiled)


def _traits(plan: GemmPlan, schedule: Schedule, plain: bool) -> str:
    c, s, box = plan.contraction, schedule.stream, schedule.tiling.m
    views = output_views(plan)
    step, advance = vectors_of_step(plan, box, s)

    def loader(name: str, tensor: int, w: StreamLoad | None, element: str) -> str:
        w = w or StreamLoad()
        places = views[tensor].image(box) if w.staged else ()
        lead = w.walk[0] if w.walk else Digit(0, 1, 0)
        # Elements of a vector are one step apart in the tile where the vector stays inside its first dimension.
        apart = places[lead.dim] if w.staged and lead.size % w.width == 0 else 0
        held = image_size(box, places) if w.staged else 0
        whole = not w.staged or image_is_whole(box, places, s.vector)
        further = advance * places[box.tiled[-1][0]] if w.staged and advance else 0
        return (
            f"  struct LoaderTraits{name} {{\n    typedef {element} Element;\n"
            f"    static constexpr bool kViaSmem = {cpp_bool(w.staged)}, "
            f"kBroadcast = {cpp_bool(w.splat)}, kSharedByRows = {cpp_bool(w.shared)}, "
            f"kImageWhole = {cpp_bool(whole)};\n"
            f"    static constexpr int kWidth = {w.width}, kStep = {apart}, kImage = {held}, "
            f"kMask = {w.mask}, kShift = {w.shift}, kImageAdvance = {further};\n  }};\n"
        )

    (a, b), type_c = factor_types(plan), cpp_type(dtype_c(c))
    return (
        "struct Traits {\n  typedef ::Params Params;\n"
        f"  typedef {cpp_type(c.dtype)} Element;\n  typedef {type_c} ElementC;\n"
        f"  typedef {cpp_type(c.d.dtype)} ElementD;\n  typedef {cpp_type(data_type(c.dtype).accumulator)} Acc;\n"
        f"  static constexpr bool kHasB = {cpp_bool(plan.b is not None)};\n"
        f"  static constexpr gett::SourceC kSourceC = {source_c(c.c is not None)};\n"
        f"  static constexpr bool kEpilogueOp = {cpp_bool(c.epilogue is not None)}, kPlain = {cpp_bool(plain)};\n"
        f"  static constexpr bool kAlongK = {cpp_bool(s.along_k)}, kSplit = {cpp_bool(schedule.split_k > 1)};\n"
        f"  static constexpr bool kStoreOnce = {cpp_bool(s.store_once)};\n"
        f"  static constexpr int kThreads = {s.threads}, kBox = {box.size}, kVec = {s.vector}, kUnroll = {s.unroll};\n"
        f"  static constexpr int kStep = {step};\n  static constexpr bool kAdvance = {cpp_bool(advance > 0)};\n"
        f"  static constexpr int kLanesK = {s.lanes_k}, kRows = {s.rows}, kSmemBytes = {schedule.smem.size};\n"
        f"{loader('A', A, s.a, a)}{loader('B', B, s.b, b)}{loader('C', C, s.c, type_c)}}};\n"
    )


def render_stream_matrix(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel of a lowered plan whose B is a small matrix.

    Raises:
        DTypeError: The kernels have no such type.
        ScheduleError: A stride is no multiple of its item size.
    """
    loop, t, c = schedule.loop(StreamMatrix), schedule.tiling, plan.contraction
    table = ParamTable()
    out = {"d": D, **({"c": C} if c.c is not None else {}), **extra_tensors(c)}
    groups = (
        group_index("m", t.m, t.shape[0], strides_of(plan, plan.m, {"a": A, **out}), table),
        group_index("n", t.n, t.shape[1], strides_of(plan, plan.n, {"b": B, **out}), table),
        group_index("k", t.k, t.shape[2], strides_of(plan, plan.k, {"a": A, "b": B}), table),
    )
    tensors = strides_of(plan, plan.l, {"a": A, "b": B, **out})
    batch_struct, batch = batch_index([s.extent for s in plan.l], tensors, table)
    members = [*(g.to_cpp() for g in groups), batch_struct, batch.to_cpp(), *tile_op(plan, many_batches=False)]
    index = "\n".join(members)
    names = {"tiles_m": t.m.tiles, "tiles": t.m.tiles * plan.extent_l}
    params = declare_params(c, names, table, factors=factor_types(plan))
    text = (
        f'#include "gett/kernel/stream_matrix.cuh"\n\n{params}\n{op_struct(c)}'
        f"{_matrix_traits(plan, schedule, loop)}\n"
        f"struct Index {{\n{index}\n}};\n\ntypedef gett::StreamMatrix<Traits, Index> Kernel;\n\n"
        f"{entry('gett_stream', 'Kernel::run', f'{loop.threads}, {MIN_BLOCKS}')}"
    )
    grid, packed = (names["tiles"], 1, 1), pack_params(names, table, extras=len(c.extras))
    return finish_kernel(schedule, c, "gett_stream", text, grid, loop.threads, names["tiles"], packed, names)


def _matrix_traits(plan: GemmPlan, schedule: Schedule, loop: StreamMatrix) -> str:
    c, (rows, n, k) = plan.contraction, schedule.tiling.shape
    a, b = factor_types(plan)
    return (
        "struct Traits {\n  typedef ::Params Params;\n"
        f"  typedef {a} ElementA;\n  typedef {b} ElementB;\n  typedef {cpp_type(dtype_c(c))} ElementC;\n"
        f"  typedef {cpp_type(c.d.dtype)} ElementD;\n  typedef {cpp_type(data_type(c.dtype).accumulator)} Acc;\n"
        f"  static constexpr gett::SourceC kSourceC = {source_c(c.c is not None)};\n"
        f"  static constexpr bool kEpilogueOp = {cpp_bool(c.epilogue is not None)};\n"
        f"  static constexpr int kExtras = {len(c.extras)};\n"
        f"  static constexpr int kThreads = {loop.threads}, kUnroll = {loop.unroll}, kBox = {rows};\n"
        f"  static constexpr int kN = {n}, kK = {k}, kVec = {loop.vector}, kVecK = {loop.vector_k}, "
        f"kVecN = {loop.vector_n}, kLanesN = {loop.lanes_n};\n"
        f"  static constexpr int kSmemBytes = {schedule.smem.size};\n}};\ntypedef Traits ProblemTraits;\n"
    )
