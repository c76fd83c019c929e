"""The rival by hand: transpose, transpose, GEMM, transpose, on NumPy or CuPy arrays or PyTorch tensors.

Owns the choice of the matrix orders that copy the fewest bytes. It uses nothing of gett's planner or kernels, so its
result in a wider type also serves as a reference.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from gett.errors import OutputError, ShapeError, SubscriptsError


@dataclass(frozen=True, slots=True)
class Orders:
    """The order of the modes in each group, and which tensors must be copied for it.

    Attributes:
        l, m, n, k: Labels of each group, slowest first.
        a_view, b_view, d_view: `"mk"`/`"km"` (A), `"nk"`/`"kn"` (B), `"mn"`/`"nm"` (D) where the tensor already lies in
            that order, or None where it must be transposed.
    """

    l: str
    m: str
    n: str
    k: str
    a_view: str | None
    b_view: str | None
    d_view: str | None


def split_subscripts(subscripts: str) -> tuple[str, str, str]:
    """Subscripts of A, B and D of an explicit two-operand string with one character a mode.

    Raises:
        SubscriptsError: Another form, a repeated label, or a label that only one tensor has.
    """
    text = subscripts.replace(" ", "")
    inputs, arrow, d = text.partition("->")
    a, comma, b = inputs.partition(",")
    if not arrow or not comma or "," in b or "." in text:
        raise SubscriptsError(f"a baseline takes 'modes,modes->modes' with explicit output, not {subscripts!r}")
    for name, modes in (("A", a), ("B", b), ("D", d)):
        if len(set(modes)) != len(modes):
            raise SubscriptsError(f"operand {name} of {subscripts!r} repeats a mode; the baselines take no diagonals")
    lonely = [x for x in dict.fromkeys(a + b + d) if (x in a) + (x in b) + (x in d) == 1]
    if lonely:
        raise SubscriptsError(f"mode {lonely[0]!r} of {subscripts!r} occurs in one tensor only; the baselines need two")
    return a, b, d


def choose_orders(a: str, b: str, d: str, sizes: tuple[int, int, int]) -> Orders:
    """The orders of the matrix groups that need the fewest transposed elements.

    Args:
        a: Subscripts of A; `b` and `d` likewise.
        b: Subscripts of B.
        d: Subscripts of D.
        sizes: Elements of A, B and D.
    """

    def ordered(by: str, group: set[str]) -> str:
        return "".join(x for x in by if x in group)

    in_all = set(a) & set(b) & set(d)
    groups = (
        (in_all, (d, a, b)),
        ((set(a) & set(d)) - in_all, (d, a)),
        ((set(b) & set(d)) - in_all, (d, b)),
        ((set(a) & set(b)) - in_all, (a, b)),
    )
    best: tuple[int, Orders] | None = None
    for batch, m, n, k in itertools.product(*({ordered(by, g): None for by in bys} for g, bys in groups)):
        views = (
            _as_view(a, batch, ("m", m), ("k", k)),
            _as_view(b, batch, ("n", n), ("k", k)),
            _as_view(d, batch, ("m", m), ("n", n)),
        )
        copied = sum(size for view, size in zip(views, sizes, strict=True) if view is None)
        if best is None or copied < best[0]:
            best = copied, Orders(batch, m, n, k, *views)
    assert best is not None
    return best[1]


def _as_view(modes: str, batch: str, x: tuple[str, str], y: tuple[str, str]) -> str | None:
    for (name0, first), (name1, second) in ((x, y), (y, x)):
        if modes == batch + first + second:
            return name0 + name1
    return None


class Ttgt:
    """One contraction of C-contiguous arrays, planned and with its buffers allocated once.

    Args:
        subscripts: Explicit two-operand string, e.g. `"akb,jk->jba"`.
        a: First operand, C-contiguous.
        b: Second operand, C-contiguous, of the same dtype.
        xp: The array module of the operands: `numpy`, `cupy` or `torch`.

    Raises:
        SubscriptsError: The subscripts have another form, or do not fit the operands' ranks.
        ShapeError: Two extents of a mode differ.
    """

    def __init__(self, subscripts: str, a: Any, b: Any, xp: Any) -> None:
        self._modes = ma, mb, md = split_subscripts(subscripts)
        extents = _extents(ma, a.shape, mb, b.shape)
        self.shape = tuple(extents[x] for x in md)
        self._extents = extents
        self._xp = xp
        self.orders = o = choose_orders(ma, mb, md, (math.prod(a.shape), math.prod(b.shape), math.prod(self.shape)))
        options = {"dtype": a.dtype} | ({"device": a.device} if hasattr(a, "permute") else {})
        self._a = None if o.a_view else xp.empty(self._shape(o.l, o.m, o.k), **options)
        self._b = None if o.b_view else xp.empty(self._shape(o.l, o.k, o.n), **options)
        self._d = None if o.d_view else xp.empty(self._shape(o.l, o.m, o.n), **options)

    @property
    def extra_bytes(self) -> int:
        """Bytes of the transposed copies."""
        return sum(int(x.nbytes) for x in (self._a, self._b, self._d) if x is not None)

    def __call__(self, a: Any, b: Any, out: Any) -> Any:
        """Contract `a` and `b` into `out` and return it.

        Raises:
            OutputError: `out` is not C-contiguous, or has another shape than D.
        """
        if out.shape != self.shape or not _is_contiguous(out):
            raise OutputError(f"out must be C-contiguous with shape {self.shape}, not {out.shape}")
        o = self.orders
        ma, mb, md = self._modes
        left = self._matrix(a, ma, o.a_view, self._a, o.l, ("m", o.m), ("k", o.k))
        right = self._matrix(b, mb, o.b_view, self._b, o.l, ("k", o.k), ("n", o.n))
        if o.d_view == "nm":
            result = out.reshape(self._shape(o.l, o.n, o.m))
            self._xp.matmul(right.swapaxes(-1, -2), left.swapaxes(-1, -2), out=result)
        elif o.d_view == "mn":
            self._xp.matmul(left, right, out=out.reshape(self._shape(o.l, o.m, o.n)))
        else:
            self._xp.matmul(left, right, out=self._d)
            order = o.l + o.m + o.n
            whole = self._d.reshape([self._extents[x] for x in order])  # type: ignore[union-attr]
            out[...] = _permuted(whole, [order.index(x) for x in md])
        return out

    def _matrix(
        self, x: Any, modes: str, view: str | None, copy: Any, batch: str, row: tuple[str, str], col: tuple[str, str]
    ) -> Any:
        """The operand as (batch, rows, columns): a view where it lies so or transposed, else its copy."""
        if view == row[0] + col[0]:
            return x.reshape(self._shape(batch, row[1], col[1]))
        if view is not None:
            return x.reshape(self._shape(batch, col[1], row[1])).swapaxes(-1, -2)
        order = batch + row[1] + col[1]
        copy.reshape([self._extents[m] for m in order])[...] = _permuted(x, [modes.index(m) for m in order])
        return copy

    def _shape(self, batch: str, rows: str, columns: str) -> tuple[int, ...]:
        def size(labels: str) -> int:
            return math.prod(self._extents[x] for x in labels)

        matrix = (size(rows), size(columns))
        return (size(batch), *matrix) if batch else matrix


def _permuted(x: Any, axes: list[int]) -> Any:
    return x.permute(axes) if hasattr(x, "permute") else x.transpose(axes)


def _is_contiguous(x: Any) -> bool:
    return bool(x.is_contiguous() if hasattr(x, "is_contiguous") else x.flags.c_contiguous)


def _extents(ma: str, shape_a: tuple[int, ...], mb: str, shape_b: tuple[int, ...]) -> dict[str, int]:
    extents: dict[str, int] = {}
    for name, modes, shape in (("A", ma, shape_a), ("B", mb, shape_b)):
        if len(modes) != len(shape):
            raise SubscriptsError(f"operand {name} has rank {len(shape)}, but its subscripts are {modes!r}")
        for mode, extent in zip(modes, shape, strict=True):
            if extents.setdefault(mode, extent) != extent:
                raise ShapeError(f"mode {mode!r} has extent {extents[mode]} in A and {extent} in B")
    return extents
