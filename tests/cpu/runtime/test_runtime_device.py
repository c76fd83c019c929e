"""Facts of devices and architectures, with and without CuPy."""

from __future__ import annotations

import sys
import types

import pytest

from gett.errors import DeviceError, MissingPackageError, OutOfMemoryError, ScheduleError
from gett.hw.archs import ARCHS, arch_facts, arch_of, capability
from gett.runtime import device as device_module
from gett.runtime.build import runs_on
from gett.runtime.device import CupyHost, read_facts, require_cupy
from tests.cpu.fake_driver import KILO


class FakeRuntimeError(RuntimeError):
    """`cupy.cuda.runtime.CUDARuntimeError`."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


def fake_cupy(count=1, status=None):
    """A module with as much of CuPy as `gett.runtime.device` touches."""

    def device_count():
        if status is not None:
            raise FakeRuntimeError(status)
        return count

    properties = {
        "name": b"NVIDIA H200", "major": 9, "minor": 0, "multiProcessorCount": 132, "l2CacheSize": 60 << 20,
        "sharedMemPerBlockOptin": 227 * KILO, "sharedMemPerMultiprocessor": 228 * KILO, "totalGlobalMem": 141 << 30,
    }  # fmt: skip
    attributes = {13: 1_980_000, 36: 3_201_000, 37: 6016}
    runtime = types.SimpleNamespace(
        CUDARuntimeError=FakeRuntimeError,
        getDeviceCount=device_count,
        getDevice=lambda: 0,
        getDeviceProperties=lambda device: properties,
        deviceGetAttribute=lambda attribute, device: attributes[attribute],
        properties=properties,
        attributes=attributes,
    )

    def alloc(nbytes):
        raise MemoryError("pool is empty")

    cuda = types.SimpleNamespace(runtime=runtime, alloc=alloc, get_current_stream=None, Device=None)
    return types.SimpleNamespace(cuda=cuda)


@pytest.mark.parametrize(
    ("module", "error", "text"),
    [
        (None, MissingPackageError, r"CuPy, which is not installed: in a clone of gett, pip install"),
        (fake_cupy(status=35), DeviceError, "no NVIDIA driver was found, or it is older"),
        (fake_cupy(status=100), DeviceError, "no NVIDIA GPU is visible"),
        (fake_cupy(status=999), DeviceError, "cannot list the GPUs: status 999"),
        (fake_cupy(count=0), DeviceError, "no NVIDIA GPU is visible"),
    ],
)
def test_what_is_missing_is_named(monkeypatch, module, error, text):
    monkeypatch.setitem(sys.modules, "cupy", module)
    with pytest.raises(error, match=text):
        require_cupy()
    assert not device_module.gpu_available()


def test_device_facts_come_from_the_runtime(monkeypatch):
    cupy = fake_cupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(device_module, "_facts", {})
    facts = device_module.device_facts()
    assert facts is device_module.device_facts(0)
    assert (facts.name, facts.arch, facts.sm_count, facts.clock_ghz) == ("NVIDIA H200", "sm_90a", 132, 1.98)
    # The estimate from the memory's clock and width agrees with what a copy was measured to reach.
    assert facts.dram_tbps == pytest.approx(arch_facts("sm_90a").dram_tbps, rel=0.01)
    planning, nominal = facts.planning, arch_facts("sm_90a")
    assert (planning.name, planning.l2_bytes, planning.clock_ghz) == ("NVIDIA H200", 60 << 20, nominal.clock_ghz)
    assert planning.tensor_tflops == nominal.tensor_tflops
    with pytest.raises(DeviceError, match="there is no GPU 7; 1 are visible"):
        device_module.device_facts(7)
    with pytest.raises(OutOfMemoryError, match="workspace of 77 bytes: pool is empty"):
        CupyHost().allocate(77)


def test_smaller_and_virtual_devices():
    runtime = fake_cupy().cuda.runtime
    runtime.properties["multiProcessorCount"] = 66
    runtime.attributes.update({13: 0, 36: 0})
    facts, nominal = read_facts(runtime, 0), arch_facts("sm_90a")
    assert (facts.clock_ghz, facts.dram_tbps) == (nominal.clock_ghz, nominal.dram_tbps)
    assert facts.planning.l2_tbps == nominal.l2_tbps / 2
    assert facts.planning.fma_tflops["float32"] == nominal.fma_tflops["float32"] / 2
    runtime.properties.update(major=7, minor=5)
    with pytest.raises(ScheduleError, match=r"capability 7\.5 is not supported; known architectures: sm_80"):
        read_facts(runtime, 0)


def test_arch_table():
    for arch, facts in ARCHS.items():
        assert facts is arch_facts(arch)
        assert arch_of(*capability(arch)) == arch
        assert runs_on(arch, capability(arch))
        # A resident block takes 1 KiB beside what it asks for, so one of the largest size must fit.
        assert facts.smem_per_block + KILO <= facts.smem_per_sm
        assert facts.tensor_lanes["tf32"] * 2 == facts.tensor_lanes["float16"]
        assert set(facts.fma_lanes) >= {"float32", "float64", "complex64", "complex128", "int64", "bool"}
        assert hash(facts) == hash(arch_facts(arch))
    with pytest.raises(ScheduleError, match=r"arch='sm_75' is not known; known architectures: sm_80, .*sm_90a"):
        arch_facts("sm_75")
    assert arch_of(8, 8) == "sm_87"


def test_cubins_run_within_their_generation():
    assert capability("sm_103a") == (10, 3)
    assert [runs_on("sm_86", device) for device in ((8, 0), (8, 6), (8, 9), (9, 0))] == [
        False,
        True,
        True,
        False,
    ]
    assert [runs_on("sm_100a", device) for device in ((10, 0), (10, 3), (12, 0))] == [True, False, False]
