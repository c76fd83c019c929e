"""What `mypy --strict` says of a user's program: types of results, and names of options that are none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from opt_einsum.paths import get_path_fn

import gett
import gett.typing
from gett.ir.tensors import PRECISIONS

NUMPY = """
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import gett
from gett.typing import Optimize, Order, Precision

a: NDArray[np.float64] = np.ones((3, 3))
b: NDArray[np.float32] = np.ones((3, 3), np.float32)


def product(x: NDArray[Any], y: NDArray[Any], precision: Precision, order: Order = "K") -> NDArray[Any]:
    return gett.einsum("ij,jk->ik", x, y, precision=precision, order=order)


def trace(x: NDArray[np.float64]) -> float:
    return float(gett.einsum("ii->", x))


optimize: Optimize = ("greedy", "1GiB")
assert_type(gett.einsum("ij,jk->ik", a, b), NDArray[Any])
assert_type(gett.einsum(a, [0, 1], b, [1, 2], [0, 2]), NDArray[Any])
assert_type(gett.einsum("ij,jk", a, 2.0, out=a, dtype="f8", casting="unsafe", optimize=optimize), NDArray[Any])
assert_type(gett.contract("ij,jk->ik", a, b, b, alpha=2, out=a, memory_limit=100, conj=[True, False]), NDArray[Any])
assert_type(gett.contract("ij->ij", a, epilogue=lambda d: gett.ops.relu(d)), NDArray[Any])
assert_type(gett.tensordot(a, b, 1), NDArray[Any])
assert_type(gett.transpose(a, (1, 0)), NDArray[Any])
plan = gett.plan("ij,jk->ik", a, (b.shape, "float32"), optimize=[(0, 1)], workspace_limit="1GiB", arch="sm_90a")
assert_type(plan, gett.ContractionPlan)
assert_type(plan(a, b, alpha=2.0), NDArray[Any])
expression = gett.contract_expression("ij,jk->ik", (3, 3), b, constants=[1])
assert_type(expression(a, out=b), NDArray[Any])
path, info = gett.contract_path("ij,jk->ik", a, b)
gett.einsum("ij,jk->ik", a, b, optimize=path)
gett.einsum("ij,jk->ik", a, b, optimize=gett.einsum_path("ij,jk->ik", a, b)[0])
with gett.precision("tf32"):
    pass
"""

TORCH = """
from typing import assert_type

import torch

import gett

t = torch.ones(3, 3)


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return gett.einsum("ij,jk->ik", x, y, dtype=torch.float64)


assert_type(gett.einsum("ij,jk->ik", t, t, out=t), torch.Tensor)
assert_type(gett.contract("ij,jk->ik", t, t, alpha=2), torch.Tensor)
assert_type(gett.tensordot(t, t), torch.Tensor)
assert_type(gett.plan("ij,jk->ik", t, t)(t, t), torch.Tensor)
"""

WRONG = {  # a line that is reported, and a word of what is said of it
    'gett.einsum("ij,jk", a, a, precision="tf23")': "call-overload",
    'gett.einsum("ij,jk", a, a, order="Q")': "call-overload",
    'gett.einsum("ij,jk", a, a, casting="sure")': "call-overload",
    'gett.einsum("ij,jk", a, a, optimize="gredy")': "arg-type",
    'gett.einsum("ij,jk", a, a, workspace_limit=1.5)': "call-overload",
    'gett.contract("ij,jk", a, a, precision="tf23")': "call-overload",
    'gett.plan("ij,jk", a, a, precision="tf23")': "arg-type",
    'gett.contract_expression("ij,jk", (3, 3), (3, 3), order="Q")': "arg-type",
    'gett.set_default_precision("tf23")': "arg-type",
    'x: str = gett.einsum("ij,jk", a, a)': "assignment",
}


def mypy(program: str, folder: Path, *options: str) -> list[str]:
    """What `mypy --strict` says of a program, without notes."""
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(folder), *options]
    done = subprocess.run([*command, str(file)], cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    return [line for line in done.stdout.splitlines() + done.stderr.splitlines() if ": note:" not in line]


@pytest.mark.slow
def test_a_user_s_program_passes_and_wrong_options_are_reported(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert mypy(NUMPY, tmp_path) == []
    head = "import gett, numpy as np\na = np.ones((3, 3))\n"
    found = mypy(head + "\n".join(WRONG), tmp_path)
    assert len(found) == len(WRONG)
    for number, (line, (program, word)) in enumerate(zip(found, WRONG.items(), strict=True), 3):
        assert line.startswith(f"program.py:{number}: error:"), program
        assert f"[{word}]" in line


@pytest.mark.slow
def test_tensors_in_are_tensors_out(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    pytest.importorskip("torch")
    assert mypy(TORCH, tmp_path) == []


def test_names_in_types_are_those_that_calls_take() -> None:
    assert set(get_args(gett.typing.Precision)) == set(PRECISIONS)
    for name in get_args(gett.typing.PathAlgorithm):
        assert name == "autotune" or callable(get_path_fn(name))
    for order in get_args(gett.typing.Order):
        gett.plan("ij->ji", ((2, 2), "f4"), order=order)
    for casting in get_args(gett.typing.Casting):
        gett.plan("ij->ji", ((2, 2), "f4"), casting=casting)
