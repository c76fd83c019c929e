"""The epilogue of a plan on NumPy: its function applied to tiles of the result on their way into D.

Owns the pieces in which a tile is computed, so that the function's intermediate values stay in cache. Knows neither how
a tile was formed nor what its values mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gett.cpu.moving import piece_shape, unit_axis
from gett.cpu.threads import parallel
from gett.cpu.tiles import Part, Tiles
from gett.cpu.views import Array, each, make_view
from gett.epilogue.evaluate import Evaluator
from gett.ir.gemm import EXTRA, GemmPlan
from layouts.modes import Strided

#: Elements of a piece: each value of the function is an array of so many.
PIECE = 1 << 14
#: Elements of a tile from which a second thread pays.
_PARALLEL = 1 << 17


class EpilogueProgram:
    """Stores tiles of a result through a plan's epilogue.

    Args:
        plan: With an epilogue.
        dims: The modes of a view of D; the views of the further tensors have the same dimensions.
    """

    def __init__(self, plan: GemmPlan, dims: Sequence[Strided]) -> None:
        contraction = plan.contraction
        assert contraction.epilogue is not None
        self._evaluate = Evaluator(contraction.epilogue, contraction.value_types)
        self._views = [
            make_view(x, contraction.extents, EXTRA + i, each(dims)) for i, x in enumerate(contraction.extras)
        ]

    def views(self, extras: Sequence[Array]) -> list[Array]:
        """The further tensors, seen as D is, with extent 1 where they do not vary: less is computed then."""
        found = [view.of(x) for view, x in zip(self._views, extras, strict=True)]
        return [x[tuple(slice(None) if s else slice(1) for s in x.strides)] for x in found]

    @staticmethod
    def parts(extras: Sequence[Array], part: Sequence[slice]) -> list[Array]:
        """Where `views` are read for a part of D."""
        return [x[tuple(slice(1) if n == 1 else p for n, p in zip(x.shape, part, strict=False))] for x in extras]

    def store(self, target: Array, result: Array, extras: Sequence[Array], threads: int = 1) -> None:
        """`target[...] = f(result, *extras)`, where the result and the extras broadcast to the tile.

        The result may be the tile itself.
        """
        if target.ndim == 0:
            np.copyto(target, self._evaluate(result, extras), casting="unsafe")
            return
        wide = np.broadcast_to(result, target.shape)
        tiles = Tiles(target.shape, _piece(target, wide))

        def run(parts: Iterator[Part]) -> None:
            for i in parts:
                values = self._evaluate(wide[i], self.parts(extras, i))
                with np.errstate(all="ignore"):  # of the conversion to D's dtype, as of everything before
                    np.copyto(target[i], values, casting="unsafe")

        parallel(tiles, run, threads if target.size > _PARALLEL else 1)


def _piece(target: Array, result: Array) -> tuple[int, ...]:
    """Extents of a piece: whole runs of the faster axes, or of both arrays' where they run along different ones."""
    keep = {unit_axis(x) for x in (target, result)} - {-1}
    if len(keep) > 1:
        return piece_shape(target.shape, sorted(keep), PIECE)
    piece, rest = list(target.shape), target.size
    for i in sorted(range(target.ndim), key=lambda i: -abs(target.strides[i])):
        if rest <= PIECE:
            break
        rest //= piece[i]
        piece[i] = min(piece[i], max(1, PIECE // rest))
        rest *= piece[i]
    return tuple(piece)
