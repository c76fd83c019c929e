"""WgmmaTf32: products of TF32 with A in registers; B is transposed in shared memory if its rows run along N."""

from __future__ import annotations

from functools import partial

from gett.hw.dtypes import WORD
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.mainloops import hopper
from gett.schedule.rules.hopper import MAP_RULES, cluster, whole_operands
from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.spec.hopper_needs import MOST_STAGES, multiplied
from gett.schedule.spec.mainloop import Hopper, WgmmaTf32
from gett.schedule.spec.schedule import Schedule, SmemPlan

WIDEST_TRANSPOSED = 192
"""Columns of a tile beside a warpgroup that transposes: registers are shared out in the end, but instructions must fit
those that all threads start with."""

TRANSPOSE_REGISTERS = {96: (80, 176), 128: (72, 184)}
"""Registers of a thread that fetches and of one that multiplies where B is transposed, by the accumulators that a
thread may have."""

SPARE = 32  # registers that a thread needs beside sums and fragments


def tf32_registers(mma_m: int, columns: int, steps: int, transposes: bool) -> tuple[int, int]:
    """Registers of a thread with fragments for `steps` of K in them: those that it needs, and those it has."""
    held = mma_m * columns // 2
    there = hopper.by_accumulators(TRANSPOSE_REGISTERS if transposes else {}, held)
    return held + 4 * mma_m * steps + SPARE, there[1]


def data_types(x: Lowered) -> Reasons:
    """Wgmma multiplies the operands' four bytes, rounded to TF32, with A in registers."""
    yield from whole_operands(x, "rs")
    tensor = multiplied(x.plan)
    if tensor is not None and tensor.bytes != WORD:
        yield f"{tensor.name} of {tensor.bytes} bytes by a {type(x.s.mainloop).__name__}"


def in_registers(x: Lowered) -> Reasons:
    """K-tiles have two steps or more, for which registers suffice, and B is transposed where its rows run along N."""
    loop, (_, columns, deep) = x.s.loop(WgmmaTf32), x.s.tiling.shape
    if deep < 2 * x.atom.k:
        yield f"k-tiles of {deep}, two steps are {2 * x.atom.k}"
    made = loop.transposed_stages
    needed, there = tf32_registers(loop.mma_m, columns, deep // x.atom.k, made > 0)
    if needed > there:
        yield f"{needed} registers for sums and fragments, a thread has {there}"
    if made and columns > WIDEST_TRANSPOSED:
        yield f"{columns} columns beside a warpgroup that transposes, the most are {WIDEST_TRANSPOSED}"
    if (made > 0) != (loop.b.major == "mn") or made == 1:  # one is written while products read the other
        yield f"{made} k-tiles of B transposed, which is {loop.b.major}-major"


def registers(plan: GemmPlan, loop: Hopper, columns: int) -> tuple[int, int]:
    """Of a thread that fetches and of one that multiplies a tile of `columns`."""
    return hopper.by_accumulators(TRANSPOSE_REGISTERS if loop.producers > 1 else {}, loop.mma_m * columns // 2)


def smem(s: Schedule, plan: GemmPlan) -> SmemPlan:
    """Stages, k-tiles of B transposed, staged tiles, barriers."""
    t, loop = s.tiling, s.loop(WgmmaTf32)
    k_tile = hopper.tile_bytes("b", loop.b.rows(t.n.size), t.shape[2] * itemsize(plan.contraction.dtype))
    made = loop.transposed_stages
    return hopper.laid_out(s, plan, made * k_tile, barriers=hopper.barrier_bytes(MOST_STAGES + made))


WGMMA_TF32 = hopper.HopperKind(
    words="wgmma on TF32, A in registers",
    rules=hopper.hopper_rules(data_types, (*MAP_RULES, in_registers, cluster)),
    smem=smem,
    registers=registers,
    fields={"kProducerWarpgroups": "producers", "kTransposedStages": "transposed_stages"},
    multiplies=partial(hopper.one_wgmma, majors=("k",), signed=True),  # B has rows along K by then
    makes="transposes B",
)
