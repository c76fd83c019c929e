"""From plan and schedule to the kernel of a large operand times a small matrix: traits and index functions."""

from __future__ import annotations

from gett.codegen.common import cpp_bool, entry, factor_types, finish_kernel, source_c, strides_of
from gett.codegen.epilogue_op import extra_tensors, op_struct, tile_op
from gett.codegen.index import ParamTable
from gett.codegen.params import cpp_type, declare_params, dtype_c, pack_params
from gett.codegen.records import Kernel
from gett.codegen.tiles import batch_index, group_index
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.spec.mainloop import StreamMatrix
from gett.schedule.spec.schedule import Schedule

MIN_BLOCKS = 2  # blocks of an SM that the compiler leaves registers for


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
        f"{_traits(plan, schedule, loop)}\n"
        f"struct Index {{\n{index}\n}};\n\ntypedef gett::StreamMatrix<Traits, Index> Kernel;\n\n"
        f"{entry('gett_stream', 'Kernel::run', f'{loop.threads}, {MIN_BLOCKS}')}"
    )
    grid, packed = (names["tiles"], 1, 1), pack_params(names, table, extras=len(c.extras))
    return finish_kernel(schedule, c, "gett_stream", text, grid, loop.threads, names["tiles"], packed, names)


def _traits(plan: GemmPlan, schedule: Schedule, loop: StreamMatrix) -> str:
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
