"""From plan and schedule to `Kernel`: traits, index functions and entries around the hand-written templates.

Emits declarations only; no loop and no arithmetic beyond the index functions is made of strings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gett.codegen.index import ParamTable
from gett.codegen.params import POINTERS, declare_params, pack_params, scalar_slots
from gett.codegen.records import Kernel, KernelSource, Launch
from gett.codegen.tiles import (
    Strides,
    batch_index,
    d_order,
    d_unpack,
    group_index,
    k_box_index,
    k_table_index,
)
from gett.codegen.types import accumulator, cpp_type
from gett.errors import ScheduleError
from gett.plan import A, B, C, D, GemmPlan, itemsize
from gett.schedule.records import Access, Schedule
from layouts.modes import Strided

REDUCE_THREADS = 256


def render_kernel(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel that runs `plan` by `schedule`.

    Raises:
        ScheduleError: A limit of the generated code is exceeded; the text names it.
    """
    if schedule.family == "stream":
        from gett.codegen.render_stream import render_stream

        return render_stream(plan, schedule)
    return _render_tiled(plan, schedule)


def element_strides(plan: GemmPlan, modes: Sequence[Strided], tensor: int) -> tuple[int, ...]:
    """Strides of one tensor along the modes of a group, in elements.

    Raises:
        ScheduleError: A stride is no multiple of the item size.
    """
    c = plan.contraction
    operand = {A: plan.a, B: plan.b, C: c.c, D: c.d}[tensor]
    if operand is None:
        return tuple(0 for _ in modes)
    size = itemsize(operand.dtype)
    for s in modes:
        if s.strides[tensor] % size:
            raise ScheduleError(
                f"operand {'ABDC'[tensor]}: its stride of {s.strides[tensor]} bytes is no multiple of its item size "
                f"of {size} bytes; GPU kernels address whole elements"
            )
    return tuple(s.strides[tensor] // size for s in modes)


def strides_of(plan: GemmPlan, modes: Sequence[Strided], names: Mapping[str, int]) -> tuple[Strides, ...]:
    """Element strides of the named tensors along a group."""
    return tuple(Strides(name, element_strides(plan, modes, t)) for name, t in names.items())


def _render_tiled(plan: GemmPlan, schedule: Schedule) -> Kernel:
    contraction = plan.contraction
    table = ParamTable()
    has_c = contraction.c is not None
    out = {"d": D, **({"c": C} if has_c else {})}
    m = group_index("m", schedule.box_m, schedule.block[0], strides_of(plan, plan.m, {"a": A, **out}), table)
    n = group_index("n", schedule.box_n, schedule.block[1], strides_of(plan, plan.n, {"b": B, **out}), table)
    batch_struct, batch = batch_index(
        [s.extent for s in plan.l], strides_of(plan, plan.l, {"a": A, "b": B, **out}), table
    )
    k_strides = strides_of(plan, plan.k, {"a": A, "b": B})
    if schedule.k_table:
        k_struct, k = k_table_index([s.extent for s in plan.k], k_strides, table)
    else:
        k_struct, k = k_box_index(schedule.box_k, schedule.block[2], k_strides, table)
    d_strides = {g: element_strides(plan, modes, D) for g, modes in (("m", plan.m), ("n", plan.n))}
    order = d_order(schedule.box_m, schedule.box_n, d_strides)
    index = "\n".join(
        [m.to_cpp(), n.to_cpp(), batch_struct, batch.to_cpp(), k_struct, *(f.to_cpp() for f in k)]
        + [d_unpack(schedule.box_m, schedule.box_n, order).to_cpp()]
    )
    names = _named(plan, schedule)
    dtype_c = contraction.c.dtype if contraction.c is not None else contraction.d.dtype
    params = declare_params(contraction.dtype, dtype_c, contraction.d.dtype, names, table)
    mma = "TensorMma" if schedule.family == "sm80" else "SimtMma"
    text = (
        f'#include "gett/tiled.cuh"\n#include "gett/mma_{schedule.family}.cuh"\n\n{params}\n'
        f"{_traits(plan, schedule, order, dtype_c)}\nstruct Index {{\n{index}\n}};\n\n"
        f"typedef gett::Tiled<Traits, Index, gett::{mma}<Traits>> Kernel;\n\n"
        f"{_entry('gett_tiled', 'run', 'Traits::kThreads')}"
    )
    entries = ["gett_tiled"]
    threads = 32 * math.prod(schedule.warps)
    tiles = schedule.box_m.tiles * schedule.box_n.tiles * plan.extent_l
    blocks = tiles * schedule.split_k
    if blocks >= 2**31:
        raise ScheduleError(f"{blocks} blocks exceed the grid's limit of 2**31 - 1")
    packed = pack_params(names, table)
    slots = tuple(p for p in POINTERS if p[0] != "c" or has_c)
    if schedule.split_k == 1:
        slots = tuple(p for p in slots if p[0] != "workspace")
    scalars = scalar_slots(contraction.dtype)
    launches = [Launch("gett_tiled", (blocks, 1, 1), (threads, 1, 1), schedule.smem_bytes, packed, slots, (), scalars)]
    if schedule.split_k > 1:
        text += f"\n{_entry('gett_reduce', 'reduce', str(REDUCE_THREADS))}"
        entries.append("gett_reduce")
        vectors = schedule.box_m.size * schedule.box_n.size // schedule.vector_d
        parts = max(1, -(-vectors // (REDUCE_THREADS * 2)))
        launches.append(
            Launch("gett_reduce", (tiles, parts, 1), (REDUCE_THREADS, 1, 1), 0, packed, slots, (), scalars)
        )
    return Kernel(KernelSource(text, tuple(entries)), schedule.arch, tuple(launches), schedule.workspace_bytes)


def _named(plan: GemmPlan, schedule: Schedule) -> dict[str, int]:
    k_tiles = schedule.box_k.tiles
    return {
        "tiles_m": schedule.box_m.tiles,
        "tiles_n": schedule.box_n.tiles,
        "group_m": schedule.group_m,
        "split_k": schedule.split_k,
        "k_tiles": k_tiles,
        "k_tiles_per_slice": -(-k_tiles // schedule.split_k),
        "extent_k": plan.extent_k,
    }


def _way(access: Access, box_along: int) -> str:
    s = access.smem
    return (
        f"{{\n    static constexpr bool kMajorK = {_bool(access.major == 'k')}, "
        f"kVecK = {_bool(access.vector_group == 'k')}, kAsync = {_bool(access.asynchronous)};\n"
        f"    static constexpr int kVec = {access.vector}, kPrefix = {access.prefix}, kUnitBox = {access.unit_box}, "
        f"kBoxAlong = {box_along};\n"
        f"    typedef gett::Smem<{s.pitch}, {s.mask}, {s.shift}> Layout;\n  }};"
    )


def _traits(plan: GemmPlan, schedule: Schedule, order: Sequence[tuple[str, int]], dtype_c: str) -> str:
    c = plan.contraction
    assert schedule.b is not None
    step = {"m": 0, "n": 0}
    if order:
        group, i = order[0]
        box = schedule.box_m if group == "m" else schedule.box_n
        step[group] = math.prod(d.box for d in box.dims[:i])
    ragged = any(d.box > 1 and not schedule.box_k.divides(i) for i, d in enumerate(schedule.box_k.dims))
    bm, bn, bk = schedule.block
    return f"""struct Traits {{
  typedef ::Params Params;
  typedef {cpp_type(c.dtype)} Element;
  typedef {cpp_type(dtype_c)} ElementC;
  typedef {cpp_type(c.d.dtype)} ElementD;
  typedef {cpp_type(accumulator(c.dtype))} Acc;
  typedef {"long long" if _span(plan) >= 2**31 else "int"} Offset;
  static constexpr int kBlockM = {bm}, kBlockN = {bn}, kBlockK = {bk};
  static constexpr int kWarpsM = {schedule.warps[0]}, kWarpsN = {schedule.warps[1]};
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN, kStages = {schedule.num_stages};
  static constexpr int kSmemBytes = {schedule.smem_bytes};
  static constexpr int kBoxMN = {schedule.box_m.size * schedule.box_n.size}, kVecD = {schedule.vector_d};
  static constexpr int kStepM = {step["m"]}, kStepN = {step["n"]};
  static constexpr bool kHasC = {_bool(c.c is not None)}, kSplit = {_bool(schedule.split_k > 1)};
  static constexpr bool kKTable = {_bool(schedule.k_table)}, kKRagged = {_bool(ragged and not schedule.k_table)};
  static constexpr bool kTensorCores = {_bool(schedule.family == "sm80")};
  struct WayA {_way(schedule.a, (schedule.box_k if schedule.a.vector_group == "k" else schedule.box_m).size)}
  struct WayB {_way(schedule.b, (schedule.box_k if schedule.b.vector_group == "k" else schedule.box_n).size)}
  template <bool IsA, int = 0> struct Pick {{ typedef WayA type; }};
  template <int I> struct Pick<false, I> {{ typedef WayB type; }};
  template <bool IsA> using Way = typename Pick<IsA>::type;
}};
"""


def _span(plan: GemmPlan) -> int:
    """Largest distance in elements between two elements of A, and of B."""
    size = itemsize(plan.contraction.dtype)
    groups = (plan.l, plan.m, plan.n, plan.k)
    return max(sum(abs(s.strides[t]) * (s.extent - 1) for g in groups for s in g) // size for t in (A, B))


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _entry(name: str, method: str, bounds: str) -> str:
    return (
        f'extern "C" __global__ void __launch_bounds__({bounds}) {name}(const __grid_constant__ Params p) {{\n'
        f"  Kernel::{method}(p);\n}}\n"
    )
