"""`gett.ragged` on NumPy, what its subscripts mean, and what a warm call on a GPU launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gett
from gett.arrays.kinds import NUMPY
from gett.groups.ragged import ragged_modes
from gett.groups.ragged_launch import RaggedLaunch
from tests.cpu.groups.table_machine import GpuKind, table_gpu

TOKENS, WEIGHTS = np.arange(40.0).reshape(10, 4), np.arange(72.0).reshape(3, 4, 6)
ENDS = [2, 2, 7]


@pytest.mark.parametrize("ends", [ENDS, np.array(ENDS, np.int32), np.array(ENDS, np.uint8), tuple(ENDS)])
def test_rows_of_each_problem_have_their_matrix(ends: Any) -> None:
    exact = np.zeros((10, 6))
    exact[:2], exact[2:7] = TOKENS[:2] @ WEIGHTS[0], TOKENS[2:7] @ WEIGHTS[2]
    assert np.array_equal(gett.ragged("tk,ekn->tn", TOKENS, WEIGHTS, ends), exact)
    out = np.full((6, 10), np.nan).T
    assert gett.ragged("tk,ekn->tn", TOKENS, WEIGHTS, ends, out=out) is out
    assert np.array_equal(out, exact)
    assert np.array_equal(gett.ragged("ekn,tk->nt", WEIGHTS, TOKENS, ends), exact.T)


def test_rows_of_each_problem_are_summed() -> None:
    found = gett.ragged("tk,tn->ekn", TOKENS, TOKENS[:, :3], ENDS)
    assert np.array_equal(found[0], TOKENS[:2].T @ TOKENS[:2, :3])
    assert not found[1].any()
    assert np.array_equal(found[2], TOKENS[2:7].T @ TOKENS[2:7, :3])


def test_no_rows_and_no_problems() -> None:
    assert gett.ragged("tk,ekn->tn", TOKENS[:0], WEIGHTS, [0, 0, 0]).shape == (0, 6)
    assert not gett.ragged("tk,ekn->tn", TOKENS, WEIGHTS[:0], []).any()


@pytest.mark.parametrize(
    ("subscripts", "ragged", "problem"),
    [("tk,ekn->tn", "t", "e"), ("ekn,thk->nth", "t", "e"), ("tk,tn->ekn", "t", "e"), ("kt,nt->nek", "t", "e")],
)
def test_modes_are_found(subscripts: str, ragged: str, problem: str) -> None:
    modes = ragged_modes(subscripts)
    assert (modes.ragged, modes.problem) == (ragged, problem)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("tk,kn->tn", TOKENS, WEIGHTS[0], ENDS), gett.SubscriptsError, "no mode that numbers the problems"),
        (("tk,ekn", TOKENS, WEIGHTS, ENDS), gett.SubscriptsError, "letters and an output"),
        (("kt,ekn->tn", TOKENS.T, WEIGHTS, ENDS), gett.SubscriptsError, "ragged mode 'k' must be"),
        (("tk,ekn->tn", TOKENS, WEIGHTS[:2], ENDS), gett.ShapeError, "mode 'e' has extent 2 in operand 1"),
        (("tk,ekn->tn", TOKENS, WEIGHTS[:, :3], ENDS), gett.ShapeError, "mode 'k' has extent 4 in operand 0"),
        (("tk,ekn->tn", TOKENS[0], WEIGHTS, ENDS), gett.SubscriptsError, "operand 0 has 1 axes"),
        (("tk,ekn->tn", TOKENS, WEIGHTS, [2, 1, 7]), gett.OptionError, "problem 1: its rows are 2 to 1"),
        (("tk,ekn->tn", TOKENS, WEIGHTS, [2, 1, 11]), gett.OptionError, "problem 1"),
        (("tk,ekn->tn", TOKENS, WEIGHTS, [2, 3, 11]), gett.OptionError, "problem 2: .* mode 't', which has extent 10"),
        (("tk,ekn->tn", TOKENS, WEIGHTS, [1.0, 2.0, 3.0]), gett.DTypeError, "offsets have dtype float64"),
        (("tk,ekn->tn", TOKENS, WEIGHTS, [[1, 2, 3]]), gett.ShapeError, "offsets have shape"),
    ],
)
def test_errors(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        gett.ragged(*arguments)


def test_an_output_that_does_not_fit_is_refused() -> None:
    with pytest.raises(gett.OutputError, match="out has shape"):
        gett.ragged("tk,ekn->tn", TOKENS, WEIGHTS, ENDS, out=np.empty((9, 6)))
    with pytest.raises(gett.OutputError, match="out overlaps operand 0"):
        gett.ragged("tk,ekn->tn", TOKENS, WEIGHTS[:, :, :4], ENDS, out=TOKENS)


@pytest.mark.parametrize("subscripts", ["tk,ekn->tn", "ekn,tk->tn", "tk,ekn->nt"])
def test_a_launch_on_a_gpu_takes_the_tensors_in_their_roles(subscripts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = ragged_modes(subscripts)
    d = np.empty((6, 10) if subscripts.endswith("nt") else (10, 6))
    arrays = [TOKENS, WEIGHTS] if modes.terms[0] == "tk" else [WEIGHTS, TOKENS]
    with table_gpu(monkeypatch) as driver:
        driver.params_bytes = 112
        launch = RaggedLaunch(GpuKind(), 0, modes, [NUMPY.describe(x) for x in (*arrays, d)], "int32", 3, None)
        launch.run(16, 32, 48, 64)
    (seen,) = driver.launches
    rows_are_a = launch.schedule.ragged is not None and launch.schedule.ragged.group == "m"
    tokens, weights = (16, 32) if modes.terms[0] == "tk" else (32, 16)
    a, b, at_d, ends = np.frombuffer(seen.params, np.int64, 4).tolist()
    assert (a, b) == ((tokens, weights) if rows_are_a else (weights, tokens))
    assert (at_d, ends) == (48, 64)
    steps, counts = np.frombuffer(seen.params, np.int64, 6, 48).tolist(), np.frombuffer(seen.params, np.int32, 3, 96)
    assert (counts[0], counts[1]) == (3, 10)
    rows = 0 if rows_are_a else 1  # the role of the tokens
    assert (steps[rows], steps[1 - rows]) == (TOKENS.strides[0], 0)
    assert (steps[3 + rows], steps[4 - rows]) == (0, WEIGHTS.strides[0])
    assert rows_are_a is not subscripts.endswith("nt")
