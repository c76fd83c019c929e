"""The documents say what is there: paths, examples, the figures of the worked contraction."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from statistics import geometric_mean
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import gett
from gett.codegen.render import render_kernel
from gett.plans.contraction_plan import ContractionPlan
from gett.schedule.spec.epilogue import DsmemExchange, R2SCopy, Store, TmaSource, VectorSource
from gett.schedule.spec.loader import HopperLoader, Multicast, Transpose
from gett.schedule.spec.mainloop import Mainloop, Multistage
from gett.schedule.spec.schedule import SmemPlan, TileScheduler
from tests.prose import sentences, too_long

ROOT = Path(__file__).parents[3]
FOLDERS = ("docs", "docs/guide", "docs/examples", "docs/reference")
DOCS = sorted([*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))])
IN_USE = [path for path in DOCS if path.name.lower() != "changelog.md"]
IN_USE_NAMES = [path.relative_to(ROOT).as_posix() for path in IN_USE]
NAMES = [path.relative_to(ROOT).as_posix() for path in DOCS]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DOCS, ids=NAMES)
def test_links_lead_to_files(path: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)  # code that makes links
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in link:
            assert (path.parent / link).exists(), link


PLAIN = [path for path in IN_USE if path.name != "design.md"]


@pytest.mark.parametrize("path", PLAIN, ids=[path.relative_to(ROOT).as_posix() for path in PLAIN])
def test_sentences_are_short(path: Path) -> None:
    assert too_long(path.read_text(encoding="utf-8"), most=30) == []


def test_the_design_is_short_and_so_are_its_sentences() -> None:
    text = text_of("docs/design.md")
    assert text.count("\n") <= 400
    assert max(len(line) for line in text.splitlines()) <= 120
    assert too_long(text, most=25) == []


def test_a_long_sentence_is_found_and_what_is_no_prose_is_not() -> None:
    words = " ".join(["word"] * 25)
    assert too_long(f"Short one. {words} and\none more. Another.", most=25) == [f"28 words: {words} and one more."]
    assert too_long(f"- An item ({words} 26).", most=25)  # items and what stands in parentheses count
    assert too_long(f"Some [link of {words}](to.md).", most=25)
    for text in (
        f"```text\n{words} more\n```",
        f"| {words} | {words} |",
        f"<!-- {words}\n{words} -->",
        f"# {words} {words}",
    ):
        assert sentences(text) == []
    assert not too_long(f"`{words} {words}` is a name.", most=25)
    assert not too_long(", ".join(f"`name{n}`" for n in range(40)) + " and `last` are names.", most=25)
    assert sentences("- First.\n- Second (a `b`) holds.\n\nThird, 2.5 times. Fourth?") == [
        "First.",
        "Second (a NAME) holds.",
        "Third, 2.5 times.",
        "Fourth?",
    ]


def test_the_dictionary_has_every_part_of_a_schedule() -> None:
    dictionary = text_of("docs/glossary.md").partition("## gett and CUTLASS")[2]
    gett_names = " ".join(line.split(" | ")[0] for line in dictionary.splitlines() if line.startswith("|"))
    parts = {
        *(x for union in (Mainloop, HopperLoader, Store, TileScheduler) for x in get_args(union)),
        *(Multicast, Transpose, DsmemExchange, TmaSource, VectorSource, R2SCopy, SmemPlan),
        *get_args(get_type_hints(Multistage)["a"]),
    }
    missing = {part.__name__ for part in parts if f"`{part.__name__}`" not in gett_names}
    assert missing == set()


def test_the_readme_is_short_and_its_links_lead_from_anywhere_to_what_there_is() -> None:
    text = text_of("README.md")
    assert len(text.split()) <= 900
    links = re.findall(r"\]\(([^)]+)\)", text)
    bases = {
        "https://gett-engine.github.io/gett/": ROOT / "docs",
        "https://github.com/gett-engine/gett/blob/main/": ROOT,
        "https://raw.githubusercontent.com/gett-engine/gett/main/": ROOT,
    }
    for link in links:
        base = next(b for b in bases if link.startswith(b))
        place = bases[base] / link.removeprefix(base)
        assert place.is_file() or place.with_suffix(".md").is_file() or (place / "index.md").is_file(), link


def test_the_figures_of_the_readme_are_those_of_the_records() -> None:
    results = ROOT / "benchmarks" / "results"
    found = {}
    for name in ("2026-11-23-h200-tccg-float16-all.json", "2026-11-23-h200-tccg-double.json"):
        for run in json.loads((results / name).read_text())["runs"]:
            ratios = []
            for row in run["rows"]:
                times = {who: t["median_us"] for who, t in row["times"].items() if t and t["median_us"]}
                rivals = [t for who, t in times.items() if who.startswith("cutensor:") and "/" not in who]
                ratios.append(min(rivals) / times["gett"])
            found[run["dtype"]] = geometric_mean(ratios)
    rows = json.loads((results / "2026-11-22-h200-float32.json").read_text())["rows"]
    for dtype in ("float32", "complex64"):
        ours = [r for r in rows if (r["dtype"], r["prec"], r["group"]) == (dtype, "bf16x6", "tccg")]
        found[dtype] = geometric_mean(r["ratio"] for r in ours)
    head, figures = re.search(r"^(\| float16 .*)\n.*\n(.*)$", text_of("README.md"), re.MULTILINE).groups()  # type: ignore[union-attr]
    shown = dict(zip(head.strip("| ").split(" | "), re.findall(r"([\d.]+) times", figures), strict=True))
    assert shown == {dtype: f"{found[dtype]:.2f}" for dtype in ("float16", "float32", "float64", "complex64")}


@pytest.mark.parametrize("path", IN_USE, ids=IN_USE_NAMES)
def test_files_that_are_named_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    places = [ROOT, ROOT / "gett", ROOT / "gett" / "kernels", ROOT / "gett" / "schedule"]
    for found in re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text):
        if found.startswith((".venv/", "~/")):
            continue
        assert any((place / found).exists() for place in places), found


@pytest.mark.parametrize("path", IN_USE, ids=IN_USE_NAMES)
def test_modules_and_what_they_hold_exist(path: Path) -> None:
    for found in re.findall(r"`((?:gett|layouts|benchmarks)(?:\.\w+)+)`", path.read_text(encoding="utf-8")):
        assert _found(found.split(".")), found


def _found(parts: list[str]) -> bool:
    """Whether parts name a folder, a module, or something that a module defines or has as an attribute."""
    public = parts[0] == "gett" and len(parts) == 2 and not (ROOT / "gett" / parts[1]).exists()
    if public and hasattr(gett, parts[1]):  # a folder may be a module that needs another library
        return True
    for n in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:n])
        file = module.with_suffix(".py") if module.with_suffix(".py").exists() else module / "__init__.py"
        if module.is_dir() and n == len(parts):
            return True
        if file.exists() and n < len(parts):
            return (
                re.search(rf"^\s*(?:def |class |import |from .* import .*)?{parts[n]}\b", file.read_text(), re.M)
                is not None
            )
        if file.exists():
            return True
    return False


def test_examples_run() -> None:
    scope: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text_of("README.md"), re.MULTILINE | re.DOTALL):
        exec(compile(block, "README.md", "exec"), scope)
    assert np.allclose(scope["r"], 2 * np.einsum("ijef,aebf->ijab", scope["t"], scope["v"], optimize=True))


# --- the worked contraction of docs/architecture.md


@cache
def worked() -> ContractionPlan:
    extents = dict(a=84, b=84, c=84, d=96, e=84, f=96)
    operands = [(tuple(extents[x] for x in letters), "float16") for letters in ("fced", "beaf")]
    return gett.plan("fced,beaf->abcd", *operands, arch="sm_90a")


def test_the_worked_contraction_has_the_schedule_that_is_shown() -> None:
    text = text_of("docs/architecture.md")
    step = worked().steps[0]
    s = step.schedule
    assert s is not None
    assert "tile shape {} x {} x {}".format(*s.tiling.shape) in text
    for name, box in (("M", s.tiling.m), ("N", s.tiling.n), ("K", s.tiling.k)):
        names = [["d", "c"], ["a", "b"], ["f", "e"]]["MNK".index(name)]
        cuts = ", ".join(f"{x} {d.box}" for x, (_, d) in zip(names, box.tiled, strict=True))
        assert f"Box of {name}: {cuts}" in text
    tiles = s.tiling.m.tiles, s.tiling.n.tiles
    assert f"{tiles[0]} x {tiles[1]} = {tiles[0] * tiles[1]} tiles" in text
    smem = s.smem
    for offset in (smem.stage, 2 * smem.stage, smem.staging, smem.barriers, smem.size):
        assert f" {offset} " in text


def test_the_worked_contraction_has_the_kernel_that_is_shown() -> None:
    text = text_of("docs/architecture.md")
    step = worked().steps[0]
    assert step.gemm is not None
    assert step.schedule is not None
    kernel = render_kernel(step.gemm, step.schedule)
    (launch,) = kernel.launches
    size = f"grid {launch.grid[0]}, block {launch.block[0]}, an argument of {len(launch.params)} bytes"
    assert size in text
    for shown in re.findall(r"gett::tma_load\([^;]*;", text):
        assert shown in kernel.source.text
    assert f"__launch_bounds__({launch.block[0]}, 1) {launch.entry}(" in text
    assert re.findall(r"m64n\d+k16", text)[0] in kernel.source.text
    loaded = sum(int(x) for x in re.findall(r"kTransactionBytes = ([0-9]+)", kernel.source.text))
    assert f"{loaded} bytes" in text
