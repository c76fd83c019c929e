"""Numbers of the Hopper main loops are found again from stored times of schedules."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import refit
from benchmarks.device_record import field_at, with_field
from benchmarks.refit import Case, fit, load, loss, losses, numbers, record_of, timed_schedule
from benchmarks.regret import STORED
from benchmarks.schedule_times import read, write
from gett.hw.archs import arch_facts
from gett.hw.device import DeviceModel
from gett.ir.gemm import make_gemm_plan
from gett.schedule.search.select import candidates
from tests.cases import Case as Contraction

FACTS = arch_facts("sm_90a")
MODEL = record_of(STORED[0])
ODD = Contraction("", "mk,nk->mn", {"m": 1023, "n": 1023, "k": 1023})
THIN = Contraction("", "mk,kn->mn", {"m": 2_000_000, "n": 8, "k": 8})


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Ten contractions of float16; schedules of Hopper main loops take the time that the record forecasts."""
    path, stored = tmp_path_factory.mktemp("times") / "few.json.gz", read(STORED[0])
    large = [c for c in stored["cases"] if c["kind"] == "float16" and len(c["schedules"]) > 8]
    write(path, stored["device"], stored["commit"], large[20:40:2])
    found = []
    for case in load(path, MODEL.name):
        assert case.own
        timed = [replace(x, us=x.forecast(MODEL)) for x in case.timed if x.parts is not None]
        found.append(replace(case, timed=tuple(timed)))
    assert all(len(case.timed) > 1 for case in found)
    return found


def worst(cases: list[Case], model: DeviceModel) -> float:
    """The greatest regret."""
    return max(regret for _, _, regret in losses(cases, model))


@pytest.mark.slow
def test_a_fit_lowers_the_loss_of_a_wrong_number(exact: list[Case]) -> None:
    path = "hopper.loops.ss.port"
    right = field_at(MODEL, path)
    wrong = with_field(MODEL, path, 0.8 * right)
    # The loss of the exact record is not 0: schedules whose times are near the best one's have weight.
    assert worst(exact, MODEL) == 1.0 < worst(exact, wrong)
    assert loss(exact, MODEL)[0] < 0.2 * loss(exact, wrong)[0]
    found = fit(exact, wrong, passes=1, processes=1)
    assert loss(exact, found)[0] < 0.5 * loss(exact, wrong)[0]
    assert worst(exact, found) < worst(exact, wrong)
    assert field_at(wrong, path) < field_at(found, path) < 1.1 * right


@pytest.mark.slow
def test_loss_counts_how_far_forecasts_are_on_the_fitted_device_alone(exact: list[Case]) -> None:
    doubled = [replace(case, timed=tuple(replace(x, us=2 * x.us) for x in case.timed)) for case in exact]
    others = [replace(case, own=False) for case in doubled]
    assert loss(others, MODEL) == pytest.approx(loss(exact, MODEL))
    assert loss(doubled, MODEL)[0] > loss(exact, MODEL)[0]


@pytest.mark.parametrize(("case", "dtype", "kinds"), [
    (ODD, "float16", {"packed wgmma ss", "wgmma ss", "mma.sync"}),
    (ODD, "float32", {"simt"}),
    (THIN, "float16", {"stream matrix", "wgmma ss", "mma.sync"}),
], ids=["odd-float16", "odd-float32", "thin-float16"])  # fmt: skip
def test_forecasts_are_those_of_the_search(case: Contraction, dtype: str, kinds: set[str]) -> None:
    plan = make_gemm_plan(case.contraction(dtype))
    schedules = candidates(plan, "sm_90a")
    assert kinds <= {s.kind for s in schedules}
    for s in schedules:
        assert timed_schedule(plan, s, 1.0, FACTS).forecast(MODEL) == pytest.approx(s.forecast.us), s


def test_numbers_are_those_that_main_loops_have() -> None:
    paths = numbers(MODEL)
    wanted = {"hopper.loops.ss.port", "hopper.loops.dmma.load_clocks", "hopper.tiles.cluster_m"}
    assert wanted | {"hopper.threads.piece_clocks", "multistage.factors.elements"} <= set(paths)
    assert "hopper.loops.rs.load_clocks" not in paths
    assert len(set(paths)) == len(paths)
    for path in paths:
        assert field_at(MODEL, path) > 0


@pytest.mark.slow
@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_stored_times_are_of_a_device_with_a_record(path: Path) -> None:
    assert record_of(path).name == read(path)["device"]


def test_times_of_an_unknown_device_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json.gz"
    write(path, "some GPU", "0", [])
    with pytest.raises(ValueError, match=r"other\.json\.gz: there is no record of some GPU"):
        record_of(path)


@pytest.mark.slow
def test_a_record_is_written_where_one_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "made.py"
    assert refit.main(STORED, passes=1, every=400, record=str(record)) == 0
    scope: dict[str, object] = {}
    exec(record.read_text(), scope)
    made = scope["MODEL"]
    assert isinstance(made, DeviceModel)
    text = capsys.readouterr().out
    changed = re.findall(r"^(\S+): \S+ -> (\S+)$", text, re.MULTILINE)
    assert {path: field_at(made, path) for path, _ in changed} == {path: float(new) for path, new in changed}
    assert {path for path, _ in changed} == {x for x in numbers(MODEL) if field_at(made, x) != field_at(MODEL, x)}
    before, after = (float(x) for x in re.findall(r"loss of \d+ contractions \w+: (\S+)", text))
    assert after < before
    assert made.name == MODEL.name
    assert all(path.name in str(scope["__doc__"]) for path in STORED)
