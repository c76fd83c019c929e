"""Lists of problems as their layouts and addresses: one pass over the arguments, which errors number.

Owns the checks of the lists. Knows neither kernels nor how anything is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gett.arrays.kinds import CPU, NUMPY, ArrayKind, cupy_kind
from gett.arrays.torch import TorchLibrary, torch_library
from gett.errors import GettError, OptionError
from gett.groups.layouts import Asked, Layout, make_layout, plain
from gett.ir.subscripts import Spec
from gett.ir.tensors import is_numpy_only
from gett.plans.checks import check_out

Problem = tuple[Spec, Any, Any]


@dataclass(slots=True)
class Reading:
    """Problems whose arrays are of one kind on one device.

    Attributes:
        kind: Of the arrays.
        device: Where they are.
        layouts: The distinct ones.
        which: For each problem the number of its layout.
        a: Addresses of the first operands.
        b: Of the second ones.
        d: Of what is written; zeros where there is no `out`.
    """

    kind: ArrayKind
    device: int
    layouts: list[Layout]
    which: NDArray[np.int64]
    a: NDArray[np.uint64]
    b: NDArray[np.uint64]
    d: NDArray[np.uint64]


@contextmanager
def of_problem(number: int) -> Iterator[None]:
    """Errors of gett within name the problem.

    Raises:
        GettError: That which was raised, of the same class.
    """
    try:
        yield
    except GettError as error:
        raise type(error)(f"problem {number}: {error}") from error


def check_problems(problems: Any) -> list[Problem]:
    """The problems as a list of (subscripts, a, b).

    Raises:
        OptionError: They are no list of such; the text numbers the problem.
    """
    if isinstance(problems, (str, bytes)) or not isinstance(problems, Sequence):
        raise OptionError(f"problems must be a list of (subscripts, a, b), not {type(problems).__name__}")
    for i, problem in enumerate(problems):
        if not isinstance(problem, (tuple, list)) or len(problem) != 3 or not isinstance(problem[0], str):
            raise OptionError(f"problem {i}: it must be (subscripts, a, b), such as ('ij,jk->ik', a, b)")
    return list(problems)


def check_outs(out: Any, count: int) -> list[Any] | None:
    """`out=` as a list of one array for each problem.

    Raises:
        OptionError: It is no such list; the text numbers the problem.
    """
    if out is None:
        return None
    if not isinstance(out, (list, tuple)) or len(out) != count:
        what = f"{len(out)} arrays" if isinstance(out, (list, tuple)) else type(out).__name__
        raise OptionError(f"out must be a list of one array for each of {count} problems, not {what}")
    for i, x in enumerate(out):
        if x is None:
            raise OptionError(f"problem {i}: out is None; give an array for each problem, or no out at all")
    return list(out)


def read(problems: Sequence[Problem], outs: Sequence[Any] | None, precision: Asked) -> Reading | None:
    """Layouts and addresses; None where arrays need a closer look, or are not all of one kind on one device.

    Raises:
        GettError: A problem is at fault; the text numbers it.
    """
    arrays = [x for _, a, b in problems for x in (a, b)] + list(outs or ())
    found = _kind(arrays)
    if found is None:
        return None
    kind, device = found
    keys, addresses = _torch_keys(arrays) if kind.name == "PyTorch" else _keys(arrays, kind)
    count = len(problems)
    layouts: dict[Any, int] = {}
    numbers: list[int] = []
    made: list[Layout] = []
    for i, (spec, a, b) in enumerate(problems):
        key = (spec, keys[2 * i], keys[2 * i + 1], None if outs is None else keys[2 * count + i])
        number = layouts.get(key)
        if number is None:
            with of_problem(i):
                given = None if outs is None else plain(check_out(outs[i], kind, device))
                made.append(make_layout(spec, plain(kind.describe(a)), plain(kind.describe(b)), given, precision))
            number = layouts[key] = len(layouts)
        numbers.append(number)
    table = np.array(addresses, np.uint64)
    d = table[2 * count :] if outs is not None else np.zeros(count, np.uint64)
    return Reading(kind, device, made, np.array(numbers, np.int64), table[: 2 * count : 2], table[1 : 2 * count : 2], d)


def _kind(arrays: Sequence[Any]) -> tuple[ArrayKind, int] | None:
    """The kind and the device of all arrays, where they are the same."""
    if not arrays:
        return NUMPY, CPU
    first = arrays[0]
    cupy, torch = cupy_kind(), torch_library()
    if first.__class__ is np.ndarray:
        plain = all(x.__class__ is np.ndarray and not is_numpy_only(x.dtype) and x.dtype.kind != "V" for x in arrays)
        return (NUMPY, CPU) if plain else None
    if cupy is not None and first.__class__ is cupy.type:
        device = cupy.device(first)
        same = all(x.__class__ is cupy.type and x.data.device_id == device for x in arrays)
        return (cupy, device) if same else None
    if torch is not None and first.__class__ in torch.plain and first.is_cuda:
        device = first.get_device()
        return (torch.kind(device), device) if _plain_tensors(torch, arrays, device) else None
    return None


def _plain_tensors(torch: TorchLibrary, tensors: Sequence[Any], device: int) -> bool:
    """Whether tensors are memory with strides on a device, of which PyTorch records and transforms nothing."""
    if torch.modes.dual_levels._current_level >= 0 or torch.modes.dispatch_modes():
        return False
    for x in tensors:
        if x.__class__ not in torch.plain or not x.is_cuda or x.get_device() != device:
            return False
        if x.is_neg() or x.dtype not in torch.dtypes or x.layout is not torch.module.strided:
            return False
    return not torch.modes.records(tensors)


def _keys(arrays: Sequence[Any], kind: ArrayKind) -> tuple[list[Any], list[int]]:
    """What the layout of each array is known by, and its address."""
    keys = [(x.shape, x.strides, x.dtype) for x in arrays]
    if kind is NUMPY:
        return keys, [x.__array_interface__["data"][0] for x in arrays]
    return keys, [x.data.ptr for x in arrays]


def _torch_keys(tensors: Sequence[Any]) -> tuple[list[Any], list[int]]:
    keys = [(tuple(x.shape), x.stride(), x.dtype, x.dtype.is_complex and x.is_conj()) for x in tensors]
    return keys, [x.data_ptr() for x in tensors]
