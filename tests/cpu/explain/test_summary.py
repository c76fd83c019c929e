"""What `print(plan)` tells people: at most ten lines, forty of a network; the same as HTML, as data, as a picture."""

from __future__ import annotations

import json
from typing import Any, get_args

import numpy as np
import pytest

import gett
from gett.explain import summary as told
from gett.explain.roofline import peak_tflops
from gett.hw.archs import arch_facts
from gett.schedule.spec import mainloop
from tests.cases import tccg

FACTS = arch_facts("sm_90a")


def facts_of(text: str) -> dict[str, str]:
    """The lines behind the title by their names."""
    found: dict[str, str] = {}
    for line in text.splitlines()[1:]:
        found.setdefault(line[2:12].strip(), line[12:])
    return found


def square(n: int, dtype: str, arch: str | None = "sm_90a", **options: Any) -> gett.ContractionPlan:
    return gett.plan("ab,bc->ac", ((n, n), dtype), ((n, n), dtype), arch=arch, **options)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float16", marks=pytest.mark.slow)])
def test_every_plan_is_told_in_ten_lines_that_fit_a_terminal(dtype: str) -> None:
    for case in tccg()[::4]:
        inputs, _ = case.subscripts.split("->")
        pairs = [(tuple(case.extents[m] for m in term), dtype) for term in inputs.split(",")]
        for arch in ("cpu", "sm_80", "sm_90a"):
            lines = str(gett.plan(case.subscripts, *pairs, arch=arch)).splitlines()
            assert len(lines) <= told.LINES
            assert max(map(len, lines)) <= told.WIDEST
            assert lines[0].startswith(case.subscripts)


def test_a_product_is_told_with_its_groups_kernel_rates_and_roofline() -> None:
    plan = gett.plan("iek,kbf->ibfe", ((32, 24, 64), "float16"), ((64, 40, 16), "float16"), arch="sm_90a")
    facts = facts_of(str(plan))
    schedule = plan.steps[0].schedule
    assert schedule is not None
    assert "K 64 (k)" in facts["is"]
    assert {"640 (bf)", "768 (i e)"} <= {f"{x.split(' ', 1)[1]}" for x in facts["is"].split(";")[0][5:].split(" x ")}
    assert facts["kernel"].startswith(told.KERNELS[schedule.kind])
    assert " x ".join(map(str, schedule.tiling.shape)) in facts["kernel"]
    seconds = 1e-6 * schedule.forecast.us
    roof = max(plan.flops / (1e12 * FACTS.tensor_tflops["float16"]), plan.bytes / (1e12 * FACTS.dram_tbps))
    assert f"{100 * roof / seconds:.0f} % of the roofline" in facts["time"]
    assert schedule.forecast.bound in facts["bound by"]


def test_a_plan_without_a_gpu_tells_numpys_route_and_no_time() -> None:
    facts = facts_of(str(square(300, "float32", None)))
    assert facts["runs as"] == "NumPy: one BLAS call"
    assert facts["products"] == "in float32, by NumPy"
    assert "time" not in facts
    assert "bf16" not in str(square(300, "float32", None))


@pytest.mark.parametrize(
    ("dtype", "precision", "words"),
    [
        ("float32", None, "6 of bfloat16 planes of each number, sums in float32; errors at most 13 + k / 16 units"),
        ("float32", "fp16x3", "3 of float16 planes of each number"),
        ("float32", "tf32", "of factors rounded to TF32 (10 bits), sums in float32"),
        ("complex64", None, "6 of bfloat16 planes of each part"),
        ("float64", None, "of float64 factors as they are, sums in float64"),
        ("float32", "ieee", "of float32 factors as they are, sums in float32"),
    ],
)
def test_how_products_are_formed_is_told(dtype: str, precision: str | None, words: str) -> None:
    assert words in facts_of(str(square(2048, dtype, precision=precision)))["products"]


def test_the_peak_is_that_of_the_unit_that_forms_the_products() -> None:
    tensor = FACTS.tensor_tflops
    assert peak_tflops(FACTS, "float16", "ieee") == tensor["float16"]
    assert peak_tflops(FACTS, "float32", "bf16x6") == tensor["bfloat16"] / 6
    assert peak_tflops(FACTS, "float32", "tf32") == tensor["tf32"]
    assert peak_tflops(FACTS, "float32", "ieee") == FACTS.fma_tflops["float32"]
    assert peak_tflops(FACTS, "complex128", "ieee") == tensor["float64"]
    older = arch_facts("sm_80")  # no kernel multiplies in planes there
    assert peak_tflops(older, "complex64", "bf16x6") == older.fma_tflops["complex64"]


