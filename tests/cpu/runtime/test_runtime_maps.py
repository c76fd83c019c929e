"""Tensor maps in the argument block: encoded once, moved with their operand, refused with a reason."""

from __future__ import annotations

import ctypes
import struct
import types

import pytest

from gett.codegen.records import TensorMapSpec
from gett.errors import DeviceError
from gett.runtime.tensormap import MAP_BYTES, TensorMap
from tests.cpu.fake_driver import PARAMS, A, B, C, D, FakeDriver, build, launch, product_plan

SPEC = TensorMapSpec(6, (64, 32, 4), (256, 8192), (32, 16, 2), 3, 2)


def test_tensor_maps_are_encoded_once_and_then_moved():
    one = launch(params=bytes(MAP_BYTES) + PARAMS, pointers=(("d", 128),), scalars=(), maps=(("b", 0, SPEC),))
    run, _, driver = build(product_plan(swapped=True), one)
    for first in (A, A, D):  # the plan's B is the first operand
        run(first, B, C, D)
    strides = list(SPEC.strides)
    assert driver.maps == [
        ("encode", A.data.ptr, [64, 32, 4], strides, [32, 16, 2], [1, 1, 1]),
        ("replace", D.data.ptr),
    ]
    marks = [bytes([array.data.ptr & 0xFF]) * MAP_BYTES for array in (A, A, D)]
    assert [seen.params[:MAP_BYTES] for seen in driver.launches] == marks
    assert [struct.unpack_from("<Q", seen.params, 128) for seen in driver.launches] == [(D.data.ptr,)] * 3


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"extents": (1,) * 6, "strides": (16,) * 5, "box": (1,) * 6}, "rank 6"),
        ({"box": (32, 16)}, "3 extents need 3 box extents"),
        ({"box": (257, 1, 1)}, "box extent"),
        ({"extents": (0, 1, 1)}, r"an extent of \(0, 1, 1\)"),
        ({"strides": (256, 24)}, "multiple of 16"),
    ],
)
def test_impossible_tensor_maps_are_explained(change, text):
    fields = {name: getattr(SPEC, name) for name in SPEC.__dataclass_fields__} | change
    with pytest.raises(DeviceError, match=f"operand b has no tensor map: .*{text}"):
        TensorMap(FakeDriver(0), TensorMapSpec(**fields), 0, "b")


def test_a_refused_tensor_map_is_encoded_again():
    driver = FakeDriver(0)
    memory = (ctypes.c_char * 256)()
    slot = -(-ctypes.addressof(memory) // 128) * 128
    refusing = types.SimpleNamespace(encode_tiled=lambda *args: 1, replace_address=lambda *args: 1, error=driver.error)
    with pytest.raises(DeviceError, match=r"cuTensorMapEncodeTiled failed.*operand d at 0x8, TensorMapSpec"):
        TensorMap(refusing, SPEC, slot, "d").point_at(8)
    tensor_map = TensorMap(driver, SPEC, slot, "d")
    tensor_map.point_at(16)
    tensor_map._replace = refusing.replace_address
    with pytest.raises(DeviceError, match="cuTensorMapReplaceAddress"):
        tensor_map.point_at(8)
    tensor_map.point_at(16)
    assert [one[0] for one in driver.maps] == ["encode", "encode"]
