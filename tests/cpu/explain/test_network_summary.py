"""What `print(plan)` and `plan.plot()` tell of networks: totals, bounds, launches, the ten costliest steps."""

from __future__ import annotations

import math
import sys
from itertools import pairwise

import opt_einsum
import pytest
from opt_einsum.testing import rand_equation

import gett
from gett.codegen.render import render_kernel
from gett.explain.launches import count_launches, launches_of
from gett.explain.network import COSTLIEST, SHORT, kernel_of
from gett.explain.path import path_costs
from gett.explain.summary import KERNELS, MOST, WIDEST


def chain(count: int, **options: object) -> gett.ContractionPlan:
    """Matrices of few different shapes, contracted from left to right."""
    labels = [chr(0x4E00 + i) for i in range(count + 1)]
    extents = {x: 16 + 8 * (i % 3) for i, x in enumerate(labels)}
    terms = list(map("".join, pairwise(labels)))
    pairs = [(tuple(extents[x] for x in term), "float32") for term in terms]
    subscripts = ",".join(terms) + "->" + labels[0] + labels[-1]
    return gett.plan(subscripts, *pairs, optimize=False, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("arch", ["cpu", "sm_80", "sm_90a"])
def test_a_network_of_hundreds_of_steps_is_told_in_forty_lines(arch: str) -> None:
    plan = chain(301, arch=arch)
    lines = str(plan).splitlines()
    assert len(lines) <= MOST
    assert max(map(len, lines)) <= WIDEST
    listed = [line for line in lines if line.startswith("  step ")]
    assert len(listed) == COSTLIEST
    assert any(f"and {300 - COSTLIEST} steps more" in line for line in lines)
    assert ("launches" in {line[2:10] for line in lines}) is (arch != "cpu")
    if arch != "cpu":
        times = [s.forecast.us for s in plan.steps if s.forecast is not None]
        numbers = [int(line.split()[1]) - 1 for line in listed]
        assert [times[i] for i in numbers] == sorted(times, reverse=True)[:COSTLIEST]
        for line, i in zip(listed, numbers, strict=True):
            step = plan.steps[i]
            assert step.forecast is not None
            assert step.forecast.bound in line
            assert kernel_of(step) in line
            assert (step.together is None) is (kernel_of(step) in SHORT.values())
        launches = launches_of(plan.steps)
        assert launches == 300  # of a chain each step needs the one before
        assert launches_of((*plan.steps, *plan.steps), once=300) == 600  # plans number their launches alike
        (told,) = [line for line in lines if line.startswith("  launches")]
        assert f"{launches} kernels, in 1 CUDA graph " in told
        assert f"{len({s.gemm.signature for s in plan.steps})} different" in told


def test_every_main_loop_has_words() -> None:
    assert SHORT.keys() == KERNELS.keys()


def test_launches_are_those_of_the_rendered_kernels() -> None:
    f64, c64 = "float64", "complex64"
    plans = [
        gett.plan("ab,bc->ac", ((64, 50000), f64), ((50000, 64), f64), arch="sm_90a"),  # slices of K are added
        gett.plan("ab->a", ((8, 1 << 22), f64), arch="sm_90a"),
        gett.plan("ika,jka->ija", ((512, 512, 128), "float16"), ((512, 512, 128), "float16"), arch="sm_90a"),
        gett.plan("ab,bc->ac", ((300, 300), c64), ((300, 300), c64), arch="sm_90a"),
    ]
    assert any(s.schedule is not None and s.schedule.packing is not None for p in plans for s in p.steps)
    counts = set()
    for plan in plans:
        for step in plan.steps:
            assert step.schedule is not None
            counts.add(count_launches(step))
            assert count_launches(step) == len(render_kernel(step.gemm, step.schedule).launches)
    assert len(counts) > 1
    assert count_launches(gett.plan("ab,bc->ac", *[((3, 3), f64)] * 2).steps[0]) == 0


@pytest.mark.parametrize("seed", range(8))
def test_costs_of_a_path_are_those_of_opt_einsum(seed: int) -> None:
    subscripts, shapes = rand_equation(9, 3, n_out=2 * (seed % 2), seed=seed)[:2]
    shapes = [x.shape if hasattr(x, "shape") else x for x in shapes]
    plan = gett.plan(subscripts, *[(tuple(x), "float64") for x in shapes], optimize="greedy")
    info = opt_einsum.contract_path(subscripts, *shapes, shapes=True, optimize=list(plan.path))[1]
    found = path_costs(plan.request, plan.path)
    assert found == (int(info.opt_cost), int(info.naive_cost), int(info.largest_intermediate))


def test_what_is_held_at_each_step_has_the_peak_as_its_largest() -> None:
    plan = chain(20)
    assert len(plan.step_bytes) == len(plan.steps)
    assert max(plan.step_bytes) == plan.peak_bytes
    sizes = [((8, 40), "float64"), ((40, 64), "float64"), ((64, 64), "float64"), ((64, 8), "float64")]
    sliced = gett.plan("ab,bc,cd,de->ae", *sizes, optimize=[(1, 2), (1, 2), (0, 1)], memory_limit="8KiB")
    assert sliced.slices > 1
    assert len(sliced.step_bytes) == len(sliced.steps)
    assert max(sliced.step_bytes) <= sliced.peak_bytes


def test_slices_are_launched_each() -> None:
    sizes = [((8, 400), "float64"), ((400, 640), "float64"), ((640, 640), "float64"), ((640, 8), "float64")]
    options = {"optimize": [(1, 2), (1, 2), (0, 1)], "arch": "sm_90a"}
    sliced = gett.plan("ab,bc,cd,de->ae", *sizes, memory_limit="1MiB", **options)  # type: ignore[arg-type]
    each = [count_launches(s) for s in sliced.steps]
    expected = sum(each[: sliced.once]) + sliced.slices * sum(each[sliced.once :])
    assert f"  launches  {expected} kernels, " in str(sliced)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["cpu", "sm_90a"])
def test_steps_are_drawn_in_order_with_the_bytes_that_are_held(arch: str) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    plan = chain(301, arch=arch)
    ax = plan.plot()
    drawn = sorted((int(x), float(y)) for line in ax.lines for x, y in zip(*line.get_data(), strict=True))
    assert [x for x, _ in drawn] == list(range(1, 301))
    if arch == "cpu":
        assert math.isclose(sum(y for _, y in drawn), 100)
    else:
        assert [y for _, y in drawn] == [s.forecast.us for s in plan.steps if s.forecast is not None]
    (other,) = [x for x in ax.figure.axes if x is not ax]
    assert math.isclose(other.dataLim.y1, plan.peak_bytes / 2**20)
    assert plan.plot(pyplot.subplots()[1], kind="steps").get_xlabel() == "step"
    if arch != "cpu":
        assert "TFLOP/s" in plan.plot(kind="roofline").get_ylabel()
    pyplot.close("all")


def test_a_picture_names_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(gett.OptionError, match="kind='pie'; it must be one of 'roofline', 'steps'"):
        chain(3).plot(kind="pie")  # type: ignore[arg-type]
    with pytest.raises(gett.OptionError, match="no steps"):
        gett.plan("ab,bc->ac", ((0, 3), "float32"), ((3, 4), "float32")).plot(kind="steps")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(gett.MissingPackageError, match="pip install matplotlib"):
        chain(20).plot()
