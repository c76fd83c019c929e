"""The epilogue of a plan on NumPy: its function applied to tiles of the result on their way into D.

Owns the pieces in which a tile is computed, so that the function's intermediate values stay in cache. Knows neither how
a tile was formed nor what its values mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gett.cpu.moving import piece_shape, unit_axis
from gett.cpu.threads import parallel
from gett.cpu.tiles import Part, Tiles
from gett.cpu.views import Array, each, make_view
from gett.epilogue.evaluate import evaluate
from gett.epilogue.types import value_types
from gett.ir.gemm import EXTRA, GemmPlan
from gett.ir.tensors import accumulator
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
        self._function = contraction.epilogue
        compute = accumulator(contraction.dtype)
        self._types = value_types(self._function, compute, [x.dtype for x in contraction.extras])
        self._views = [
            make_view(x, contraction.extents, EXTRA + i, each(dims)) for i, x in enumerate(contraction.extras)
        ]

    def views(self, extras: Sequence[Array]) -> list[Array]:
        """The further tensors, seen as D is."""
        return [view.of(x) for view, x in zip(self._views, extras, strict=True)]

    def store(self, target: Array, result: Array, extras: Sequence[Array], threads: int = 1) -> None:
        """`target[...] = f(result, *extras)`, where the result broadcasts to the tile and the extras have its shape."""
        if target.ndim == 0:
            np.copyto(target, evaluate(self._function, self._types, result, extras), casting="unsafe")
            return
        wide = np.broadcast_to(result, target.shape)
        keep = {unit_axis(x) for x in (target, wide)} - {-1}
        tiles = Tiles(target.shape, piece_shape(target.shape, sorted(keep), PIECE))

        def run(parts: Iterator[Part]) -> None:
            for i in parts:
                values: Any = evaluate(self._function, self._types, wide[i], [x[i] for x in extras])
                with np.errstate(all="ignore"):  # of the conversion to D's dtype, as of everything before
                    np.copyto(target[i], values, casting="unsafe")

        parallel(tiles, run, threads if target.size > _PARALLEL else 1)
