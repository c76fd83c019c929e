"""What holds for ranks of any communicator. Who starts them says how: `RankCases.run`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from problems import SUBSCRIPTS, operands, plan, same_bits

import gett

Results = list[np.ndarray | None]


def results_of(folder: Path, ranks: int) -> tuple[list[str], Results]:
    """What each rank wrote into a folder: its text, and its result where it has one."""
    texts, results = ([folder / f"{r}.{kind}" for r in range(ranks)] for kind in ("txt", "npy"))
    return [p.read_text() if p.exists() else "" for p in texts], [np.load(p) if p.exists() else None for p in results]


@cache
def wanted() -> np.ndarray:
    """The result of one worker."""
    arrays = operands(7)
    with ThreadPoolExecutor(1) as pool:
        found: np.ndarray = gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64)
    return found


class RankCases:
    """Inherited by tests of one communicator."""

    def run(self, case: str, folder: Path, ranks: int = 4, *further: str) -> tuple[list[str], Results]:
        """Run `rank_program.py` on some ranks; what each wrote."""
        raise NotImplementedError

    def check_survivors(self, texts: list[str]) -> None:
        """What ranks wrote when the last of four was killed."""
        assert not any(text.split()[:1] == ["4"] for text in texts)

    @pytest.mark.parametrize("ranks", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3)), 4])
    def test_any_number_of_ranks_gives_the_same_bits_everywhere(self, tmp_path, ranks):
        texts, results = self.run("given" if ranks % 2 else "all", tmp_path, ranks)
        assert all(x is not None and same_bits(x, wanted()) for x in results), texts
        workers, slices, resumed = map(int, texts[0].split())
        assert (workers, resumed) == (ranks, 0)
        assert slices >= 64

    @pytest.mark.slow
    def test_one_rank_gets_the_result_where_it_is_asked_for(self, tmp_path):
        _, results = self.run("root", tmp_path, 3)
        assert results[:2] == [None, None]
        assert same_bits(results[2], wanted())

    @pytest.mark.slow
    def test_all_ranks_write_into_their_own_result(self, tmp_path):
        _, results = self.run("out", tmp_path, 2)
        assert all(same_bits(x, wanted()) for x in results)

    @pytest.mark.slow
    def test_integers_are_exact(self, tmp_path):
        _, results = self.run("exact", tmp_path, 3)
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
    def test_an_error_is_one_of_every_rank(self, tmp_path, case, message):
        texts, results = self.run(case, tmp_path)
        assert results == [None] * 4
        for rank, text in enumerate(texts):
            if case == "fails" and rank == 3:
                assert text == ""  # no error of gett's: it ends the program
            else:
                assert message in text

    @pytest.mark.parametrize("case", [pytest.param("late", marks=pytest.mark.slow), "hangs"])
    def test_no_rank_waits_for_ever(self, tmp_path, case):
        texts, results = self.run(case, tmp_path)
        assert results == [None] * 4
        assert "without a sign of rank" in texts[0]
        assert all(text.startswith("DistributedError: ") for text in texts)

    def test_a_killed_rank_ends_the_run_and_its_sums_are_not_lost(self, tmp_path):
        sums = tmp_path / "sums"
        texts, results = self.run("killed", tmp_path / "first", 4, str(sums))
        assert results == [None] * 4
        self.check_survivors(texts)
        assert list(sums.glob("sum-*"))
        assert not list(sums.glob(".sum-*"))
        texts, results = self.run("all", tmp_path / "second", 2, str(sums))
        assert all(x is not None and same_bits(x, wanted()) for x in results), texts
        assert int(texts[0].split()[2]) > 0
        assert not sums.exists()
