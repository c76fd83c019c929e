"""Fixtures that several files share: caches, stand-ins for a GPU, a clock and PyTorch, machines of known figures."""

from __future__ import annotations

import types

import pytest

import gett
import gett.api.autotune
import gett.arrays.torch
import gett.jit.compile
import gett.plans.executables
import gett.plans.planner
import gett.runtime.build
import gett.schedule.search.select
import gett.tune.recall
import gett.tune.store
import gett.tune.tuner
from benchmarks import run_cpu, timing
from gett.cpu import arithmetic, boxes, elementwise, executable, moving, packed, tiles
from gett.errors import PoorKernelError
from gett.jit import directory, diskcache
from gett.plans.plan_cache import plan_cache
from tests.cpu.fake_driver import FakeDriver, FakeHost
from tests.cpu.fake_torch import AddressExecutable, make_torch
from tests.cpu.tuning import FACTS, FakeBench, compile_by


@pytest.fixture
def fresh_cache(monkeypatch):
    """A kernel cache that has warned of nothing and that no test before has opened."""
    monkeypatch.setattr(directory, "_warned", False)
    monkeypatch.setattr(diskcache, "_current", None)


@pytest.fixture
def wide_jax():
    """JAX with 64-bit numbers."""
    config = pytest.importorskip("jax").config
    before = config.jax_enable_x64
    config.update("jax_enable_x64", True)
    yield
    config.update("jax_enable_x64", before)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A kernel cache of the test's own, empty and on disk."""
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("GETT_CACHE_DISABLE", raising=False)
    monkeypatch.setattr(diskcache, "_current", None)


@pytest.fixture
def fake_gpu(monkeypatch, tmp_path):
    """A GPU whose launches go nowhere, an empty cache, and a compiler that takes no time."""
    driver = FakeDriver(16)
    compiled = []

    def compile_kernel(source, arch, *, compiler=None, sparing=None, **options):
        compiled.append(source)
        return gett.jit.kernel_cache().get_or_build(
            gett.jit.compile.kernel_key(source, arch, **options), lambda: f"cubin of {hash(source)}".encode()
        )

    places = (gett.runtime.build, gett.tune.recall, gett.tune.tuner, gett.api.autotune)
    stands = {"CupyHost": FakeHost, "device_facts": lambda: FACTS, "load_driver": lambda: driver}
    for module in places:
        for name, stand in stands.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, stand)
    compile_by(monkeypatch, compile_kernel)
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("GETT_CACHE_DISABLE", raising=False)
    plan_cache.clear()
    yield types.SimpleNamespace(driver=driver, compiled=compiled, folder=tmp_path)
    plan_cache.clear()


@pytest.fixture
def first_is_poor(fake_gpu, monkeypatch):
    """A compiler that takes the first kernel of each contraction for a poor one."""
    real, refused = gett.jit.compile.compile_kernel, []

    def compile_kernel(source, arch, **options):
        if not refused:
            refused.append(source)
        if source in refused:  # as it is, and sparing
            raise PoorKernelError("it spills")
        return real(source, arch, **options)

    compile_by(monkeypatch, compile_kernel)
    return refused


@pytest.fixture
def bench(fake_gpu, monkeypatch):
    made = []

    def make(cupy, plan, l2_bytes):
        made.append(plan)
        assert l2_bytes == FACTS.l2_bytes
        return FakeBench(lambda s: 100.0 - s.forecast.us)  # the model is as wrong as can be

    monkeypatch.setattr(gett.tune.tuner, "Bench", make)
    monkeypatch.setattr(gett.tune.tuner, "require_cupy", lambda: None)
    return made


@pytest.fixture
def torch(monkeypatch):
    """A stand-in for PyTorch whose tensors say that they are on a GPU, and kernels that contract on NumPy's memory."""
    module, kind = make_torch(), gett.arrays.torch.TorchKind
    monkeypatch.setattr(gett.arrays.torch, "_library", gett.arrays.torch.TorchLibrary(module))
    monkeypatch.setattr(kind, "arch", lambda self, device: "sm_90a")
    monkeypatch.setattr(kind, "memory", lambda self, device: 1 << 37)
    monkeypatch.setattr(
        gett.plans.executables, "_build_executables", lambda gemms, arch, tuned, limit: [*map(AddressExecutable, gemms)]
    )
    plan_cache.clear()
    yield module
    plan_cache.clear()


@pytest.fixture
def quick_machine(monkeypatch):
    """The machine's own figures are not the subject, and take a second; small cases say as much as large ones.

    Nor are times: the processor need not rest between contestants.
    """
    monkeypatch.setattr(timing, "REST_S", 0.0)
    monkeypatch.setattr(run_cpu, "copy_bandwidth", lambda: 1e10)
    monkeypatch.setattr(run_cpu, "gemm_peak", lambda element: 1e11)
    for kind in ("CPU", "WORKLOAD"):
        monkeypatch.setattr(f"benchmarks.tasks.{kind}_ELEMENTS", 1 << 12)
        monkeypatch.setattr(f"benchmarks.tasks.{kind}_VOLUME", 1 << 14)


@pytest.fixture
def tiny_tiles():
    """Cuts and threads as tensors of gigabytes would have them, and no element-wise loop where BLAS can do it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes, "SCRATCH_BYTES", 2000)
        patch.setattr(boxes, "GROWN_BYTES", 500)
        patch.setattr(boxes, "RUN", 4)
        patch.setattr(boxes, "CALL_TIME", 200.0)
        patch.setattr(tiles, "CALL", 60)
        patch.setattr(tiles, "_TERMS", 2)
        patch.setattr(boxes, "EXACT_K", 8)
        patch.setattr(arithmetic, "EXACT_K", 8)
        patch.setattr(elementwise, "PIECE", 50)
        patch.setattr(elementwise, "RUN", 4)
        patch.setattr(elementwise, "_WORTH_THREADS", 0)
        patch.setattr(moving, "PIECE", 40)
        patch.setattr(moving, "RUN", 4)
        patch.setattr(moving, "_PARALLEL", 0)
        patch.setattr(moving, "_LINES", 0)
        patch.setattr(moving, "_NEAR", -1)
        patch.setattr(moving, "_SMALL", 8)
        patch.setattr(packed, "_WORTH_THREADS", 0.0)
        patch.setattr(executable, "available_threads", lambda: 2)
        patch.setattr(executable, "element_wise_cost", lambda groups, work: float("inf"))
        yield
