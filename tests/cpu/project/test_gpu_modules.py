"""Tests for GPUs, which CI does not run, follow what they import."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

OWN = ("benchmarks", "gett", "layouts", "tests")
FOLDER = Path(__file__).parents[2] / "gpu"


@pytest.mark.parametrize("name", sorted(x.stem for x in FOLDER.glob("*.py")))
def test_a_module_of_tests_for_gpus_imports_what_there_is(name: str) -> None:
    try:
        importlib.import_module(f"tests.gpu.{name}")
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] in OWN:
            raise
        pytest.skip(f"{error.name} is not installed")
