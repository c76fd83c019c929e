"""DmmaTma: `mma.sync` of float64, also as parts of complex128, out of stages that tensor maps fill."""

from __future__ import annotations

import math

from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan
from gett.schedule.mainloops import hopper
from gett.schedule.rules.hopper import MAP_RULES, cluster
from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.spec.hopper_needs import leads, parts
from gett.schedule.spec.mainloop import DmmaTma
from gett.schedule.spec.schedule import Schedule

# K of an operand's rows in a k-tile where A's and B's run along two contracted modes: rows of 32 bytes or 64; of
# complex128, whose lanes share them out such that accesses to either operand differ in banks.
LEADS, LEADS_COMPLEX = (4, 8), (4, 4)
SPARE = 32  # registers that a thread needs beside sums and fragments, whose places in either major are kept


def dmma_step(mma_m: int, columns: int, parts: int) -> tuple[int, int]:
    """K of one instruction of float64, also as parts, and the registers that a thread needs for it.

    Sums are read and written half as often by 16 k as by 8, if registers suffice; a complex number's parts are two of
    its k. A number takes two registers, and a lane has a fourth of the k of a row. Of A there are two steps, one of
    which takes twice as many where numbers are complex, since either part is multiplied by both of B's. Of B there are
    four times one row of eight columns, or two where each is multiplied by four products.
    """
    steps, rows = (3, 2) if parts > 1 else (2, 4)
    needed = {k: parts * mma_m * columns + k * steps * mma_m + k // 2 * rows + SPARE for k in (8, 16)}
    step = 16 if parts > 1 or needed[16] <= hopper.THREAD_REGISTERS[1] else 8
    return step, needed[step]


def dmma_registers(mma_m: int, columns: int, parts: int) -> tuple[int, int]:
    """Registers of a thread that multiplies float64, also as parts: those that it needs, and those it has."""
    return dmma_step(mma_m, columns, parts)[1], hopper.THREAD_REGISTERS[1]


def data_types(x: Lowered) -> Reasons:
    """Warps multiply float64 and complex128, of which both operands are."""
    dtype, operands = x.plan.contraction.dtype, [o.dtype for o in (x.plan.a, x.plan.b) if o is not None]
    if data_type(dtype).by_warps() is None:
        yield f"{dtype} of {data_type(dtype).bytes} bytes by a {type(x.s.mainloop).__name__}"
    elif any(o != dtype for o in operands):
        yield f"operands of {operands}, products of 1 type, {dtype}"


def doubles(x: Lowered) -> Reasons:
    """A thread has registers for sums and fragments of float64."""
    needed, there = dmma_registers(x.s.loop(DmmaTma).mma_m, x.s.tiling.shape[1], parts(x.plan))
    if needed > there:
        yield f"{needed} registers for sums and fragments, a thread has {there}"


def k_of_doubles(x: Lowered) -> Reasons:
    """There is one order of k, or 4 or 8 k (complex: 4) of each of the two modes along which A's and B's rows run."""
    loop, deep = x.s.loop(DmmaTma), x.s.tiling.k.size
    found, (a, b) = leads(loop, x.s.tiling.k), ([d for _, d in o.box_k.tiled] for o in x.operands)
    if found == (1, 1):
        if a != b:
            yield f"A's k are {a} and B's are {b}"
        return
    allowed = LEADS if parts(x.plan) == 1 else LEADS_COMPLEX
    if not set(found) <= set(allowed) or deep != math.prod(found):
        yield f"k-tiles of {deep} with {found} k of A's and B's rows, which may have {allowed}"


def multiplies(plan: GemmPlan, s: Schedule) -> str:
    """The class whose instructions have as much K as registers allow."""
    return f"gett::Dmma<{dmma_step(s.hopper.mma_m, s.tiling.shape[1], parts(plan))[0]}>"


DMMA_TMA = hopper.HopperKind(
    words="mma.sync of float64 out of stages that tensor maps fill",
    rules=hopper.hopper_rules(data_types, (*MAP_RULES, doubles, k_of_doubles, cluster)),
    fields={"kProducerWarpgroups": "producers"},
    traits=hopper.orders,
    multiplies=multiplies,
)
