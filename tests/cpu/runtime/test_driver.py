"""The driver's functions by ctypes: records as the driver has them, handles, typed errors."""

from __future__ import annotations

import ctypes

import pytest

from gett.errors import DeviceError, OutOfMemoryError
from gett.runtime.driver import Driver, LaunchAttribute, LaunchConfig


def test_launch_config_has_the_driver_layout():
    # CUlaunchConfig in cuda.h: seven 32-bit words, then stream and attributes at 8-byte boundaries, then a count.
    offsets = (LaunchConfig.stream.offset, LaunchConfig.attributes.offset, LaunchConfig.num_attributes.offset)
    assert (*offsets, ctypes.sizeof(LaunchConfig)) == (32, 40, 48, 56)


def test_launch_attribute_has_the_driver_layout():
    # CUlaunchAttribute in cuda.h: a number padded to 8 bytes, then a union of 64.
    assert (LaunchAttribute.value.offset, ctypes.sizeof(LaunchAttribute)) == (8, 72)


class FakeLibrary:
    """`libcuda` in Python: what each call returns, and the texts of errors."""

    def __init__(self, *, codes=None, launches=True):
        self.codes = codes or {}
        self.capture_mode, self.loaded_in = 0, []

        def exchange(mode):
            code = self.codes.get("cuThreadExchangeStreamCaptureMode", 0)
            if not code:
                self.capture_mode, mode._obj.value = mode._obj.value, self.capture_mode
            return code

        self.cuThreadExchangeStreamCaptureMode = exchange

        def call(name):
            def run(*args):
                if name == "cuGetErrorName":
                    args[1]._obj.value = b"CUDA_ERROR_FAKE"
                elif name == "cuGetErrorString":
                    args[1]._obj.value = b"it is fake"
                elif name in ("cuDriverGetVersion", "cuDeviceGetCount", "cuFuncGetAttribute"):
                    args[0]._obj.value = 11040
                elif name in ("cuModuleLoadData", "cuModuleGetFunction", "cuCtxGetCurrent"):
                    args[0]._obj.value = 0xABCD_0000_1234
                    self.loaded_in += [self.capture_mode] * (name == "cuModuleLoadData")
                return self.codes.get(name, 0)

            return run

        names = (
            "cuInit cuGetErrorName cuGetErrorString cuDriverGetVersion cuDeviceGetCount cuModuleLoadData "
            "cuModuleUnload cuModuleGetFunction cuFuncSetAttribute cuFuncGetAttribute cuCtxGetCurrent cuCtxSetCurrent"
        )
        for name in names.split() + (["cuLaunchKernelEx"] if launches else []):
            setattr(self, name, call(name))


@pytest.fixture
def library(monkeypatch):
    """Put a library in the place of `libcuda`."""

    def place(**kw):
        fake = FakeLibrary(**kw)
        monkeypatch.setattr(ctypes, "CDLL", lambda name: fake)
        return fake

    return place


def test_driver_returns_handles_and_raises_typed_errors(library):
    fake = library()
    driver = Driver()
    handle = 0xABCD_0000_1234
    assert (driver.load_module(b""), driver.get_function(1, "f"), driver.current_context()) == (handle,) * 3
    assert (driver.version(), driver.launch) == ("11.4", fake.cuLaunchKernelEx)
    cases = {
        "cuModuleLoadData": lambda: driver.load_module(b""),
        "cuThreadExchangeStreamCaptureMode": lambda: driver.load_module(b""),
        "cuModuleUnload": lambda: driver.unload_module(1),
        "cuModuleGetFunction": lambda: driver.get_function(1, "some_kernel"),
        "cuFuncSetAttribute": lambda: driver.set_function_attribute(1, 8, 9, "kernel x"),
        "cuFuncGetAttribute": lambda: driver.get_function_attribute(1, 8),
        "cuCtxGetCurrent": driver.current_context,
        "cuCtxSetCurrent": lambda: driver.set_context(1),
        "cuDeviceGetCount": driver.device_count,
    }
    for name, call in cases.items():
        call()
        for code, kind in ((1, DeviceError), (2, OutOfMemoryError), (209, DeviceError)):
            fake.codes = {name: code}
            with pytest.raises(kind, match=rf"{name} failed: CUDA_ERROR_FAKE \({code}\): it is fake") as caught:
                call()
            wrong_arch = "another architecture" in str(caught.value)
            assert wrong_arch == ((name, code) == ("cuModuleLoadData", 209))
        fake.codes = {}
    assert set(fake.loaded_in) == {2}  # relaxed: also while this thread records a graph
    assert fake.capture_mode == 0
    fake.codes = {"cuModuleGetFunction": 500}
    with pytest.raises(DeviceError, match="kernel 'some_kernel'"):
        driver.get_function(1, "some_kernel")


def test_unusable_drivers_are_explained(library):
    with pytest.raises(DeviceError, match=r"no NVIDIA driver was found .*no_such_library"):
        Driver("no_such_library.so")
    library(codes={"cuInit": 100})
    with pytest.raises(DeviceError, match=r"cuInit failed: CUDA_ERROR_FAKE \(100\)"):
        Driver()
    library(launches=False)
    with pytest.raises(DeviceError, match=r"CUDA 11\.4.*needs a driver for CUDA 12"):
        Driver()
    library()
    with pytest.raises(DeviceError, match="no cuTensorMapEncodeTiled"):
        Driver().encode_tiled  # noqa: B018 - the access raises
