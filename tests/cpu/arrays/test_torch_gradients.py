"""Derivatives of contractions of PyTorch's CPU tensors, in processes of their own: other tests have no PyTorch."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import warnings
import torch
from tests.cpu.arrays.{module} import {check}
warnings.simplefilter("ignore")
torch.manual_seed(1)
torch.set_num_threads(1)
{check}(torch)
print("all right")
"""
DRAWN = """
import warnings
import torch
from tests.cpu.arrays.torch_drawn import check
warnings.simplefilter("ignore")
torch.set_num_threads(1)
print("all right:", check(torch, {count}))
"""


def printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("all right"), done.stdout + done.stderr
    return done.stdout


def run(module: str, check: str) -> None:
    assert printed(PROGRAM.format(module=module, check=check)).split() == ["all", "right"]


if find_spec("torch") is not None:

    @pytest.mark.slow
    @pytest.mark.parametrize("check", ["check_gradients", "check_drawn", "check_memory", "check_checkpoints"])
    def test_derivatives_of_many_contractions(check: str) -> None:
        run("torch_gradients", check)

    def test_gradients_of_drawn_calls() -> None:
        printed(DRAWN.format(count=20))

    @pytest.mark.slow
    def test_gradients_of_a_thousand_drawn_calls_and_their_bits() -> None:
        assert len({printed(DRAWN.format(count=1000)) for _ in range(2)}) == 1

    @pytest.mark.slow
    @pytest.mark.parametrize("check", ["check_epilogues", "check_epilogue_transforms"])
    def test_derivatives_of_epilogues(check: str) -> None:
        run("torch_epilogues", check)

    @pytest.mark.parametrize("check", ["check_dtypes", "check_refusals"])
    def test_what_is_recorded_and_what_is_not(check: str) -> None:
        run("torch_gradients", check)

    @pytest.mark.slow
    @pytest.mark.parametrize("check", ["check_transforms", "check_operator", "check_compiled"])
    def test_transformations_and_tracing(check: str) -> None:
        run("torch_derivatives", check)

    @pytest.mark.parametrize(
        "check", [pytest.param("check_derivatives", marks=pytest.mark.slow), "check_bound",
                  pytest.param("check_launched", marks=pytest.mark.slow)]
    )  # fmt: skip
    def test_tensors_that_pose_as_a_gpus(check: str) -> None:
        run("torch_posed", check)
