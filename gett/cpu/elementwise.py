"""Contractions with no matrix product worth BLAS: element-wise and outer products, tiny sums, and one operand.

Owns the loop over pieces of D, each formed by a NumPy function in scratch that stays in cache (or in D itself).
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gett.cpu.arithmetic import Arithmetic, finish
from gett.cpu.boxes import Blocks, cut, spread_over_threads
from gett.cpu.conjugation import conjugate, conjugations
from gett.cpu.core import Groups, runs_alike
from gett.cpu.epilogue import EpilogueProgram
from gett.cpu.moving import RUN, add_pieces, linear_like, move
from gett.cpu.threads import parallel
from gett.cpu.tiles import Part, Tiles, call_blocks
from gett.cpu.views import Array, Modes, View, each, make_view, nearest_mode
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.ir.tensors import NUMPY_EINSUM
from layouts.modes import Strided, volume

_ALL = slice(None)
#: Modes that `numpy.einsum` can name.
MAX_LABELS = len(string.ascii_letters)
#: Elements in one piece of D.
PIECE = 1 << 16
#: Elementary operations of a piece whose factor is conjugated in a copy.
CONJUGATED = 1 << 18
#: Elementary operations from which starting threads pays.
_WORTH_THREADS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Cuts:
    """How D and the sums are cut.

    Attributes:
        d, sums: Pieces of D, and of the summed modes.
        single, whole: Whether D is one piece, and whether the sums are.
    """

    d: Tiles
    sums: Tiles
    single: bool
    whole: bool


class ElementWiseProgram:
    """`d = alpha * f(a, b) + beta * c` piece by piece, where f is a NumPy function of views of the plan's modes.

    An epilogue is applied to each piece.
    """

    def __init__(self, plan: GemmPlan, groups: Groups, arithmetic: Arithmetic, threads: int) -> None:
        self.arithmetic = arithmetic
        contraction, extents = plan.contraction, plan.contraction.extents
        self._conjugation = conjugations(plan)[0]
        self._copies, self._conj_d = self._conjugation.a or self._conjugation.b, self._conjugation.d
        free = (*groups.batch, *groups.m, *groups.n)
        self._summed = (*groups.k, *groups.sum_a, *groups.sum_b)
        self._empty = any(s.extent == 0 for s in self._summed) or groups.times == 0
        free = _slowest_first(free, D)
        self._spread = groups.spread
        self._dims_d = (*groups.spread, *free)
        ka, kb = (*groups.k, *groups.sum_a), (*groups.k, *groups.sum_b)
        unary = plan.b is None
        products = not unary and not self._summed
        self._dims_a = (*_varying(free, A, fill=products), *ka)
        self._dims_b = (*_varying(free, B, fill=products), *kb)
        self._view_a = make_view(plan.a, extents, A, each(self._dims_a))
        self._view_b = None if plan.b is None else make_view(plan.b, extents, B, each(self._dims_b))
        self._view_d = make_view(contraction.d, extents, D, each(self._dims_d))
        self._view_c: View | None = None
        if contraction.c is not None:
            self._view_c = make_view(contraction.c, extents, C, each(self._dims_d))
        self._epilogue = None if contraction.epilogue is None else EpilogueProgram(plan, self._dims_d)
        own = np.dtype(contraction.d.dtype) == arithmetic.finish and not groups.spread
        self._direct = own and self._epilogue is None
        if unary:
            self._kind = "sum" if self._summed or self._empty else "permutation"
        else:
            self._kind = "multiply" if products else "einsum"
        self._spelled = ""
        if self._kind == "einsum" and not self._empty:
            letters = dict(zip((*free, *self._summed), string.ascii_letters, strict=False))
            a, b, d = ("".join(letters[s] for s in dims if s) for dims in (self._dims_a, self._dims_b, free))
            self._spelled = f"{a},{b}->{d}"
        work = volume(free) * volume(groups.spread) * volume(self._summed)
        self._threads = threads if work >= _WORTH_THREADS else 1
        self._nothing = 0 in contraction.shape_d
        self._cuts = self._bound(self._pieces(work))
        # Where every tensor runs alike and no scratch is needed, larger pieces are as good and cost less of Python.
        alike = not self._nothing and self._kind != "permutation" and runs_alike((*self._dims_d, *self._summed))
        self._large_cuts = self._bound(self._shares()) if alike else self._cuts

    def _pieces(self, work: int) -> Blocks:
        """Pieces of D of about `PIECE` elements that keep a run of each tensor's unit-stride mode."""
        blocks = {s: s.extent for s in self._dims_d}
        if work > 2 * PIECE:
            units = {nearest_mode(self._dims_d, t) for t in (A, B, D)}
            for modes, least in (
                ([s for s in self._dims_d if s not in units], 1),
                ([s for s in self._dims_d if s in units], RUN),
            ):
                while modes and math.prod(blocks.values()) > PIECE:
                    longest = max(modes, key=lambda s: blocks[s])
                    if blocks[longest] <= least:
                        break
                    blocks[longest] = max(least, -(-blocks[longest] // 2))
        return blocks

    def _shares(self) -> Blocks:
        """D cut along its slowest modes into a few pieces a thread."""
        blocks = {s: s.extent for s in self._dims_d}
        spread_over_threads(self._dims_d if self._threads > 1 else (), blocks, self._threads)
        return blocks

    def _bound(self, blocks: Blocks) -> _Cuts:
        """Pieces of D, and of the sums, that one call of a NumPy function may go over.

        A factor's part of a piece is copied where it is conjugated, so those pieces are small.
        """
        most = CONJUGATED if self._copies else None
        modes = (*self._dims_d, *self._summed)
        extents = [blocks.get(s, s.extent) for s in modes]
        strides = [abs(s.strides[A]) + abs(s.strides[B]) for s in modes]
        found = dict(zip(modes, call_blocks(extents, strides, len(self._dims_d), most), strict=True))
        d, sums = cut(self._dims_d, found), cut(self._summed, found)
        return _Cuts(d, sums, d.count == 1, sums.count == 1)

    @property
    def route(self) -> str:
        """What it amounts to."""
        return self._kind if self._kind in ("sum", "permutation") else "element-wise"

    @property
    def tiles(self) -> int:
        """Number of pieces of D."""
        return self._cuts.d.count

    @property
    def scratch_bytes(self) -> int:
        """Most scratch that a call holds at one time: the pieces that are not formed in D."""
        if self._nothing or (self._direct and self._view_c is None and not self._empty):
            return 0
        if self._kind == "permutation" and self._view_c is None and self._epilogue is None:
            return 0
        blocks = dict(zip(self._dims_d, self._cuts.d.blocks, strict=True))
        piece = math.prod(n for s, n in blocks.items() if s not in self._spread)
        pieces = 1 if self._view_c is None else 2
        return piece * pieces * self.arithmetic.finish.itemsize * (1 if self._cuts.single else self._threads)

    def run(
        self,
        a: Array,
        b: Array | None,
        c: Array | None,
        d: Array,
        alpha: Any,
        beta: Any,
        extras: Sequence[Array] = (),
    ) -> None:
        """`d = alpha * f(a, b) + beta * c`; `a`, `b` in the plan's roles, scalars of the finishing dtype or None."""
        if self._nothing:
            return
        av, dv = self._view_a.of(a), self._view_d.of(d)
        bv = None if b is None or self._view_b is None else self._view_b.of(b)
        cv = None if c is None or self._view_c is None else self._view_c.of(c)
        in_place = cv is None and self._direct and not self._empty
        xs = [] if self._epilogue is None else self._epilogue.views(extras)
        if self._kind == "permutation" and cv is None and alpha is None and not self._empty and self._epilogue is None:
            move(dv, np.broadcast_to(av, dv.shape), self._threads)
            if self._conj_d:
                conjugate(dv, self._threads)
            return
        cuts = self._large_cuts if in_place else self._cuts
        if cuts.single:
            self._form_piece(cuts, in_place, av, bv, cv, dv, alpha, beta, xs)
            return

        def work(parts: Iterator[Part]) -> None:
            for part in parts:
                where = dict(zip(self._dims_d, part, strict=True))
                part_a, part_b = av[_index(self._dims_a, where)], bv
                if bv is not None:
                    part_b = bv[_index(self._dims_b, where)]
                part_c = None if cv is None else cv[part]
                further = EpilogueProgram.parts(xs, part)
                self._form_piece(cuts, in_place, part_a, part_b, part_c, dv[part], alpha, beta, further)

        parallel(cuts.d, work, self._threads)

    def _form_piece(
        self,
        cuts: _Cuts,
        in_place: bool,
        a: Array,
        b: Array | None,
        c: Array | None,
        target: Array,
        alpha: Any,
        beta: Any,
        extras: Sequence[Array],
    ) -> None:
        if in_place:
            self._form(cuts, a, b, target)
            if self._conj_d:
                conjugate(target)
            if alpha is not None:
                np.multiply(target, alpha, out=target)
            return
        if self._empty:
            acc: Array = np.zeros(target.shape[len(self._spread) :], self.arithmetic.finish)
        else:
            acc = np.asarray(self._form(cuts, a, b, None))
            if self._conj_d:
                conjugate(acc)
        result = finish(self.arithmetic, acc, alpha, c, beta)
        if self._epilogue is not None:
            self._epilogue.store(target, result, extras)
        else:
            np.copyto(target, result, casting="unsafe")

    def _form(self, cuts: _Cuts, a: Array, b: Array | None, out: Array | None) -> Array:
        dtype = self.arithmetic.finish
        result: Array
        if self._kind == "multiply":
            assert b is not None
            if self._copies:
                a, b = self._conjugated(a, b)
            result = np.multiply(a, b, out=out, dtype=dtype, casting="unsafe")
        elif self._kind == "permutation":
            result = linear_like(a, dtype) if out is None else out
            np.copyto(result, a, casting="unsafe")
        elif cuts.whole:
            result = self._sum(a, b, out)
        else:

            def form(part: Part, out: Array | None) -> Array:
                where = dict(zip(self._summed, part, strict=True))
                part_b = None if b is None else b[_index(self._dims_b, where)]
                return self._sum(a[_index(self._dims_a, where)], part_b, out)

            result = add_pieces(cuts.sums, form, out)
        return result

    def _sum(self, a: Array, b: Array | None, out: Array | None) -> Array:
        dtype = self.arithmetic.finish
        result: Array
        if b is not None:
            if self._copies:
                a, b = self._conjugated(a, b)
            result = NUMPY_EINSUM(self._spelled, a, b, out=out, dtype=dtype, casting="unsafe")
        else:
            axes = tuple(range(a.ndim - len(self._summed), a.ndim))
            reduce = np.logical_or.reduce if dtype.kind == "b" else np.add.reduce
            result = reduce(a, axis=axes, dtype=dtype, out=out)
        return result

    def _conjugated(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Parts of A and B, of which one is conjugated in a copy."""
        conj = self._conjugation
        return np.conjugate(a) if conj.a else a, np.conjugate(b) if conj.b else b


def _index(dims: Sequence[Strided | None], where: dict[Strided, slice]) -> tuple[slice, ...]:
    """The part of a view that lies within the ranges of some modes."""
    return tuple(where.get(s, _ALL) if s else _ALL for s in dims)


def _slowest_first(modes: Modes, tensor: int) -> Modes:
    return tuple(sorted(modes, key=lambda s: -abs(s.strides[tensor])))


def _varying(modes: Modes, tensor: int, fill: bool) -> tuple[Strided | None, ...]:
    """The modes along which the tensor varies, the others as None (extent 1, to broadcast) or left out."""
    return tuple(s if s.strides[tensor] else None for s in modes if fill or s.strides[tensor])
