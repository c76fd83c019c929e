"""Which of many cases are quick tests: a few, named by hand or chosen by their parts. The others are slow ones.

Slow cases take turns where a run has time for a share of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from tests.spec_parts import coarse
from tests.specs import Spec, covering, few_specs, specs

few_or_every = pytest.mark.parametrize(
    "specs", [few_specs, pytest.param(specs, marks=pytest.mark.slow)], ids=["few", "every"]
)
"""A test of families of kernels, which takes `specs` as an argument: of their first cases in a quick test."""


def slow_but(cases: Iterable[Any], quick: Callable[[Any], bool] | Sequence[Any]) -> list[Any]:
    """The cases as parameters of a test; those that are not quick are slow.

    Args:
        cases: Each a value, or a tuple of values.
        quick: The quick cases, or whether a case is one.
    """
    every = list(cases)
    chosen = [quick(case) if callable(quick) else case in quick for case in every]
    assert any(chosen)
    assert callable(quick) or sum(chosen) == len(quick), "a quick case is none of the cases"
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[] if fast else pytest.mark.slow)
        for case, fast in zip(every, chosen, strict=True)
    ]


def given_few(few: int, many: int, *strategies: Any, **named: Any) -> Callable[[Callable[..., None]], Any]:
    """`hypothesis.given` of few examples in a quick test, and of many in a slow one."""

    def decorate(test: Callable[..., None]) -> Any:
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])
        def run(examples: int) -> None:
            settings(max_examples=examples)(given(*strategies, **named)(test))()

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate


def in_turn(cases: Iterable[str], share: int, turn: int) -> list[str]:
    """The cases whose turn it is: of each test at least one, and each of them in one of `share` turns that follow.

    Args:
        cases: Names as pytest gives them: those of one test differ behind a bracket.
        share: One case of so many runs.
        turn: Any number.
    """
    tests: dict[str, list[str]] = {}
    for case in cases:
        tests.setdefault(case.partition("[")[0], []).append(case)
    return [x for found in tests.values() for x in found[turn % min(share, len(found)) :: min(share, len(found))]]


def of_every_kind(found: Iterable[Spec]) -> list[Spec]:
    """Few kernels with every part that any has, whatever the numbers of the parts."""
    every = list(found)
    few = covering(every, pairs=False, numbers=False)
    assert {coarse(x) for spec in few for x in spec.parts} == {coarse(x) for spec in every for x in spec.parts}
    return few