def test_padding_is_advised_where_it_pays_and_the_gain_is_that_of_the_padded_plan() -> None:
    plan = square(7247, "float16")
    advice = facts_of(str(plan))["advice"]
    assert advice.startswith("pad b from 7247 to 7248, c from 7247 to 7248: ")
    padded = gett.plan("ab,bc->ac", ((7247, 7248), "float16"), ((7248, 7248), "float16"), arch="sm_90a")
    before, after = (p.steps[0].schedule.forecast.us for p in (plan, padded))  # type: ignore[union-attr]
    assert advice.endswith(f"{before / after:.2g} times as fast")
    assert "pad" not in str(padded)


@pytest.mark.slow
def test_a_workspace_that_is_too_small_is_told_with_the_size_that_helps() -> None:
    pairs = ((512, 512, 128), "float16"), ((512, 512, 128), "float16")
    starved = gett.plan("ika,jka->ija", *pairs, arch="sm_90a", workspace_limit=0)
    fed = gett.plan("ika,jka->ija", *pairs, arch="sm_90a")
    assert fed.workspace_bytes
    assert 'workspace_limit="' in str(starved)
    assert "workspace_limit" not in str(fed)
    assert "dense copies of" in facts_of(str(fed))["memory"]


def test_advice_leaves_the_plan_cache_as_it_was() -> None:
    plan = square(1001, "float16")
    before = gett.plan_cache.info()
    assert "advice" in str(plan)
    assert gett.plan_cache.info() == before


def test_short_calls_are_told_what_a_launch_takes() -> None:
    assert "launches are" in str(square(32, "float32"))
    assert "launches are" not in str(square(4096, "float32"))


def test_a_network_is_told_by_its_path_and_costliest_steps() -> None:
    shapes = [((64, 500), "float32"), ((500, 600), "float32"), ((600, 70), "float32"), ((70, 8), "float32")]
    plan = gett.plan("ab,bc,cd,de->ae", *shapes, arch="sm_90a")
    text = str(plan)
    assert ", 3 steps" in text.splitlines()[0]
    assert "op along the path" in facts_of(text)["path"]
    assert "intermediates" in facts_of(text)["memory"]
    costs = [s.schedule.forecast.us for s in plan.steps if s.schedule is not None]
    first = next(line for line in text.splitlines() if line.startswith("  step"))
    assert first.split()[1] == str(1 + costs.index(max(costs)))
    assert len(text.splitlines()) <= told.MOST


def test_printing_compiles_nothing_and_detail_shows_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = square(200, "float16")
    compiled: list[int] = []
    monkeypatch.setattr(gett.ContractionPlan, "settle", lambda self: compiled.append(1) or self)
    str(plan)
    assert not compiled
    assert "stride A" in plan.explain(detail=True)
    assert compiled


def test_every_main_loop_and_loader_has_words() -> None:
    kinds = {str(x.kind) for x in get_args(mainloop.Mainloop) if isinstance(x.kind, str)} | {"mma.sync", "simt"}
    assert kinds == {*told.KERNELS}


def test_results_without_elements_and_scalars_are_told() -> None:
    assert "no elements" in str(gett.plan("ab,bc->ac", ((0, 3), "float32"), ((3, 4), "float32")))
    assert "permutation" in str(gett.plan("->", ((), "float32")))


def test_html_is_the_same_facts_escaped() -> None:
    plan = square(64, "float32", None)
    page = plan._repr_html_()
    for name, text in facts_of(str(plan)).items():
        assert f">{name}</th>" in page
        assert text.replace("<", "&lt;") in page
    odd = gett.plan(np.ones((2, 2)), ["<", "&"], ["&", "<"])
    assert "&lt;&amp;-&gt;&amp;&lt;" in odd._repr_html_()


def test_data_is_json() -> None:
    record = square(64, "float16").to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["subscripts"] == "ab,bc->ac"
    assert record["steps"][0]["schedule"] is not None


@pytest.mark.slow
def test_the_roofline_is_drawn_with_a_point_for_each_step() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    plan = gett.plan("ab,bc,cd->ad", *[((900, 900), "float32")] * 3, arch="sm_90a")
    ax = plan.plot()
    points = [line for line in ax.lines if line.get_marker() == "o"]
    assert len(points) == len(plan.steps) == 2
    for line, step in zip(points, plan.steps, strict=True):
        assert line.get_xdata()[0] == step.gemm.flops / step.gemm.bytes
    (roof,) = [line for line in ax.lines if line.get_marker() != "o"]
    assert max(roof.get_ydata()) == peak_tflops(FACTS, "float32", "bf16x6")
    assert plan.plot(ax) is ax
    pyplot.close("all")


def test_what_has_no_roofline_says_why() -> None:
    with pytest.raises(gett.OptionError, match="plans for a GPU"):
        square(64, "float32", None).plot()
    with pytest.raises(gett.OptionError, match="no products"):
        gett.plan("ab->ba", ((64, 64), "float32"), arch="sm_90a").plot()
