"""Sliced contractions that the tests of distributed ones share."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gett

SUBSCRIPTS = "xab,xbc,xcd->ad"


def operands(seed: int = 0, dtype: str = "float64", *, exact: bool = False) -> list[Any]:
    """Three operands; small integers where sums must be exact."""
    rng = np.random.default_rng(seed)
    shape = (24, 24, 24)
    if exact:
        return [rng.integers(-3, 4, shape).astype(dtype) for _ in range(3)]
    found = [rng.standard_normal(shape) for _ in range(3)]
    return [(x + 1j * x[::-1]).astype(dtype) if dtype.startswith("c") else x.astype(dtype) for x in found]


def plan(arrays: list[Any], limit: str = "50kB", **options: Any) -> Any:
    """A plan in some slices."""
    return gett.plan(SUBSCRIPTS, *arrays, memory_limit=limit, **options)


def same_bits(x: Any, y: Any) -> bool:
    """Whether two arrays are the same, bit for bit."""
    return bool(x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes())


@cache
def mpiexec() -> str:
    """What starts ranks; a machine where it does not start any has no such tests."""
    pytest.importorskip("mpi4py")
    found = Path(sys.executable).with_name("mpiexec")
    if not found.exists():
        pytest.skip("there is no mpiexec beside Python")
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))"
    done = subprocess.run(
        [str(found), "-n", "2", sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    if done.returncode or done.stdout.count("2") != 2:  # lines of ranks may mix
        pytest.skip(f"mpiexec starts no ranks here: {done.stdout}{done.stderr}"[:500])
    return str(found)


def variables() -> dict[str, str]:
    """The environment of a program that finds this checkout and these tests, with one thread."""
    here = Path(__file__).parent
    return {**os.environ, "PYTHONPATH": f"{here.parents[2]}{os.pathsep}{here}", "OMP_NUM_THREADS": "1"}
