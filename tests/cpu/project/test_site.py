"""The site: its pages' code runs, its examples print what they show, its reference is complete, it builds strictly."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import gett
from tests.sampling import slow_but

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path.parent.name != "notes")
WITH_CODE = [name for name in PAGES if re.search(r"^```python|^<!-- python", (DOCS / name).read_text(), re.MULTILINE)]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = load(DOCS / "hooks.py")


@pytest.mark.parametrize("name", slow_but(WITH_CODE, lambda x: x != "reference/cli.md"))
def test_the_code_of_pages_runs(name: str) -> None:
    text = HOOKS.filled((DOCS / name).read_text(encoding="utf-8"), name)
    assert "<!-- output" not in text
    assert "<!-- python" not in text
    assert "WRONG" not in text
    if name == "tutorial.md":
        printed = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert len(printed) == text.count("```text")
        assert all(block.strip() for block in printed)
        assert "False" not in "".join(printed)


def test_code_that_fails_names_its_page() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)some\.md: ZeroDivisionError.*1 / 0"):
        HOOKS.filled("```python\nx = 1 / 0\n```\n", "some.md")


def test_outputs_are_those_of_the_block_before() -> None:
    text = "```python\nx = 2\nprint(x)\n```\n\n<!-- output -->\n\n<!-- python\nprint(f'| {x + 1} |')\n-->\n"
    assert HOOKS.filled(text, "some.md").split("```\n\n", 1)[1] == "```text\n2\n```\n\n| 3 |\n"


# --- the reference


def test_the_reference_has_every_public_name_once() -> None:
    names = [name for name in PAGES if name.startswith("reference/") and name != "reference/cli.md"]  # commands alone
    pages = [HOOKS.filled((DOCS / name).read_text(), name) for name in names]
    found = [name for text in pages for name in re.findall(r"^::: gett\.(\w+)$", text, re.MULTILINE)]
    assert sorted(found) == sorted(name for name in gett.__all__ if not name.startswith("__"))


def test_a_new_public_name_gets_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    class NewError(gett.GettError):
        pass

    monkeypatch.setattr(gett, "NewError", NewError, raising=False)
    monkeypatch.setattr(gett, "new_function", len, raising=False)
    monkeypatch.setattr(gett, "__all__", [*gett.__all__, "NewError", "new_function"])
    assert HOOKS.public_names("errors")[-1] == "NewError"
    assert HOOKS.public_names("contractions")[-1] == "new_function"
    assert "new_function" not in HOOKS.public_names("plans")


# --- the examples

EXAMPLES = {
    "embedding": (),
    "ladder": (),
    "random_circuit": ("cotengra",),
    "dmrg_step": ("scipy",),
    "peps_quimb": ("quimb", "cotengra"),
    "ground_states": ("quimb", "torch"),
    "attention_torch": ("torch",),
    "train_torch": ("torch",),
    "train_jax": ("jax",),
    "ccsd_pyscf": ("pyscf",),
}
SLOW = ("ccsd_pyscf", "ground_states", "train_torch")


def test_every_example_is_tested_and_has_a_page() -> None:
    assert {path.stem for path in (DOCS / "examples").glob("*.py")} == set(EXAMPLES)
    assert {path.stem for path in (DOCS / "examples").glob("*.md")} == {"index", *EXAMPLES}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in EXAMPLES]
)
def test_examples_print_what_their_pages_show(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for package in EXAMPLES[name]:
        pytest.importorskip(package)
    load(DOCS / "examples" / f"{name}.py").main()
    shown = (DOCS / "examples" / "output" / f"{name}.txt").read_text(encoding="utf-8")
    same_text(capsys.readouterr().out, shown)


def same_text(found: str, shown: str) -> None:
    """Equal but for the last digits of numbers; and nothing that the page shows is false."""
    number = r"-?\d+\.\d+(?:[eE][+-]?\d+)?"
    assert "False" not in shown
    assert re.sub(number, "#", found) == re.sub(number, "#", shown)
    for x, y in zip(re.findall(number, found), re.findall(number, shown), strict=True):
        assert math.isclose(float(x), float(y), rel_tol=1e-6, abs_tol=1e-8), (x, y)


def test_texts_that_differ_are_seen() -> None:
    same_text("energy -1.00000001", "energy -1.0")
    for found in ("energy -1.1", "force -1.0", "energy -1.0 2.0"):
        with pytest.raises(AssertionError):
            same_text(found, "energy -1.0")


# --- charts and measurements


def test_no_two_series_of_a_chart_have_one_colour() -> None:
    from benchmarks import charts

    libraries = [charts.GETT, *(colour for _, _, colour, _ in charts.RIVALS), charts.TBLIS, charts.NUMPY]
    assert len(set(libraries)) == len(libraries)
    ways = [colour for _, colour, _, _ in charts.WAYS.values()]
    assert len(set(ways)) == len(ways)
    assert len({mark for _, _, mark, _ in charts.WAYS.values()}) == len(ways)
    assert {charts.WAYS["gett bf16x6"][1]} == {charts.GETT}  # the default has gett's colour everywhere


def test_the_famous_contractions_have_their_rivals() -> None:
    from benchmarks import charts

    rows = charts.famous_rows()
    assert len(rows) == 8
    for title, _, row in rows:
        for names in (("gett",), *(names for _, names, _, _ in charts.RIVALS[:2])):
            assert charts.us_of(row, names), (title, names)
    # emulations, which form other products, do not stand for the library
    row = next(row for run in charts.load(charts.WORKLOADS) for row in run.rows if any("/" in n for n in row.times))
    plain = [m.median_us for n, m in row.times.items() if n.startswith("cutensor:") and "/" not in n and m.median_us]
    assert charts.us_of(row, ("cutensor:",)) == min(plain)


@pytest.mark.slow
@pytest.mark.parametrize("chart", ["readme", "workloads", "accuracy"])
def test_charts_are_drawn(chart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks import charts

    monkeypatch.setattr(charts, "IMAGES", tmp_path)
    draw: dict[str, Callable[[], None]] = {
        "readme": lambda: charts.readme(tmp_path / "readme-h200.png"),
        "workloads": charts.workload_charts,
        "accuracy": charts.accuracy_charts,
    }
    draw[chart]()
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == sorted(path.name for path in (DOCS / "images").glob(f"{chart}-*") if path.name in drawn)
    assert drawn


def test_a_record_of_the_threads_fills_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks import charts, site_tables

    call = {"gett.einsum": {"us": 12.34, "exact": True, "peak_bytes": 1 << 30}, "torch.einsum": {"error": "no memory"}}
    record = {
        "cases": [{"name": "conjugate", "calls": call}],
        "cutensor": {"strided-view": {"error": "exit status -8"}},
        "first_calls": {"gett": {"first_s": 0.5, "second_s": 0.001, "third_s": 0.001}},
    }
    monkeypatch.setattr(charts, "RESULTS", tmp_path)
    site_tables.thread("conjugate")
    assert site_tables.MISSING in capsys.readouterr().out
    (tmp_path / "2026-01-01-x-threads.json").write_text(json.dumps(record))
    site_tables.thread("conjugate")
    site_tables.refused("strided-view")
    site_tables.first_calls()
    text = capsys.readouterr().out
    assert site_tables.MISSING not in text
    for part in ("| gett.einsum | 12.3 | 1 GiB | exact |", "no memory", "exit status -8", "| gett | 0.5 s | 0.001 s |"):
        assert part in text


def test_the_page_of_reasons_asks_for_cases_that_are_measured() -> None:
    pytest.importorskip("torch")
    from benchmarks.thread_cases import CASES
    from benchmarks.thread_machine import Machine

    machine = Machine(on_gpu=False)
    wanted = set(re.findall(r'site_tables\.thread\("([\w-]+)"\)', (DOCS / "why.md").read_text()))
    assert wanted == {make(machine).name for make in CASES}


@pytest.mark.slow
def test_the_threads_are_exact_on_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from benchmarks.thread_cases import CASES

    command = [sys.executable, "-m", "benchmarks.threads", "--cpu", "--json", str(tmp_path / "threads.json")]
    subprocess.run(command, cwd=ROOT, timeout=300, check=True)  # it sets the number of PyTorch's threads
    cases = json.loads((tmp_path / "threads.json").read_text())["cases"]
    assert [next(iter(case["calls"].values()))["exact"] for case in cases] == [True] * len(CASES)


@pytest.mark.slow
def test_the_ccsd_benchmark_has_equal_energies(tmp_path: Path) -> None:
    pytest.importorskip("pyscf")
    target = tmp_path / "pyscf.json"
    options = ["--basis", "6-31g", "--turns", "1", "--json", str(target)]
    subprocess.run([sys.executable, "-m", "benchmarks.pyscf_ccsd", *options], cwd=ROOT, timeout=300, check=True)
    assert {"PySCF, NumPy", "gett"} <= {row["einsum"] for row in json.loads(target.read_text())["rows"]}


# --- the build


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    built = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*")}
    assert "reference/contractions/index.html" in built
    assert "images/readme-h200.png" in built
    assert not any(name.endswith((".py", "output")) for name in built)
    page = (tmp_path / "site" / "reference" / "contractions" / "index.html").read_text(encoding="utf-8")
    assert "numpy.einsum" in page
