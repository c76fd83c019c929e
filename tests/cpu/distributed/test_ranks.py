"""Slices over the ranks of an MPI communicator, which are processes: mpiexec runs them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from problems import SUBSCRIPTS, mpiexec, operands, plan, same_bits, variables

import gett

HERE = Path(__file__).parent


def run(case: str, folder: Path, ranks: int = 4, *further: str) -> tuple[list[str], list[np.ndarray | None]]:
    """What each rank wrote: its text, and its result where it has one."""
    folder.mkdir(exist_ok=True)
    command = [mpiexec(), "-n", str(ranks), sys.executable, str(HERE / "rank_program.py"), case, str(folder)]
    subprocess.run([*command, *further], env=variables(), capture_output=True, timeout=100, check=False)
    texts = [folder / f"{r}.txt" for r in range(ranks)]
    results = [folder / f"{r}.npy" for r in range(ranks)]
    return [p.read_text() if p.exists() else "" for p in texts], [np.load(p) if p.exists() else None for p in results]


@pytest.fixture(scope="module")
def want() -> np.ndarray:
    """The result of one worker."""
    arrays = operands(7)
    with ThreadPoolExecutor(1) as pool:
        found: np.ndarray = gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64)
    return found


@pytest.mark.parametrize("ranks", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3)), 4])
def test_any_number_of_ranks_gives_the_same_bits_everywhere(tmp_path, want, ranks):
    texts, results = run("given" if ranks % 2 else "all", tmp_path, ranks)
    assert all(x is not None and same_bits(x, want) for x in results), texts
    workers, slices, resumed = map(int, texts[0].split())
    assert (workers, resumed) == (ranks, 0)
    assert slices >= 64


@pytest.mark.slow
def test_one_rank_gets_the_result_where_it_is_asked_for(tmp_path, want):
    _, results = run("root", tmp_path, 3)
    assert results[:2] == [None, None]
    assert same_bits(results[2], want)


@pytest.mark.slow
def test_all_ranks_write_into_their_own_result(tmp_path, want):
    _, results = run("out", tmp_path, 2)
    assert all(same_bits(x, want) for x in results)


@pytest.mark.slow
def test_integers_are_exact(tmp_path):
    _, results = run("exact", tmp_path, 3)
    right = gett.einsum(SUBSCRIPTS, *operands(7, exact=True))
    assert all(same_bits(x, right) for x in results)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("differ", "DistributedError: operand 1 of rank 3 differs from rank 0's"),
        pytest.param("fewer", "DistributedError: rank 3 gives 2 operands, rank 0 gives 3", marks=pytest.mark.slow),
        ("fails", "FloatingPointError: slice went wrong"),
        pytest.param(
            "bad", "ShapeError: the plan xab,xbc,xcd->ad takes 3 operands, 1 were given", marks=pytest.mark.slow
        ),
        pytest.param("nothing", "OptionError: arrays is None on rank 0", marks=pytest.mark.slow),
    ],
)
def test_an_error_is_one_of_every_rank(tmp_path, case, message):
    texts, results = run(case, tmp_path)
    assert results == [None] * 4
    for rank, text in enumerate(texts):
        if case == "fails" and rank == 3:
            assert text == ""  # no error of gett's: it ends the program
        else:
            assert message in text


@pytest.mark.parametrize("case", [pytest.param("late", marks=pytest.mark.slow), "hangs"])
def test_no_rank_waits_for_ever(tmp_path, case):
    texts, results = run(case, tmp_path)
    assert results == [None] * 4
    assert "without a sign of rank" in texts[0]
    assert all(text.startswith("DistributedError: ") for text in texts)


def test_a_killed_rank_ends_the_run_and_its_sums_are_not_lost(tmp_path, want):
    sums = tmp_path / "sums"
    texts, results = run("killed", tmp_path / "first", 4, str(sums))
    assert results == [None] * 4
    assert not any(texts[0].split()[:1] == ["4"] for _ in texts)
    saved = list(sums.glob("sum-*"))
    assert saved
    assert not list(sums.glob(".sum-*"))
    texts, results = run("all", tmp_path / "second", 2, str(sums))
    assert all(x is not None and same_bits(x, want) for x in results), texts
    assert int(texts[0].split()[2]) > 0
    assert not sums.exists()
