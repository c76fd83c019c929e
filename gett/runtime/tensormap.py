"""Tensor maps (TMA descriptors): 128 bytes in a kernel's arguments, encoded once and then only pointed elsewhere.

Owns the call of `cuTensorMapEncodeTiled` and the rules that can be told apart beforehand. Knows neither plans nor CuPy.
"""

from __future__ import annotations

import ctypes

from gett.codegen.records import TensorMapSpec
from gett.errors import DeviceError
from gett.runtime.driver import DriverApi

MAP_BYTES = 128
MAP_ALIGNMENT = 64
_MAX_RANK = 5


class TensorMap:
    """One tensor map in host memory at a fixed address.

    Args:
        driver: Encodes it.
        spec: What it describes.
        slot: Host address of its 128 bytes, a multiple of 64; the memory must outlive this object.
        what: Names the operand in errors.

    Encoding takes 1.9 us on the host and replacing the address 0.6 us, so the address is only replaced, and only when
    it changes.
    """

    __slots__ = ("_address", "_args", "_driver", "_encode", "_replace", "_slot", "spec", "what")

    def __init__(self, driver: DriverApi, spec: TensorMapSpec, slot: int, what: str) -> None:
        check_spec(spec, what)
        assert slot % MAP_ALIGNMENT == 0, f"tensor map of {what} at {slot:#x}"
        rank = len(spec.extents)
        self.spec, self.what = spec, what
        self._driver, self._slot = driver, ctypes.c_void_p(slot)
        self._encode, self._replace = driver.encode_tiled, driver.replace_address
        self._address = 0
        self._args = (
            (ctypes.c_uint64 * rank)(*spec.extents),
            (ctypes.c_uint64 * rank)(*spec.strides),  # one more than needed, so that rank 1 has an array too
            (ctypes.c_uint32 * rank)(*spec.box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            ctypes.c_int(0),
            ctypes.c_int(spec.swizzle),
            ctypes.c_int(spec.l2_promotion),
            ctypes.c_int(spec.fill),
        )

    def point_at(self, address: int) -> None:
        """Make the map describe the tensor whose element at coordinate 0 is at `address` (device memory).

        Raises:
            DeviceError: The driver refused; the address is no multiple of 16.
        """
        if address == self._address:
            return
        if self._address:
            call, code = "cuTensorMapReplaceAddress", self._replace(self._slot, ctypes.c_void_p(address))
        else:
            head = (self._slot, ctypes.c_int(self.spec.data_type), ctypes.c_uint32(len(self.spec.extents)))
            call, code = "cuTensorMapEncodeTiled", self._encode(*head, ctypes.c_void_p(address), *self._args)
        if code:
            self._address = 0
            raise self._driver.error(code, call, f"operand {self.what} at {address:#x}, {self.spec}")
        self._address = address


def check_spec(spec: TensorMapSpec, what: str) -> None:
    """Raise for what the driver would only call an invalid value (CUDA Driver API, cuTensorMapEncodeTiled).

    Raises:
        DeviceError: Names the rule that the descriptor breaks.
    """
    rank = len(spec.extents)
    problem = ""
    if not 1 <= rank <= _MAX_RANK:
        problem = f"rank {rank} is not in 1...{_MAX_RANK}"
    elif len(spec.box) != rank or len(spec.strides) != rank - 1:
        problem = f"{rank} extents need {rank} box extents and {rank - 1} strides"
    elif not all(1 <= e <= 1 << 32 for e in spec.extents):
        problem = f"an extent of {spec.extents} is not in 1...2**32"
    elif not all(1 <= e <= 256 for e in spec.box):
        problem = f"a box extent of {spec.box} is not in 1...256"
    elif not all(0 <= s < 1 << 40 and s % 16 == 0 for s in spec.strides):
        problem = f"a stride of {spec.strides} is no multiple of 16 below 2**40"
    if problem:
        raise DeviceError(f"operand {what} has no tensor map: {problem}")
