"""Contractions as batches of matrix products, packed where BLAS cannot read and scattered where it cannot write.

Owns the loop over tiles of a `Core`. Knows views and arithmetic, not how a core is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from gett.cpu.arithmetic import Arithmetic, finish, multiply
from gett.cpu.blas import can_limit, one_thread
from gett.cpu.boxes import core_blocks, cut
from gett.cpu.conjugation import Conjugation, conjugate
from gett.cpu.core import Core, Groups
from gett.cpu.epilogue import EpilogueProgram
from gett.cpu.moving import add_up, move
from gett.cpu.threads import parallel, pieces
from gett.cpu.tiles import Part
from gett.cpu.views import Array, Modes, View, each, make_view, nearest_mode
from gett.ir.contraction import Operand
from gett.ir.gemm import A, B, C, D, GemmPlan
from layouts.modes import Strided, volume

_ALL = slice(None)
#: Elementary products up to which OpenBLAS keeps to one thread of itself; up to which many are better off so.
_SMALL_PRODUCT, _MIDDLING_PRODUCT = 1 << 18, 1 << 26
#: Nanoseconds from which starting threads pays.
_WORTH_THREADS = 500_000.0


class PackedProgram:
    """Runs one core over arrays: decided once, called many times. Not tied to any array; safe to call from threads."""

    def __init__(
        self,
        plan: GemmPlan,
        groups: Groups,
        core: Core,
        arithmetic: Arithmetic,
        threads: int,
        with_c: bool,
        conjugation: Conjugation,
    ) -> None:
        self.arithmetic, self.core, self._conjugation = arithmetic, core, conjugation
        self._conj_d = conjugation.d
        loops = (*groups.batch, *groups.spread, *core.loops_m, *core.loops_n)
        size = volume(core.m) * volume(core.n) * volume(core.k)
        middling = _SMALL_PRODUCT < size <= _MIDDLING_PRODUCT and volume(loops) >= 8 * threads and can_limit()
        worth = core.nanoseconds > _WORTH_THREADS and threads > 1
        # Either BLAS spreads a large product over the cores, or tiles of small products are spread over threads.
        self._tile_threads = threads if loops and worth and (size <= _SMALL_PRODUCT or middling) else 1
        self._limit_blas = middling and self._tile_threads > 1
        # BLAS's own threads spin for a while after each call: packing leaves them half of the cores.
        self._move_threads = 1 if self._tile_threads > 1 or not worth else max(1, threads // 2)
        blocks = core_blocks(groups, core, arithmetic, self._tile_threads, with_c)
        self._loops = loops
        m, n, k = core.m[::-1], core.n[::-1], core.k[::-1]
        self._dims_a: tuple[Strided | None, ...] = (*_in(loops, A), *m, *k, *groups.sum_a)
        self._dims_b: tuple[Strided | None, ...] = (*_in(loops, B), *k, *n, *groups.sum_b)
        self._dims_d = (*loops, *m, *n)
        self._sums = (len(groups.sum_a), len(groups.sum_b))
        extents, b = plan.contraction.extents, plan.b
        assert b is not None
        self._view_a = make_view(plan.a, extents, A, each(self._dims_a))
        self._view_b = make_view(b, extents, B, each(self._dims_b))
        self._view_d = make_view(plan.contraction.d, extents, D, each(self._dims_d))
        c = plan.contraction.c
        self._view_c = None if c is None else make_view(c, extents, C, each(self._dims_d))
        self._epilogue = None if plan.contraction.epilogue is None else EpilogueProgram(plan, self._dims_d)
        self._flip_a = _innermost(plan, groups, A, core.m)
        self._flip_b = _innermost(plan, groups, B, core.k)
        self._flip_d = _innermost(plan, groups, D, core.m)
        # The operand that belongs to the inner side is packed again and again: one that is in place, or the smaller.
        sides = [(*core.loops_m, *m), (*core.loops_n, *n)]
        inner_m = volume(core.n) * volume(core.loops_n) > volume(core.m) * volume(core.loops_m)
        if core.direct[A] if core.direct[A] != core.direct[B] else inner_m:
            sides.reverse()
        self._order = (*groups.batch, *groups.spread, *sides[0], *sides[1])
        self._tiles = cut(self._order, blocks)
        self._k_order = k
        self._k_tiles = cut(k, blocks)
        self._whole: tuple[_Whole, _Whole, _Whole] | None = None
        # Where all of it is one tile whose product is final, nothing is left to work out at a call.
        final = all(core.direct) or (arithmetic.blas and self._epilogue is None)
        if self._tiles.count == self._k_tiles.count == 1 and final and not (groups.spread or any(self._sums)):
            tensors = ((plan.a, core.m, core.k), (b, core.k, core.n), (plan.contraction.d, core.m, core.n))
            flips = (self._flip_a, self._flip_b, self._flip_d)
            self._whole = tuple(  # type: ignore[assignment]
                _Whole.make(operand, extents, t, (_in(loops, t), rows, columns), core.direct[t], flips[t])
                for t, (operand, rows, columns) in zip((A, B, D), tensors, strict=True)
            )

    @property
    def route(self) -> str:
        """What it amounts to."""
        if not all(self.core.direct):
            return "packed boxes"
        return "batched BLAS" if self._loops else "one BLAS call"

    @property
    def tiles(self) -> int:
        """Number of tiles of D."""
        return self._tiles.count

    @property
    def scratch_bytes(self) -> int:
        """Most scratch that a call holds at one time: packed tiles, partial sums and the limbs of integers."""
        arithmetic, core = self.arithmetic, self.core
        item, limbs = arithmetic.work.itemsize, arithmetic.limbs
        if self._whole is not None and self._view_c is None:
            return item * sum(math.prod(x.stack) for x in self._whole if not x.direct)
        sizes = dict(zip((*self._order, *self._k_order), (*self._tiles.blocks, *self._k_tiles.blocks), strict=True))
        a, b = (
            math.prod(sizes[s] for s in dims if s in sizes)
            for dims in (self._dims_a[: -self._sums[0] or None], self._dims_b[: -self._sums[1] or None])
        )
        d = math.prod(sizes[s] for s in self._dims_d if s.strides[A] or s.strides[B])
        rooms = sum(n for n, direct in zip((a, b, d), core.direct, strict=True) if not direct)
        rooms += d if self._k_tiles.count > 1 else 0
        found = item * rooms
        if limbs and min(volume(core.m), volume(core.n), volume(core.k)) >= 8:
            found += 8 * limbs * (a + b) + max((24 if limbs > 1 else 16) * d, item * max(a, b))
        if self._view_c is not None or arithmetic.finish != arithmetic.work:
            found += arithmetic.finish.itemsize * d
        return found * self._tile_threads

    def run(
        self, a: Array, b: Array, c: Array | None, d: Array, alpha: Any, beta: Any, extras: Sequence[Array] = ()
    ) -> None:
        """`d = alpha * a b + beta * c`; `a`, `b` in the plan's roles, scalars of the finishing dtype or None for 1.

        An epilogue is applied to each tile of D, with its further tensors `extras`.
        """
        if self._whole is not None and c is None:
            whole_a, whole_b, whole_d = self._whole
            out = whole_d.view.of(d) if whole_d.direct else whole_d.room(self.arithmetic)
            threads = self._move_threads
            np.matmul(
                whole_a.load(a, self.arithmetic, self._conjugation.a, threads),
                whole_b.load(b, self.arithmetic, self._conjugation.b, threads),
                out=out,
            )
            if self._conj_d:
                conjugate(out, self._move_threads)
            if alpha is not None:
                np.multiply(out, alpha, out=out)
            if not whole_d.direct:
                move(whole_d.view.of(d), out.reshape(whole_d.view.shape), threads)
            elif self._epilogue is not None:
                whole = self._view_d.of(d)
                self._epilogue.store(whole, whole, self._epilogue.views(extras), threads)
            return
        views = (
            self._view_a.of(a),
            self._view_b.of(b),
            self._view_d.of(d),
            None if c is None or self._view_c is None else self._view_c.of(c),
        )
        further = [] if self._epilogue is None else self._epilogue.views(extras)

        def work(parts: Iterator[Part]) -> None:
            self._run(parts, *views, alpha, beta, further)

        with one_thread() if self._limit_blas else nullcontext():
            parallel(self._tiles, work, self._tile_threads)

    def _run(
        self,
        tiles: Iterator[Part],
        a: Array,
        b: Array,
        d: Array,
        c: Array | None,
        alpha: Any,
        beta: Any,
        extras: Sequence[Array],
    ) -> None:
        pack_a = _Packer(self, a, A, self._flip_a, self._conjugation.a)
        pack_b = _Packer(self, b, B, self._flip_b, self._conjugation.b)
        room_d, room_part = _Room(self.arithmetic), _Room(self.arithmetic)
        direct = self.core.direct[D]
        for tile in tiles:
            where = dict(zip(self._order, tile, strict=True))
            # The ellipsis keeps an array where D has no modes.
            part: tuple[Any, ...] = (*(where[s] for s in self._dims_d), ...)
            target = d[part]
            loop_shape = tuple(1 if s.strides[A] == s.strides[B] == 0 else _length(where[s], s) for s in self._loops)
            m_shape = tuple(_length(where[s], s) for s in self.core.m[::-1])
            n_shape = tuple(_length(where[s], s) for s in self.core.n[::-1])
            matrix = (*loop_shape, math.prod(m_shape), math.prod(n_shape))
            out = target.reshape(matrix) if direct else room_d.take(matrix, self._flip_d)
            for i, ab in enumerate(self._k_parts(where, pack_a, pack_b)):
                if i == 0:
                    multiply(self.arithmetic, *ab, out)
                else:
                    summand = room_part.take(matrix, self._flip_d)
                    multiply(self.arithmetic, *ab, summand)
                    np.add(out, summand, out=out)
            if self._conj_d:
                conjugate(out, self._move_threads)
            if direct:
                if alpha is not None:
                    np.multiply(out, alpha, out=out)
                if self._epilogue is not None:
                    self._epilogue.store(target, target, self._epilogue.parts(extras, part), self._move_threads)
                continue
            added = None if c is None else c[part]
            # Splitting a dimension never copies, whichever of the two runs fastest.
            acc = out.reshape((*loop_shape, *m_shape, *n_shape))
            result = finish(self.arithmetic, acc, alpha, added, beta)
            if self._epilogue is not None:
                self._epilogue.store(target, result, self._epilogue.parts(extras, part), self._move_threads)
            else:
                move(target, np.broadcast_to(result, target.shape), self._move_threads)

    def _k_parts(self, where: dict[Strided, slice], pack_a: _Packer, pack_b: _Packer) -> Iterator[tuple[Array, Array]]:
        for part in pieces(self._k_tiles):
            where.update(zip(self._k_order, part, strict=True))
            yield pack_a.load(where), pack_b.load(where)


@dataclass(frozen=True, slots=True)
class _Whole:
    """One tensor of a product that is a single tile.

    Attributes:
        view: The stack of matrices where BLAS takes it in place, else a dimension for each mode.
        stack: Shape of the stack of matrices.
        direct: Whether BLAS takes it in place.
        flip: Whether the matrices run along their first dimension in scratch.
    """

    view: View
    stack: tuple[int, ...]
    direct: bool
    flip: bool

    @classmethod
    def make(
        cls,
        operand: Operand,
        extents: Sequence[int],
        tensor: int,
        modes: tuple[tuple[Strided | None, ...], Modes, Modes],
        direct: bool,
        flip: bool,
    ) -> _Whole:
        loops, rows, columns = modes
        dims = [rows, columns] if direct else each((*rows[::-1], *columns[::-1]))
        stack = (*(1 if s is None else s.extent for s in loops), volume(rows), volume(columns))
        return cls(make_view(operand, extents, tensor, [*each(loops), *dims]), stack, direct, flip)

    def room(self, arithmetic: Arithmetic) -> Array:
        return _Room(arithmetic).take(self.stack, self.flip)

    def load(self, array: Array, arithmetic: Arithmetic, conjugated: bool, threads: int) -> Array:
        source = self.view.of(array)
        if self.direct:
            return source
        packed = self.room(arithmetic)
        move(packed.reshape(source.shape), source, threads)
        if conjugated:
            conjugate(packed, threads)
        return packed


class _Room:
    """Reusable scratch for one tile, grown to the largest asked for."""

    __slots__ = ("_dtype", "_flat")

    def __init__(self, arithmetic: Arithmetic) -> None:
        self._dtype, self._flat = arithmetic.work, np.empty(0, arithmetic.work)

    def take(self, shape: tuple[int, ...], flip: bool) -> Array:
        """Scratch for a stack of matrices; `flip` stores each with its rows contiguous along the first dimension."""
        size = math.prod(shape)
        if self._flat.size < size:
            self._flat = np.empty(size, self._dtype)
        if flip:
            return self._flat[:size].reshape(*shape[:-2], shape[-1], shape[-2]).swapaxes(-1, -2)
        return self._flat[:size].reshape(shape)


class _Packer:
    """Loads tiles of one operand as stacks of matrices, packing where BLAS cannot read them; remembers the last."""

    __slots__ = (
        "_array",
        "_conjugated",
        "_dims",
        "_direct",
        "_flip",
        "_key",
        "_loaded",
        "_program",
        "_room",
        "_split",
        "_sums",
    )

    def __init__(self, program: PackedProgram, array: Array, tensor: int, flip: bool, conjugated: bool) -> None:
        self._program, self._array, self._flip, self._conjugated = program, array, flip, conjugated
        self._dims = program._dims_a if tensor == A else program._dims_b
        self._direct = program.core.direct[tensor]
        self._sums = program._sums[tensor]
        self._split = len(program.core.m if tensor == A else program.core.k)
        self._room = _Room(program.arithmetic)
        self._key: Part | None = None
        self._loaded = array

    def load(self, where: dict[Strided, slice]) -> Array:
        key = tuple(where.get(s, _ALL) if s is not None else _ALL for s in self._dims)
        if key != self._key:
            self._key, self._loaded = key, self._pack(self._array[key])
        return self._loaded

    def _pack(self, source: Array) -> Array:
        loops = len(self._program._loops)
        kept = source.shape[: source.ndim - self._sums]
        rows, columns = kept[loops : loops + self._split], kept[loops + self._split :]
        matrix = (*kept[:loops], math.prod(rows), math.prod(columns))
        if self._direct:
            return source.reshape(matrix)
        packed = self._room.take(matrix, self._flip)
        target = packed.reshape(kept)
        if self._sums:
            add_up(target, source, len(kept))
        else:
            move(target, source, self._program._move_threads)
        if self._conjugated:
            conjugate(packed, self._program._move_threads)
        return packed


def _length(part: slice, mode: Strided) -> int:
    return int(min(part.stop, mode.extent) - part.start)


def _in(loops: Modes, tensor: int) -> tuple[Strided | None, ...]:
    """The loops as dimensions of one operand: None where it does not vary."""
    return tuple(s if s.strides[tensor] else None for s in loops)


def _innermost(plan: GemmPlan, groups: Groups, tensor: int, rows: Modes) -> bool:
    """Whether the tensor's unit-stride mode is among the rows, so that packed matrices should run along these."""
    every = (*groups.batch, *groups.spread, *groups.m, *groups.n, *groups.k)
    unit = nearest_mode(every, tensor)
    return unit in rows
