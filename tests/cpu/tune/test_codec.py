"""Records to JSON and back: schedules of many contractions return as they were, anything else is stale."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

from gett.codec import Stale, decode, encode
from gett.codegen.records import Kernel
from gett.codegen.render import render_kernel
from gett.errors import ScheduleError
from gett.ir.gemm import make_gemm_plan
from gett.schedule.search.select import candidates
from gett.schedule.spec.mainloop import WgmmaSS
from gett.schedule.spec.schedule import Schedule
from gett.tune.store import Entry
from tests.cases import AWKWARD, Layout, small_tccg
from tests.cpu.helpers import contraction_of
from tests.cpu.strategies import Case, contractions
from tests.cpu.tuning import gemm_plan
from tests.sampling import slow_but
from tests.schedules import spread

KEPT = [*small_tccg(1 << 16)[::4], *AWKWARD[::3]]


def through_json(kind, record):
    return decode(kind, json.loads(json.dumps(encode(record))))


def all_fields(record):
    return json.dumps(encode(record), sort_keys=True)


@pytest.mark.parametrize("case", slow_but(KEPT, lambda x: x in KEPT[::3]), ids=repr)
def test_schedules_and_kernels_survive_json(case):
    kinds = set()
    for dtype, arch in (("float16", "sm_90a"), ("float32", "sm_80"), ("complex64", "sm_90a")):
        plan = make_gemm_plan(case.contraction(dtype, with_c=Layout() if arch == "sm_80" else None))
        for schedule in spread(candidates(plan, arch), 3):
            kinds.add(schedule.kind)
            found = through_json(Schedule, schedule)
            assert found == schedule
            assert hash(found) == hash(schedule)
            assert all_fields(found) == all_fields(schedule)  # equality leaves out what the model said
            kernel = render_kernel(plan, schedule)
            assert through_json(Kernel, kernel) == kernel
            entry = Entry(schedule, kernel, b"\0\xff" * 16, 1.5, 3)
            assert through_json(Entry, entry) == entry
    assert kinds


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(contractions(empty=False, misaligned=False, max_volume=2000))
def test_schedules_of_any_contraction_survive_json(case: Case):
    plan = make_gemm_plan(contraction_of(case.subscripts, *case.operands))
    try:
        found = candidates(plan, "sm_90a")
    except ScheduleError:
        return
    for schedule in spread(found, 2):
        assert through_json(Schedule, schedule) == schedule
        assert all_fields(through_json(Schedule, schedule)) == all_fields(schedule)


def leaves(data, path=()):
    """Paths of everything in JSON data."""
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from leaves(value, (*path, key))


def changed(data, path, value):
    copy = json.loads(json.dumps(data))
    if not path:
        return value
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copy


def test_any_value_of_another_type_is_stale():
    schedule = candidates(gemm_plan(256, 256, 256, "float16"), "sm_90a")[0]
    assert isinstance(schedule.mainloop, WgmmaSS)
    data = encode(schedule)
    paths = list(leaves(data))
    assert len(paths) > 100
    for path in paths:
        with pytest.raises(Stale):
            decode(Schedule, changed(data, path, {"no": "record"}))
    for wrong in (True, 1.5, "1", [1], None):
        with pytest.raises(Stale):
            decode(Schedule, changed(data, ("scheduler", "split_k"), wrong))
    with pytest.raises(Stale):
        decode(Schedule, changed(data, ("forecast", "us"), 1))


def test_other_fields_and_impossible_records_are_stale():
    data = encode(candidates(gemm_plan(), "sm_90a")[0])
    with pytest.raises(Stale, match="no Schedule"):
        decode(Schedule, data | {"colour": 1})
    with pytest.raises(Stale, match="no Schedule"):
        decode(Schedule, {k: v for k, v in data.items() if k != "mainloop"})
    with pytest.raises(Stale):
        decode(Schedule, changed(data, ("tiling", "shape"), [1, 2]))
    box = {"type": "Box", "extents": [4], "dims": []}  # a box that leaves a mode out
    with pytest.raises(Stale, match="do not cover"):
        decode(Schedule, changed(data, ("tiling", "m"), box))
    other = encode(candidates(gemm_plan(dtype="float16"), "sm_90a")[0])
    for name in ("Multistage", "Wgmma", "Box", 1, None):  # a part is read as the record that its type names
        with pytest.raises(Stale):
            decode(Schedule, changed(other, ("mainloop", "type"), name))
    with pytest.raises(Stale):
        decode(bytes, "zz")
    with pytest.raises(TypeError, match="no form"):
        encode({"a": 1})
    with pytest.raises(TypeError, match="no reader"):
        decode(dict, {})
