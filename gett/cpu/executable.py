"""`NumpyExecutable`: a plan ready to run on NumPy arrays, its route decided once.

Owns the choice between BLAS and element-wise loops. Checks what a plan and its scalars can get wrong on NumPy; shapes
and dtypes of operands were checked when the contraction was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gett.cpu.arithmetic import factor, make_arithmetic
from gett.cpu.conjugation import conjugate, conjugations
from gett.cpu.core import Groups, choose_core, element_wise_cost
from gett.cpu.elementwise import MAX_LABELS, ElementWiseProgram
from gett.cpu.packed import PackedProgram
from gett.cpu.pairs import as_pairs
from gett.cpu.threads import available_threads
from gett.cpu.views import Array, is_aligned
from gett.errors import DTypeError
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, GemmPlan, make_gemm_plan
from gett.ir.pairs import real_pairs
from layouts.modes import Strided, volume

_Program = PackedProgram | ElementWiseProgram


class NumpyExecutable:
    """Runs `D = f(alpha * sum(A * B) + beta * C)` on NumPy arrays of any strides; D is written in place, in its own.

    Scratch is at most 64 MB, whatever the tensors' size. Calls may run at once from several threads.

    Args:
        plan: What to run.
        threads: Threads for packing and for tiles of small products; default: the processors of this process.

    Raises:
        DTypeError: NumPy cannot compute in the contraction's dtype, or cannot cast it to D's within its kind.
    """

    def __init__(self, plan: GemmPlan, threads: int | None = None) -> None:
        contraction = plan.contraction
        self.plan = plan
        # An epilogue computes in the accumulator's type, in which small integers have not wrapped around yet.
        fused = contraction.epilogue is not None
        self._arithmetic = make_arithmetic(data_type(contraction.dtype).accumulator if fused else contraction.dtype)
        for name, operand in zip("abcd", (contraction.a, contraction.b, contraction.c, contraction.d), strict=True):
            if operand is not None and operand.dtype == "bfloat16":
                raise DTypeError(f"operand {name} is bfloat16, which is computed in float32 here, on copies")
        if not np.can_cast(self._arithmetic.finish, contraction.d.dtype, "same_kind") and not np.can_cast(
            self._arithmetic.compute, contraction.d.dtype, "same_kind"
        ):
            raise DTypeError(f"cannot cast the result from {contraction.dtype} to D's dtype {contraction.d.dtype}")
        self._threads = available_threads() if threads is None else threads
        self._groups = _split(plan)
        self._programs: dict[tuple[bool, tuple[bool, bool, bool]], _Program] = {}
        # An empty sum is 0 whatever it is multiplied by, so alpha keeps its sign and its infinities.
        self._swapped, self._times = plan.swapped, self._groups.times or 1
        self._plain = self._program(with_c=contraction.c is not None)
        self._pairs: NumpyExecutable | None = None
        real = real_pairs(contraction) if isinstance(self._plain, PackedProgram) else None
        if real is not None:
            pairs = NumpyExecutable(make_gemm_plan(real), threads)
            # A loop element by element would go over two numbers at a time.
            self._pairs = pairs if isinstance(pairs._plain, PackedProgram) else None

    @property
    def route(self) -> str:
        """How it runs: one BLAS call, batched BLAS, packed boxes, element-wise, sum, or permutation.

        A product of a real and a complex operand may be one of real numbers.
        """
        return self._plain.route if self._pairs is None else f"{self._pairs.route} on pairs of real numbers"

    @property
    def scratch_bytes(self) -> int:
        """Most scratch that a call holds at one time."""
        return self._plain.scratch_bytes if self._pairs is None else self._pairs.scratch_bytes

    @property
    def explain(self) -> str:
        """The route and its reasons, in one line."""
        program = self._plain if self._pairs is None else self._pairs._plain
        text = f"{self.route}, {program.tiles} tile{'' if program.tiles == 1 else 's'}"
        if isinstance(program, PackedProgram):
            core = program.core
            direct = [n for n, d in zip("ABD", core.direct, strict=True) if d]
            text += f" of {volume(core.m)} x {volume(core.n)} x {volume(core.k)} products"
            text += f"; in place: {', '.join(direct) or 'none'}"
        return text

    def __call__(
        self,
        a: Array,
        b: Array | None,
        c: Array | None,
        d: Array,
        alpha: Any = 1,
        beta: Any = 0,
        extras: Sequence[Array] = (),
    ) -> None:
        """Compute into `d`.

        Args:
            a: The user's first operand, laid out as the contraction says.
            b: The user's second operand, None for a contraction of one.
            c: The added operand (not read where beta is 0), or None. It may be `d` itself.
            d: The result, written in place. It shares no memory with `extras`.
            alpha: Factor of the product.
            beta: Factor of `c`.
            extras: What the epilogue reads, one array for each of the contraction's `extras`.

        Raises:
            OptionError: A scalar does not fit the contraction's dtype, such as a fraction for integers.
        """
        if self._pairs is not None and not (np.imag(alpha) or np.imag(beta)):
            assert b is not None
            added = None if c is None else as_pairs(c)
            self._pairs(as_pairs(a), as_pairs(b), added, as_pairs(d), np.real(alpha), np.real(beta))
            if any(self.plan.contraction.conj):
                conjugate(d, self._threads)
            return
        if alpha is not None and (alpha.__class__ is not int or alpha != 1 or self._times != 1):
            alpha = factor(self._arithmetic, alpha, "alpha", self._times)
        else:
            alpha = None
        if c is None or (beta.__class__ is int and beta == 0) or not np.any(beta):
            c = beta = None
        else:
            beta = factor(self._arithmetic, beta, "beta")
        first, second = (b, a) if self._swapped else (a, b)
        assert first is not None
        aligned = (first.flags.aligned, second is None or second.flags.aligned, d.flags.aligned)
        program = self._program(c is not None, aligned)
        program.run(first, second, c, d, alpha, beta, extras)  # type: ignore[arg-type]

    def _program(self, with_c: bool, aligned: tuple[bool, bool, bool] = (True, True, True)) -> _Program:
        key = (with_c, aligned)
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = self._choose(*key)
        return found

    def _choose(self, with_c: bool, aligned: tuple[bool, bool, bool]) -> _Program:
        """BLAS where a core pays, else element by element; with C, a product never goes to D before C was read.

        NumPy would copy a misaligned operand (A, B, D) as a whole before it went to BLAS.
        """
        plan, groups, arithmetic = self.plan, self._groups, self._arithmetic
        contraction, b = plan.contraction, plan.b
        element_wise = b is None or 0 in contraction.extents or not groups.k
        if element_wise or b is None:
            summed = (*groups.k, *groups.sum_a, *groups.sum_b)
            names = len(groups.batch) + len(groups.m) + len(groups.n) + len(summed)
            if b is None or not summed or 0 in contraction.extents or names <= MAX_LABELS:
                return ElementWiseProgram(plan, groups, arithmetic, self._threads)
        assert b is not None
        work = arithmetic.work
        usable = [
            arithmetic.blas and np.dtype(o.dtype) == work and is_aligned(o, work) and ok
            for o, ok in zip((plan.a, b, contraction.d), aligned, strict=True)
        ]
        possible = (
            usable[0] and not groups.sum_a,
            usable[1] and not groups.sum_b,
            usable[2] and not groups.spread and not with_c,
        )
        ways = [
            (choose_core(groups, arithmetic, (possible[0] and not x.a, possible[1] and not x.b, possible[2])), x)
            for x in conjugations(plan)
        ]
        core, conjugation = min(ways, key=lambda way: way[0].nanoseconds)
        every = (*groups.batch, *groups.m, *groups.n, *groups.k, *groups.sum_a, *groups.sum_b)
        if len(every) <= MAX_LABELS and element_wise_cost(groups, work) < core.nanoseconds:
            return ElementWiseProgram(plan, groups, arithmetic, self._threads)
        return PackedProgram(plan, groups, core, arithmetic, self._threads, with_c, conjugation)


def _split(plan: GemmPlan) -> Groups:
    """The plan's modes by what this executor does with them."""
    unary = plan.b is None
    spread = tuple(s for s in (*plan.m, *plan.n) if not s.strides[A] and not s.strides[B])
    k: list[Strided] = []
    sum_a: list[Strided] = []
    sum_b: list[Strided] = []
    times = 1
    for s in plan.k:
        in_a, in_b = bool(s.strides[A]), bool(s.strides[B])
        if in_a and in_b and not unary:
            k.append(s)
        elif in_a:
            sum_a.append(s)
        elif in_b:
            sum_b.append(s)
        else:
            times *= s.extent
    return Groups(
        plan.l,
        spread,
        tuple(s for s in plan.m if s not in spread),
        tuple(s for s in plan.n if s not in spread),
        tuple(k),
        tuple(sum_a),
        tuple(sum_b),
        times,
    )
