"""`torch.compile` around calls of this package, with CPU tensors."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import gett
from gett.arrays import dynamo, kinds

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, gett
assert "torch" not in sys.modules
import torch
from tests.cpu.arrays.torch_compiled import check
check(torch, "cpu", {backends})
print("all", "right")
"""


def run(backends: tuple[str, ...]) -> None:
    program = PROGRAM.format(backends=backends)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["all", "right"], done.stdout + done.stderr
    assert not done.stderr


if find_spec("torch") is not None:

    @pytest.mark.slow
    def test_compiled_functions_call_as_eager_ones_do() -> None:
        run(("eager",))

    @pytest.mark.slow
    def test_functions_compiled_by_inductor() -> None:
        run(("inductor",))


def test_marks_are_on_what_users_call_and_on_what_that_calls_early() -> None:
    """The attributes that TorchDynamo looks for; without PyTorch nothing else can be said."""
    for function in (
        gett.einsum,
        gett.contract,
        gett.plan,
        gett.tensordot,
        gett.transpose,
        gett.ContractionPlan.__call__,
    ):
        assert vars(function)["_torchdynamo_disable"] is True
    assert vars(kinds.cupy_kind)["_torchdynamo_inline"] is dynamo._leave
