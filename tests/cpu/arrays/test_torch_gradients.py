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
print("all", "right")
"""


def run(module: str, check: str) -> None:
    program = PROGRAM.format(module=module, check=check)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["all", "right"], done.stdout + done.stderr


if find_spec("torch") is not None:

    @pytest.mark.slow
    @pytest.mark.parametrize("check", ["check_gradients", "check_drawn", "check_memory", "check_checkpoints"])
    def test_derivatives_of_many_contractions(check: str) -> None:
        run("torch_gradients", check)

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
