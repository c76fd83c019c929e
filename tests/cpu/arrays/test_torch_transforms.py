"""vmap, autocast, gradients and nested tensors of PyTorch, on CPU tensors."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gett
from gett.ir.subscripts import sums_products
from tests.cpu.fake_torch import State, decode, encode, tensor
from tests.cpu.strategies import integers_of

ROOT = Path(__file__).parents[3]
PROGRAM = """
import warnings
import torch
from tests.cpu.arrays.torch_transforms import check
warnings.simplefilter("ignore")
check(torch, "cpu")
print("all", "right")
"""

if find_spec("torch") is not None:

    @pytest.mark.slow
    def test_transformations_autocast_and_nesting() -> None:
        done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.stdout.split() == ["all", "right"], done.stderr


@pytest.mark.parametrize(
    ("spec", "sums"),
    [
        ("ij,jk->ik", True),
        ("ij,jk", True),
        ("...ij,...jk->...ik", True),
        ("ij,ij->ij", False),
        ("i,j", False),
        ("ii,j->j", False),
        ("ij,j->ij", False),
        ("ii", False),
        (((0, 1), (1, 2), (0, 2)), True),
        (((0, 1), (1, 2), None), True),
        (((0,), (1,), (0, 1)), False),
    ],
)
def test_which_contractions_sum_products(spec: Any, sums: bool) -> None:
    assert sums_products(spec) is sums


def test_autocast_of_cuda_tensors(torch: Any) -> None:
    """On the stand-in, where the warm path is that of CUDA tensors."""
    integers = integers_of(np.random.default_rng(1), 300, "float32")
    a, b = tensor(integers(4, 4)), tensor(integers(4, 4))
    plain = gett.einsum("ij,jk->ik", a, b)
    State.autocast = "bfloat16"
    rounded = [decode(encode(x.values(), "bfloat16"), "bfloat16").astype("f8") for x in (a, b)]
    expected = decode(encode(rounded[0] @ rounded[1], "bfloat16"), "bfloat16")
    for call in (gett.einsum, gett.einsum, gett.contract):
        result = call("ij,jk->ik", a, b)
        assert result.dtype.name == "bfloat16"
        np.testing.assert_array_equal(result.values(), expected)
    assert gett.einsum("ij,ij->ij", a, b).dtype.name == "bfloat16"
    half = tensor(integers(4, 4), "float16")
    for subscripts in ("ij->i", "ii", "ij->ji", "ii->i"):
        for one in (a, half):
            assert gett.einsum(subscripts, one).dtype.name == "bfloat16", subscripts
            assert gett.contract(subscripts, one).dtype.name == "bfloat16", subscripts
    assert gett.transpose(a).dtype.name == "float32"
    assert gett.plan("ij,jk->ik", a, b)(a, b).dtype.name == "float32"
    wide = tensor(integers(4, 4), "float64")
    assert gett.einsum("ij,jk->ik", a, wide).dtype.name == "float64"
    State.autocast = None
    np.testing.assert_array_equal(gett.einsum("ij,jk->ik", a, b).values(), plain.values())
