"""Shares of the slow tests: in as many turns as there are shares every case runs, in each turn one of each test."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.sampling import in_turn

ROOT = Path(__file__).parents[3]
CASES = ["a.py::one", *(f"a.py::three[{i}]" for i in range(3)), *(f"b.py::ten[{i}-x[y]]" for i in range(10))]


@pytest.mark.parametrize("first", [0, 1, 739_946])
def test_every_case_has_its_turn(first: int) -> None:
    turns = [in_turn(CASES, 4, first + i) for i in range(4)]
    assert {case for turn in turns for case in turn} == set(CASES)
    for turn in turns:
        assert len(turn) == len(set(turn))
        assert {case.partition("[")[0] for case in turn} == {"a.py::one", "a.py::three", "b.py::ten"}
        assert 4 <= len(turn) <= 5


def test_a_whole_share_is_everything() -> None:
    assert sorted(in_turn(CASES, 1, 17)) == sorted(CASES)


def test_ci_runs_as_many_versions_as_there_are_shares_and_has_what_slow_tests_need() -> None:
    slow = re.search(r"^slow='(.*)'$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert slow is not None
    share = re.search(r"--share (\d+)", slow[1])
    versions = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert share is not None
    assert versions is not None
    assert int(share[1]) == len(versions[1].split(","))
    assert '-e ".[slow]"' in slow[1]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {"gett[test]", "gett[docs]", "gett[bench]"} <= set(extras["slow"])
