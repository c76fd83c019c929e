"""Running steps one after the other: what they hold is what the plan says, and goes before the next step takes any."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import opt_einsum.testing
import pytest

import gett
from gett.arrays.kinds import NumpyKind
from gett.network.running import Ending, run_steps, turns_of


class Counted(NumpyKind):
    """NumPy arrays whose bytes are counted for as long as they live."""

    def __init__(self) -> None:
        self.held = self.most = 0

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], order: str = "C") -> Any:
        made = super().empty(shape, dtype, order)
        self.held += made.nbytes
        self.most = max(self.most, self.held)
        weakref.finalize(made, self._release, made.nbytes)
        return made

    def _release(self, nbytes: int) -> None:
        self.held -= nbytes


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_memory_goes_before_the_next_step_takes_any(seed: int, watched: bool) -> None:
    spec, shapes = opt_einsum.testing.rand_equation(8, 3, n_out=2, d_min=3, d_max=9, seed=seed)
    plan = gett.plan(spec, *[(s, "float64") for s in shapes])
    kind = Counted()

    def nothing(*_: Any) -> None:
        return None

    turns = turns_of(plan.steps, [None] * len(shapes))
    ending = Ending(None, np.empty(plan.shape))
    arrays = [np.empty(s) for s in shapes]
    written = (lambda x: None) if watched else None
    run_steps(turns, [nothing] * len(turns), kind, arrays, [None] * len(shapes), ending, written)
    assert kind.held == 0
    assert kind.most == plan.intermediate_bytes > 0
