"""What is published: one version, one address, what a wheel holds, and install commands that a clone has."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import gett
from gett.errors import INSTALL_GPU

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORDS = re.compile(re.escape(gett.__version__))


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "gett/version.py"
    for name in ("pyproject.toml", "CITATION.cff", ".github/conda/meta.yaml"):
        assert not WORDS.search((ROOT / name).read_text(encoding="utf-8")), name


def test_every_file_names_the_same_address() -> None:
    urls = PROJECT["project"]["urls"]
    source, home = urls["Source"], urls["Homepage"]
    for name in ("CITATION.cff", ".github/conda/meta.yaml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert source in text, name
        assert home in text, name


def test_the_recipe_and_the_workflow_ask_for_what_the_project_asks_for() -> None:
    recipe = (ROOT / ".github" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    for requirement in PROJECT["project"]["dependencies"]:
        name, _, least = requirement.partition(">=")
        assert f"- {name} >={least}" in recipe
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    tested = re.search(r"python: \[(.*)\]", workflow)
    assert tested
    versions = [x.strip(' "') for x in tested[1].split(",")]
    classifiers = PROJECT["project"]["classifiers"]
    assert versions == [c.rsplit(" ", 1)[1] for c in classifiers if re.fullmatch(r".*Python :: 3\.\d+", c)]
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"


def test_install_commands_name_extras_that_there_are() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    named = re.findall(r"\.\[(\w+)\]", INSTALL_GPU)
    assert set(named) == {"cuda13", "cuda12"} <= set(extras)
    for path in (ROOT / "gett").rglob("*.py"):
        assert "install gett[" not in path.read_text(encoding="utf-8"), path


@pytest.mark.slow
def test_the_wheel_holds_the_engine_and_no_rivals(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"gett-{gett.__version__}-")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    assert {n.split("/")[0] for n in names} == {"gett", "layouts", f"gett-{gett.__version__}.dist-info"}
    assert not [n for n in names if "baselines" in n or "rivals/" in n]
    assert "gett/kernels/kernel/gemm.cuh" in names
    assert "gett/py.typed" in names
    assert f"Version: {gett.__version__}" in metadata
    assert "Project-URL: Source" in metadata


def test_the_package_asks_for_nothing_else_at_import() -> None:
    tree = ast.parse((ROOT / "gett" / "__init__.py").read_text(encoding="utf-8"))
    modules = {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    assert modules <= {"gett", "importlib", "typing"}
