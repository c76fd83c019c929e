"""Contractions with no matrix product worth BLAS: element-wise and outer products, tiny sums, and one operand.

Owns the loop over pieces of D, each formed by a NumPy function in scratch that stays in cache (or in D itself).
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gett.cpu.arithmetic import Arithmetic, finish
from gett.cpu.boxes import cuts, spread_over_threads
from gett.cpu.core import Groups, runs_alike
from gett.cpu.moving import RUN, linear_like, move, parallel
from gett.cpu.views import Array, Modes, View, each, make_view, unit_mode, volume
from gett.plan import A, B, C, D, GemmPlan
from layouts.modes import Strided

#: Modes that `numpy.einsum` can name.
MAX_LABELS = len(string.ascii_letters)
#: Elements in one piece of D.
PIECE = 1 << 16
#: Elementary operations from which starting threads pays.
_WORTH_THREADS = 1 << 20


class ElementWiseProgram:
    """`d = alpha * f(a, b) + beta * c` piece by piece, where f is a NumPy function of views of the plan's modes."""

    def __init__(self, plan: GemmPlan, groups: Groups, arithmetic: Arithmetic, threads: int) -> None:
        self.arithmetic = arithmetic
        contraction, extents = plan.contraction, plan.contraction.extents
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
        self._direct = np.dtype(contraction.d.dtype) == arithmetic.finish and not groups.spread
        if unary:
            self._kind = "sum" if self._summed else "permutation"
        else:
            self._kind = "multiply" if products else "einsum"
        self._spelled = ""
        if self._kind == "einsum":
            letters = dict(zip((*free, *self._summed), string.ascii_letters, strict=False))
            a, b, d = ("".join(letters[s] for s in dims if s) for dims in (self._dims_a, self._dims_b, free))
            self._spelled = f"{a},{b}->{d}"
        work = volume(free) * volume(groups.spread) * volume(self._summed)
        self._threads = threads if work >= _WORTH_THREADS else 1
        empty = 0 in contraction.shape_d
        self._tiles = [] if empty else self._cut(work)
        # Where every tensor runs alike and no scratch is needed, larger pieces are as good and cost less of Python.
        alike = not empty and self._kind != "permutation" and runs_alike((*self._dims_d, *self._summed))
        self._large_tiles = self._share_out() if alike else self._tiles

    def _cut(self, work: int) -> list[tuple[slice, ...]]:
        """Pieces of D of about `PIECE` elements that keep a run of each tensor's unit-stride mode."""
        blocks = {s: s.extent for s in self._dims_d}
        if work > 2 * PIECE:
            units = {unit_mode(self._dims_d, t) for t in (A, B, D)}
            for modes, least in (
                ([s for s in self._dims_d if s not in units], 1),
                ([s for s in self._dims_d if s in units], RUN),
            ):
                while modes and math.prod(blocks.values()) > PIECE:
                    longest = max(modes, key=lambda s: blocks[s])
                    if blocks[longest] <= least:
                        break
                    blocks[longest] = max(least, -(-blocks[longest] // 2))
        return cuts(self._dims_d, blocks)

    def _share_out(self) -> list[tuple[slice, ...]]:
        """D cut along its slowest modes into a few pieces a thread."""
        blocks = {s: s.extent for s in self._dims_d}
        spread_over_threads(self._dims_d if self._threads > 1 else (), blocks, self._threads)
        return cuts(self._dims_d, blocks)

    @property
    def route(self) -> str:
        """What it amounts to."""
        return self._kind if self._kind in ("sum", "permutation") else "element-wise"

    @property
    def tiles(self) -> int:
        """Number of pieces of D."""
        return len(self._tiles)

    def run(self, a: Array, b: Array | None, c: Array | None, d: Array, alpha: Any, beta: Any) -> None:
        """`d = alpha * f(a, b) + beta * c`; `a`, `b` in the plan's roles, scalars of the finishing dtype or None."""
        if not self._tiles:
            return
        av, dv = self._view_a.of(a), self._view_d.of(d)
        bv = None if b is None or self._view_b is None else self._view_b.of(b)
        cv = None if c is None or self._view_c is None else self._view_c.of(c)
        in_place = cv is None and self._direct and not self._empty
        if self._kind == "permutation" and cv is None and alpha is None and not self._empty:
            move(dv, np.broadcast_to(av, dv.shape), self._threads)
            return
        tiles = self._large_tiles if in_place else self._tiles
        if len(tiles) == 1:
            self._form_piece(in_place, av, bv, cv, dv, alpha, beta)
            return
        share = -(-len(tiles) // (4 * self._threads))
        jobs: list[Callable[[], None]] = [
            partial(self._pieces, tiles[i : i + share], in_place, av, bv, cv, dv, alpha, beta)
            for i in range(0, len(tiles), share)
        ]
        parallel(jobs, self._threads)

    def _pieces(
        self,
        tiles: list[tuple[slice, ...]],
        in_place: bool,
        a: Array,
        b: Array | None,
        c: Array | None,
        d: Array,
        alpha: Any,
        beta: Any,
    ) -> None:
        for tile in tiles:
            where = dict(zip(self._dims_d, tile, strict=True))
            part_a = a[tuple(where.get(s, slice(None)) if s else slice(None) for s in self._dims_a)]
            part_b = b
            if b is not None:
                part_b = b[tuple(where.get(s, slice(None)) if s else slice(None) for s in self._dims_b)]
            self._form_piece(in_place, part_a, part_b, None if c is None else c[tile], d[tile], alpha, beta)

    def _form_piece(
        self,
        in_place: bool,
        a: Array,
        b: Array | None,
        c: Array | None,
        target: Array,
        alpha: Any,
        beta: Any,
    ) -> None:
        if in_place:
            self._form(a, b, target)
            if alpha is not None:
                np.multiply(target, alpha, out=target)
            return
        if self._empty:
            acc: Array = np.zeros(target.shape[len(self._spread) :], self.arithmetic.finish)
        else:
            acc = np.asarray(self._form(a, b, None))
        result = finish(self.arithmetic, acc, alpha, c, beta)
        np.copyto(target, result, casting="unsafe")

    def _form(self, a: Array, b: Array | None, out: Array | None) -> Array:
        dtype = self.arithmetic.finish
        result: Array
        if self._kind == "multiply":
            assert b is not None
            result = np.multiply(a, b, out=out, dtype=dtype, casting="unsafe")
        elif self._kind == "einsum":
            assert b is not None
            result = np.einsum(self._spelled, a, b, out=out, dtype=dtype, casting="unsafe")
        elif self._kind == "sum":
            axes = tuple(range(a.ndim - len(self._summed), a.ndim))
            reduce: Callable[..., Array] = np.logical_or.reduce if dtype.kind == "b" else np.add.reduce
            result = reduce(a, axis=axes, dtype=dtype, out=out)
        else:
            result = linear_like(a, dtype) if out is None else out
            np.copyto(result, a, casting="unsafe")
        return result


def _slowest_first(modes: Modes, tensor: int) -> Modes:
    return tuple(sorted(modes, key=lambda s: -abs(s.strides[tensor])))


def _varying(modes: Modes, tensor: int, fill: bool) -> tuple[Strided | None, ...]:
    """The modes along which the tensor varies, the others as None (extent 1, to broadcast) or left out."""
    return tuple(s if s.strides[tensor] else None for s in modes if fill or s.strides[tensor])
