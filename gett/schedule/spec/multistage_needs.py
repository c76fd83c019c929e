"""What a multistage kernel needs of a multiprocessor: shared memory, registers, accesses of a thread.

Searches choose by these numbers, rules check them, and the shared-memory plan is printed into the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.mainloop import Multistage
from gett.schedule.spec.smem import SmemPlan
from gett.schedule.spec.tiling import Tiling


def warp_step(tensor_cores: bool) -> tuple[int, int]:
    """What a warp's rows and columns are multiples of."""
    return (16, 8) if tensor_cores else (4, 8)


@dataclass(frozen=True, slots=True)
class MultistageSmem:
    """Bytes of the parts of a block's shared memory.

    Attributes:
        stage: A k-tile of A and one of B.
        staging: The tile of D, which lies where the stages were.
        k_slot: Offsets along K of one k-tile, 16 bytes a k; 0 without a table. There is one slot more than stages.
        offsets: Offsets of rows and columns in D and in C.
    """

    stage: int
    staging: int
    k_slot: int
    offsets: int

    def plan(self, stages: int, sliced: bool = False) -> SmemPlan:
        """Where the parts lie. A slice of K stages no D and has no offsets; it asks for no less."""
        pipeline, slots = stages * self.stage, (stages + 1) * self.k_slot
        k_table = pipeline if sliced else max(pipeline, self.staging)
        size = max(pipeline, self.staging) + slots + self.offsets
        return SmemPlan(size, self.stage, k_table=k_table, offsets=k_table + slots)


def multistage_smem(
    plan: GemmPlan, tiling: Tiling, a: CpAsync | RegisterStaged, b: CpAsync | RegisterStaged, k_table: bool
) -> MultistageSmem:
    """The parts of a block's shared memory. D is staged in its own type, with C in the accumulator's."""
    c = plan.contraction
    m, n, k = tiling.shape
    size = data_type(c.dtype).accumulator_bytes if c.c is not None else itemsize(c.d.dtype)
    pitch = -(-n * size // 16) * 16 + 16  # the gap keeps the rows of a fragment in different banks
    rows = m * tiling.batches
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
        if isinstance(loader, RegisterStaged):  # offset, vector, and a place for each element in half a register
            each = 2.5 + max(1.0, loader.vector * size / 4) + 0.5 * loader.vector
            each += 0.5 if tiling.k.ragged or loop.k_table else 0
        need += each * thread_accesses(tiling, loop, loader, side)
    if loop.tensor_cores and size == 4 and k == 32:  # fragments exist twice, as they are and rounded to TF32
        need += 60
    return int(need)
