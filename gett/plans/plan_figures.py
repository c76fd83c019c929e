"""`PlanFigures`: what a plan says of its work and of the memory that a call takes.

Owns what counts as a call's memory. How steps run is `gett.plans.bound_steps`'.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gett.graphs.replay import may_replay
from gett.ir.tensors import TensorSpec
from gett.network.steps import last_uses, peak_bytes, step_bytes
from gett.plans.bound_steps import BoundSteps


class Result(NamedTuple):
    """What a plan writes: the description of the array, and the memory order of a new one, `"C"` or `"F"`."""

    d: TensorSpec
    order: str


class PlanFigures(BoundSteps):
    """The steps of a plan, and their work and memory."""

    __slots__ = ()

    @property
    def flops(self) -> int:
        """Floating-point operations of all steps."""
        return sum(s.gemm.flops for s in self.steps)

    @property
    def bytes(self) -> int:
        """Least traffic of all steps: each of their tensors once."""
        return sum(s.gemm.bytes for s in self.steps)

    @property
    def workspace_bytes(self) -> int:
        """Device memory for partial sums during the call; steps use it one after the other."""
        return max((s.schedule.workspace_bytes for s in self.steps if s.schedule is not None), default=0)

    @property
    def intermediate_bytes(self) -> int:
        """Most memory that intermediates hold at one time; the result does not count."""
        return peak_bytes(self.steps, last_uses(self.steps))

    @property
    def peak_bytes(self) -> int:
        """Most memory that a call holds at one time: intermediates, converted operands, workspace and a new result.

        What the caller holds does not count: operands, `c`, and an `out` that was announced. On the CPU the workspace
        is the executor's scratch. Where `out` overlaps what is read, a call takes the bytes of the result as well.

        Example:
            >>> import gett
            >>> gett.plan("ij,jk,kl->il", *[((64, 64), "float64")] * 3).peak_bytes
            65536
        """
        return self._result_bytes + self._copy_of_c + peak_bytes(self.steps, last_uses(self.steps), self._copies)

    @property
    def step_bytes(self) -> tuple[int, ...]:
        """What a call holds while each step runs, as `peak_bytes` counts it.

        Example:
            >>> import gett
            >>> gett.plan("ij,jk,kl->il", *[((64, 64), "float64")] * 3).step_bytes
            (65536, 65536)
        """
        always = self._result_bytes + self._copy_of_c
        return tuple(always + x for x in step_bytes(self.steps, last_uses(self.steps), self._copies))

    @property
    def largest_intermediate(self) -> int:
        """Elements of the largest intermediate."""
        inner = [s for s in self.steps if s.output != self.steps[-1].output]
        return max((math.prod(s.shape) for s in inner), default=0)

    @property
    def result(self) -> Result:
        """The array that the last step writes, and the memory order of a new one."""
        return Result(self._d, self._order)

    @property
    def slices(self) -> int:
        """How many slices a call computes one after the other: 1, unless a limit of memory asks for more."""
        return 1

    @property
    def sliced(self) -> str:
        """The labels along which the contraction is sliced."""
        return ""

    @property
    def once(self) -> int:
        """How many steps run once for all slices."""
        return 0

    @property
    def held_steps(self) -> int:
        """How many steps have results that are held between calls: those of constants, or all but the last one."""
        return 0

    @property
    def held_bytes(self) -> int:
        """Bytes of the results that are held between calls; they count in `peak_bytes`."""
        return 0

    @property
    def overhead(self) -> float:
        """Floating-point operations as a multiple of those without slices."""
        return 1.0

    @property
    def graphs(self) -> int:
        """How many CUDA graphs play the steps from the second call on; 0 where kernels are launched one by one."""
        if self.arch == "cpu" or self._request.memory_limit is not None:
            return 0
        return int(may_replay(self._turns))

    @property
    def _result_bytes(self) -> int:
        """Bytes of the result where a call allocates it."""
        return self._d.nbytes if self._request.out is None or self._through_copy else 0

    @property
    def _copies(self) -> dict[int, int]:
        """Bytes of the converted copy of each operand that has one."""
        found = enumerate(self._convert)
        return {i: math.prod(how.shape) * how.dtype.itemsize for i, how in found if how is not None}

    @property
    def _copy_of_c(self) -> int:
        c = self._request.c
        return 0 if c is None or c.dtype == self.dtype else math.prod(c.shape) * self.dtype.itemsize
