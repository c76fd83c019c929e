"""`gett.jax` on a GPU, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[2]
PROGRAM = """
import jax
try:
    jax.local_devices(backend="gpu")
except RuntimeError:
    print("no", "GPU")
else:
    from tests.gpu.jax_products import check_products
    check_products()
"""


@pytest.mark.parametrize("least", [5, 1])
def test_products_run_on_xlas_buffers(least: int) -> None:
    """XLA makes CUDA graphs of so many operations in a row at least, 5 by default: of each product with 1."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_graph_min_graph_size={least}"
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": flags.strip()}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.stdout.split() == ["no", "GPU"]:
        pytest.skip("JAX is installed without a GPU")
    assert done.stdout.split() == ["all", "right"], done.stdout + done.stderr
