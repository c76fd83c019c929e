"""Slices over executors of other libraries: Dask's cluster of local processes, loky's pool, mpi4py's pool."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import mpiexec, operands, plan, same_bits, variables

import gett

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def over(executor: Any, **options: Any) -> Any:
    arrays = operands(7)
    return gett.distributed.contract(plan(arrays), arrays, executor=executor, slices=64, **options)


@pytest.fixture(scope="module")
def want() -> Any:
    """The result of one thread."""
    with ThreadPoolExecutor(1) as pool:
        return over(pool)


def test_a_dask_cluster_of_processes(want, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "local_directory": str(tmp_path)}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        report = gett.distributed.Report()
        assert same_bits(over(client, report=report), want)
        assert len(report.slices) == 2
        assert same_bits(over(client.get_executor(pure=False)), want)


def test_a_pool_of_loky(want):
    loky = pytest.importorskip("loky")
    executor = loky.get_reusable_executor(2)
    try:
        assert same_bits(over(executor), want)
    finally:
        executor.shutdown(kill_workers=True)


def test_a_pool_of_mpi(want, tmp_path):
    program = (
        "import sys\nimport numpy as np\nfrom mpi4py.futures import MPIPoolExecutor\nfrom test_engines import over\n"
        "if __name__ == '__main__':\n    with MPIPoolExecutor() as pool:\n        np.save(sys.argv[1], over(pool))\n"
    )
    script, result = tmp_path / "pool.py", tmp_path / "result.npy"
    script.write_text(program)
    command = [mpiexec(), "-n", "3", sys.executable, "-m", "mpi4py.futures", str(script), str(result)]
    done = subprocess.run(command, env=variables(), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert same_bits(np.load(result), want)


def test_a_sliced_tree_of_cotengra():
    cotengra = pytest.importorskip("cotengra")
    inputs, output, shapes, sizes = cotengra.utils.rand_equation(10, 3, n_out=2, seed=3, d_min=3, d_max=5)
    path = cotengra.array_contract_path(inputs, output, sizes, optimize="greedy")
    tree = cotengra.ContractionTree.from_path(inputs, output, sizes, path=path).slice(target_slices=8)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, s).astype(float) for s in shapes]
    report = gett.distributed.Report()
    with ThreadPoolExecutor(3) as pool:
        found = gett.distributed.contract(tree, arrays, executor=pool, report=report)
    np.testing.assert_array_equal(found, tree.contract(arrays))
    assert sum(report.slices.values()) == tree.nslices >= 8
