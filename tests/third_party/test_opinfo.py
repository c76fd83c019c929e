"""PyTorch's own samples of einsum and tensordot, on the CPU and on a GPU, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = """
import json
import warnings
import torch
from tests.third_party.opinfo import check
warnings.simplefilter("ignore")
torch.set_num_threads(1)
there = {device!r} == "cpu" or torch.cuda.is_available()
print(json.dumps(check(torch, {device!r}) if there else None))
"""
NEEDED = {"torch": "PyTorch", "expecttest": "expecttest, which PyTorch's own tests need,"}


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_pytorchs_samples(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    for module, name in NEEDED.items():
        if find_spec(module) is None:
            pytest.skip(f'{name} is not installed: pip install -e ".[third-party]"')
    program = PROGRAM.format(device=device)
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    counts = json.loads(done.stdout)
    if counts is None:
        pytest.skip("PyTorch sees no GPU")
    with capsys.disabled():
        print(f"\n{device}: {counts}")
    assert counts["values"] >= 150
    assert counts["derivatives"] >= 24
    assert counts["values refused"] * 6 <= counts["values"]  # two samples of fourteen
