"""Arrays that a plan or an expression holds between calls: brought to a library, and waited for on other streams.

Owns which library and device a held array must be of, and when streams have done with it. Knows no plans.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gett.arrays.interop import SCALARS
from gett.arrays.jax import is_jax, to_jax
from gett.arrays.kinds import cupy_kind
from gett.arrays.torch import torch_library
from gett.errors import DTypeError, OptionError

Mark = tuple[int, Any]
"""The handle of a stream, and an event of what it had been asked for."""


def bring(constant: Any, model: Any) -> Any:
    """A constant of NumPy's, or a list, in the library and on the device of an array; any other as it is.

    Raises:
        DTypeError: The library has no array of it.
    """
    if isinstance(constant, (list, tuple, *SCALARS)):
        constant = np.asarray(constant)
    torch, cupy = torch_library(), cupy_kind()
    if not isinstance(constant, np.ndarray) or isinstance(model, np.ndarray) or model is None:
        return constant
    try:
        if torch is not None and isinstance(model, torch.tensor):
            return torch.module.tensor(constant, device=model.device)
    except TypeError as error:
        raise DTypeError(f"a constant of dtype {constant.dtype} cannot become a PyTorch tensor: {error}") from error
    if cupy is not None and isinstance(model, cupy.type):
        return cupy.asarray(constant, cupy.device(model))
    return to_jax()(constant) if is_jax(model) else constant


def place(array: Any) -> tuple[type, str]:
    """The library and device of an array."""
    return type(array), str(getattr(array, "device", ""))


def is_recorded(array: Any) -> bool:
    """Whether the current stream of an array's library goes into a CUDA graph."""
    stream = _stream(array)
    if stream is None:
        return False
    torch = torch_library()
    if torch is not None and isinstance(array, torch.tensor):
        return bool(torch.captures())
    return bool(stream.is_capturing())


def refuse_recording(array: Any, what: str) -> None:
    """Refuse to compute what is held while a CUDA graph is recorded: it would be there once the graph is played.

    Raises:
        OptionError: One is.
    """
    if is_recorded(array):
        raise OptionError(f"{what} while a CUDA graph is recorded, which has no values: call the plan before")


def finish(array: Any) -> None:
    """Wait until the current stream has made what was asked for, so that every stream may read it from now on."""
    stream = _stream(array)
    if stream is not None:
        stream.synchronize()


def finish_device(array: Any) -> None:
    """Wait until no stream of an array's device reads it."""
    torch, cupy = torch_library(), _cupy()
    if torch is not None and isinstance(array, torch.tensor):
        if array.is_cuda:
            torch.module.cuda.synchronize(array.device)
    elif cupy is not None and isinstance(array, cupy.type):
        array.device.synchronize()


def mark(array: Any) -> Mark | None:
    """A mark of what the current stream was asked for; None where there are no streams."""
    stream = _stream(array)
    if stream is None:
        return None
    torch = torch_library()
    if torch is not None and isinstance(array, torch.tensor):
        return int(stream.cuda_stream), stream.record_event()
    cupy = cupy_kind()
    assert cupy is not None
    with array.device:
        event = cupy.module.cuda.Event(disable_timing=True)
        event.record(stream)
    return int(stream.ptr), event


def follow(marked: Mark | None, array: Any) -> None:
    """Wait for a mark where another stream is current now; memory may then go that either has read."""
    if marked is None:
        return
    stream = _stream(array)
    handle = None if stream is None else int(getattr(stream, "cuda_stream", None) or getattr(stream, "ptr", 0) or 0)
    if handle != marked[0]:
        marked[1].synchronize()


def version(array: Any) -> int:
    """PyTorch's count of writes to a tensor's memory; 0 of what has none."""
    try:
        return int(getattr(array, "_version", 0))
    except RuntimeError:  # a tensor made in inference mode
        return 0


def is_same(x: Any, y: Any) -> bool:
    """Whether two arrays are one, or views of one memory that lie alike."""
    if x is y:
        return True
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return bool(x.__array_interface__ == y.__array_interface__)
    if type(x) is not type(y) or isinstance(x, (list, tuple)):
        return False
    if isinstance(x, SCALARS):
        return bool(x == y)
    torch, cupy = torch_library(), _cupy()
    if torch is not None and isinstance(x, torch.tensor):
        return bool(
            (x.data_ptr(), x.shape, x.dtype, x.is_conj()) == (y.data_ptr(), y.shape, y.dtype, y.is_conj())
            and x.stride() == y.stride()
        )
    if cupy is not None and isinstance(x, cupy.type):
        return bool((x.data.ptr, x.shape, x.strides, x.dtype) == (y.data.ptr, y.shape, y.strides, y.dtype))
    return False


def _cupy() -> Any:
    """CuPy's kind, of whose arrays nothing is known here."""
    return cupy_kind()


def _stream(array: Any) -> Any:
    """The current stream of an array's library on its device; None on the CPU, and of libraries without streams."""
    torch, cupy = torch_library(), _cupy()
    if torch is not None and isinstance(array, torch.tensor):
        return torch.module.cuda.current_stream(array.device) if array.is_cuda else None
    if cupy is not None and isinstance(array, cupy.type):
        with array.device:
            return cupy.module.cuda.get_current_stream()
    return None
