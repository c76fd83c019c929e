"""Records of measured devices: which one a GPU gets, and how `benchmarks calibrate` makes and writes them."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import calibrate
from benchmarks.device_record import calibrated, field_at, file_name, source_text, taken, with_field, write_record
from gett.codegen.render import render_kernel
from gett.hw.archs import ARCHS, arch_facts
from gett.hw.device import DeviceModel, measured, nearest
from gett.ir.gemm import make_gemm_plan
from gett.schedule.search.select import candidates
from gett.schedule.spec.schedule import PersistentRaster
from layouts.rates import RunRates, run_cost
from tests.cases import Case
from tests.cpu.tuning import FACTS

H200 = next(m for m in measured() if m.name == "NVIDIA H200")
PRODUCT = Case("", "mk,nk->mn", {"m": 8192, "n": 8192, "k": 4096})


def records(record: Any) -> Iterator[Any]:
    yield record
    for f in fields(record):
        if is_dataclass(getattr(record, f.name)):
            yield from records(getattr(record, f.name))


def numbers(record: Any) -> Iterator[float]:
    for part in records(record):
        for f in fields(part):
            value = getattr(part, f.name)
            flat = value if isinstance(value, tuple) else (value,)
            yield from (y for x in flat for y in (x if isinstance(x, tuple) else (x,)) if isinstance(y, int | float))


@pytest.mark.parametrize("model", measured(), ids=lambda m: m.name)
def test_records_are_complete_and_small(model: DeviceModel) -> None:
    assert model.arch in ARCHS
    assert all(math.isfinite(x) and x >= 0 for x in numbers(model))
    assert all(len(fields(part)) <= 16 for part in records(model))
    memory = model.memory
    assert list(memory.run_bytes) == sorted(memory.run_bytes)
    for rates in (memory.load_tbps, memory.store_tbps, memory.bulk_load_tbps, memory.bulk_store_tbps):
        assert len(rates) == len(memory.run_bytes)
        assert min(rates) > 0
        assert max(rates) <= 1.1 * memory.copy_tbps
    for share in (model.hopper.loops.ss.products, model.multistage.rates.tensor_share):
        assert 0.2 < share <= 1.1


def test_a_measured_device_has_its_own_record() -> None:
    facts = arch_facts("sm_90a").resized("NVIDIA H200", 132, 50 << 20, 1.83, 4.2)
    assert nearest(facts) is H200


def test_the_nominal_hopper_is_as_fast_as_the_one_measured() -> None:
    assert replace(nearest(arch_facts("sm_90a")), name=H200.name) == H200


@pytest.mark.parametrize("arch", ARCHS)
def test_an_unknown_device_gets_rates_of_its_own(arch: str) -> None:
    facts = arch_facts(arch).resized("some GPU", 140, 40 << 20, 1.7, 5.0)
    model = nearest(facts)
    assert (model.name, model.arch, model.sm_count, model.clock_ghz) == ("some GPU", arch, 140, 1.7)
    assert model.memory.copy_tbps == pytest.approx(5.0)
    assert model.l2.read_tbps == facts.l2_tbps
    for run in (16, 48, 128, 4096):  # what is relative to copy speed stays
        for store in (False, True):
            assert run_cost(model.memory, run, store=store) == pytest.approx(run_cost(H200.memory, run, store=store))


def test_records_of_the_same_architecture_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(H200, name="like in rates", arch="sm_80")
    slow = with_field(replace(H200, name="slow", memory=H200.memory.scaled(0.5)), "hopper.loops.ss.products", 0.5)
    monkeypatch.setattr("gett.hw.device.measured", lambda: (other, slow, H200))
    nearest.cache_clear()
    try:
        facts = arch_facts("sm_90a")
        assert nearest(facts.resized("a", 132, 50 << 20, 1.83, 2.2)).hopper.loops.ss.products == 0.5
        assert nearest(facts.resized("b", 132, 50 << 20, 1.83, 4.0)).hopper == H200.hopper
        assert nearest(facts.resized("c", 132, 50 << 20, 1.83, 4.0)).arch == "sm_90a"
    finally:
        nearest.cache_clear()


def test_estimates_follow_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, plan = arch_facts("sm_90a"), make_gemm_plan(PRODUCT.contraction("float16"))
    before = candidates(plan, "sm_90a")[0]
    slow = with_field(H200, "hopper.loops.ss.products", H200.hopper.loops.ss.products / 2)
    monkeypatch.setattr("gett.hw.device.measured", lambda: (slow,))
    nearest.cache_clear()
    try:
        assert nearest(facts).hopper == slow.hopper
        after = {s.kind: s for s in reversed(candidates(plan, "sm_90a"))}
    finally:
        nearest.cache_clear()
    assert before.forecast.bound in ("tensor cores", "shared memory")  # of which each takes the same
    assert after[before.kind].forecast.us > 1.5 * before.forecast.us


def test_each_field_of_a_record_is_read() -> None:
    """A field that no cost model and no search reads would be measured for nothing."""
    root = Path(__file__).parents[3]
    files = [*(root / "gett/schedule/cost").rglob("*.py"), *(root / "gett/schedule/search").rglob("*.py")]
    others = root / "gett/schedule/grouped.py", root / "layouts/rates.py"
    trees = [ast.parse(path.read_text()) for path in (*files, *others)]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {f.name for part in records(H200) for f in fields(part)}
    assert names - read == {"name", "nominal", "arch", "sm_count", "clock_ghz"} - read


def test_rates_between_the_measured_runs() -> None:
    rates = RunRates(4.0, (16, 64, 256), (1.0, 2.0, 4.0), (1.0, 2.0, 3.0), (1.0,) * 3, (1.0,) * 3, 0.5, 1.0)
    assert rates.long_run == 256
    for run, expected in ((8, 0.5), (16, 1.0), (32, 1.5), (64, 2.0), (128, 3.0), (256, 4.0), (1024, 4.0)):
        assert rates.at(run, store=False, bulk=False) == pytest.approx(expected)
    assert run_cost(rates, 256) == 1.0
    assert rates.scaled(2.0).at(64, store=True, bulk=False) == 4.0


def test_full_clusters_follow_the_order_of_the_device() -> None:
    order, facts = H200.l2.cluster_order, arch_facts("sm_90a")
    assert sorted(order) == list(range(H200.sm_count // 2))
    assert nearest(facts).l2.cluster_order == order
    smaller = facts.resized("some GPU", 130, 50 << 20, 1.8, 4.2)
    assert nearest(smaller).l2.cluster_order == ()
    # Rows of K begin within sectors, so that L2 limits tiles that no cluster shares.
    plan = make_gemm_plan(Case("", "mk,nk->mn", {"m": 8192, "n": 8192, "k": 4104}).contraction("float16"))
    for found, known in ((facts, order), (smaller, ())):
        schedules = [s for s in candidates(plan, "sm_90a", found) if isinstance(s.scheduler, PersistentRaster)]
        pairs = [s for s in schedules if math.prod(s.cluster) == 2]
        assert pairs
        for s in schedules:
            assert s.scheduler.cluster_order == (known if s in pairs else ())
        text = render_kernel(plan, pairs[0]).source.text
        assert ("kClusterOrder[66]" in text) == bool(known)
        assert f"kOrderedClusters = {len(known)};" in text


def test_figures_become_fields() -> None:
    figures = {"tma.row_clocks": 3.14159, "memory.load_tbps": [1.0, 2.0, 2.5, 3.0, 3.5], "hopper.tiles.cluster_m": 1.07}
    made = calibrated(H200, figures, None)
    assert made.tma.row_clocks == 3.14
    assert made.memory.load_tbps == (1.0, 2.0, 2.5, 3.0, 3.5)
    assert with_field(with_field(with_field(
        made, "tma.row_clocks", H200.tma.row_clocks), "memory.load_tbps", H200.memory.load_tbps),
        "hopper.tiles.cluster_m", H200.hopper.tiles.cluster_m) == H200  # fmt: skip


def test_figures_of_a_reference_scale_what_was_fitted() -> None:
    reference = {"tma.row_clocks": 4.0, "memory.load_tbps": [2.0] * 5, "launches.launch_us": 4.0}
    figures = {"tma.row_clocks": 5.0, "memory.load_tbps": [1.0] * 5, "l2.read_tbps": 9.0}
    made = calibrated(H200, figures, reference)
    assert made.tma.row_clocks == pytest.approx(H200.tma.row_clocks * 1.25)
    assert made.memory.load_tbps == pytest.approx([x / 2 for x in H200.memory.load_tbps], rel=0.01)
    assert (made.hopper, made.multistage) == (H200.hopper, H200.multistage)  # numbers of main loops are not measured
    assert taken(figures, reference) == ["tma.row_clocks", "memory.load_tbps"]
    assert taken(figures, None) == list(figures)
    assert made.l2 == H200.l2  # the reference does not say what the figure was there
    assert made.launches == H200.launches  # the device has no figure


def test_short_runs_are_bounded_by_longer_ones_and_copies_by_all() -> None:
    made = calibrated(H200, {"memory.copy_tbps": 3.0, "memory.bulk_load_tbps": [2.0, 3.5, 2.9, 3.2, 3.1]}, None)
    assert made.memory.bulk_load_tbps == (2.0, 2.9, 2.9, 3.0, 3.0)


def test_a_record_is_written_and_read_back(tmp_path: Path) -> None:
    record = with_field(replace(H200, name='NVIDIA "H1" 80GB'), "tma.row_clocks", 2.5)
    assert file_name(record.name) == "h1_80gb.py"
    path = write_record(record, ["By hand."], tmp_path / file_name(record.name))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert record == module.MODEL
    assert module.__doc__ == 'NVIDIA "H1" 80GB as it was measured.\n\nBy hand.\n'
    assert max(map(len, source_text(record, []).splitlines())) <= 120


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.py"
    path.write_text("old")

    def refuse(*paths: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="no room"):
        write_record(H200, [], path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.py"]


def test_every_figure_names_a_field() -> None:
    text = Path(calibrate.__file__).read_text()
    paths = [p for p in re.findall(r'"([a-z0-9_]+(?:\.[a-z0-9_]+)+)"', text) if not p.startswith("sm_")]
    assert len(paths) >= 11
    for path in paths:
        field_at(H200, path)


def test_a_calibration_writes_the_record_of_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the clocks."""
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    facts = replace(FACTS, name="NVIDIA H100 80GB HBM3", dram_tbps=2.96)
    monkeypatch.setattr("gett.runtime.device.device_facts", lambda: facts)
    monkeypatch.setattr("gett.hw.device.measured", lambda: (H200,))
    monkeypatch.setattr(calibrate, "GpuTimer", lambda budget_us: None)
    measured_here = {"tma.row_clocks": 2.5, "launches.launch_us": 3.1}
    monkeypatch.setattr(calibrate, "machine_figures", lambda cupy, timer, arch: dict(measured_here))
    reference = tmp_path / "h200.json"
    reference.write_text(json.dumps({"device": "NVIDIA H200", "figures": {"tma.row_clocks": 2.0}}))
    nearest.cache_clear()
    try:
        for name, refers in (("plain", None), ("scaled", str(reference))):
            path, figures = tmp_path / f"{name}.py", tmp_path / f"{name}.json"
            paths = {"json_path": str(figures), "record_path": str(path), "reference_path": refers}
            assert calibrate.main(cases=(), dtype="float16", candidates=2, **paths) == 0
            scope: dict[str, Any] = {}
            exec(path.read_text(), scope)
            made = scope["MODEL"]
            assert (made.name, made.arch, made.sm_count) == (facts.name, facts.arch, facts.sm_count)
            assert made.tma.row_clocks == 2.5
            assert made.launches.launch_us == (H200.launches.launch_us if refers else 3.1)
            assert made.memory.copy_tbps == pytest.approx(4.25 if refers else 2.96)
            assert (made.hopper, made.multistage) == (H200.hopper, H200.multistage)
            assert "tma.row_clocks" in scope["__doc__"]
            assert ("launches.launch_us" in scope["__doc__"]) == (refers is None)
            assert json.loads(figures.read_text())["figures"] == measured_here
    finally:
        nearest.cache_clear()
