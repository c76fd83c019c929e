"""As much of PyTorch as is used, on NumPy's memory: tensors that say they are on a GPU, and kernels with addresses.

What is real: dispatch, layouts, addresses, streams, dtypes, errors. What is not: the kernels, which read a plan's
record and contract whatever lies at the addresses that they are given.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from gett.epilogue.evaluate import Evaluator
from gett.ir.gemm import GemmPlan

WIDE = {"f": np.float64, "c": np.complex128, "i": np.int64, "u": np.uint64, "b": np.bool_}


class Dtype:
    """Such as torch.bfloat16."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_complex = name.startswith("complex")
        self.storage = np.dtype("uint16" if name == "bfloat16" else name)

    def __repr__(self) -> str:
        return f"torch.{self.name}"


Dtype.__module__ = "torch"
NAMES = ("bool", "bfloat16", "float16", "float32", "float64", "complex64", "complex128", "int8", "int16", "int32")
NAMES += ("int64", "uint8")
DTYPES = {name: Dtype(name) for name in NAMES}


def decode(memory: np.ndarray, dtype: str) -> np.ndarray:
    """Values of an array in memory, where the bits of bfloat16 are the upper half of float32's."""
    return (memory.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else memory


def encode(values: Any, dtype: str) -> np.ndarray:
    """What is stored for values; bfloat16 is rounded to nearest, ties to even."""
    if dtype != "bfloat16":
        return np.asarray(values).astype(dtype)
    bits = np.asarray(values).astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class Device:
    """A torch.device."""

    def __init__(self, type_: str, index: int | None = None) -> None:
        self.type, self.index = type_, index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


class OutOfMemory(RuntimeError):
    """PyTorch's, which is no MemoryError."""


class State:
    """What the stand-in is told, and what it saw."""

    grad = True
    limit = 1 << 30
    stream: Any = None
    resolved = 0
    launches: list[tuple[Any, ...]]
    allocated: list[tuple[tuple[int, ...], str]]


class Tensor:
    """A torch.Tensor on a GPU."""

    layout = "strided"
    is_nested = is_meta = False

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def __init__(self, memory: np.ndarray, dtype: str, device: int = 0, *, requires_grad: bool = False) -> None:
        self.memory, self.dtype, self.index = memory, DTYPES[dtype], device
        self.requires_grad, self.is_cuda = requires_grad, True
        self.negative = self.conjugate = False

    @property
    def device(self) -> Device:
        return Device("cuda", self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.memory.shape

    @property
    def ndim(self) -> int:
        return self.memory.ndim

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.memory.itemsize for s in self.memory.strides)

    def numel(self) -> int:
        return self.memory.size

    def element_size(self) -> int:
        return self.memory.itemsize

    def data_ptr(self) -> int:
        return self.memory.__array_interface__["data"][0] if self.memory.size else 0

    def detach(self) -> Tensor:
        return self._view(self.memory)

    def get_device(self) -> int:
        return self.index

    def is_neg(self) -> bool:
        return self.negative

    def is_conj(self) -> bool:
        return self.conjugate

    def resolve_neg(self) -> Tensor:
        return Tensor(encode(-self.values(), self.dtype.name), self.dtype.name, self.index)

    def conj(self) -> Tensor:
        """A view that is conjugated lazily, or no more; of a real tensor itself."""
        if not self.dtype.is_complex:
            return self
        made = self._view(self.memory)
        made.conjugate = not self.conjugate
        return made

    def resolve_conj(self) -> Tensor:
        State.resolved += 1
        return Tensor(self.memory.conj(), self.dtype.name, self.index)

    def _view(self, memory: np.ndarray) -> Tensor:
        made = type(self)(memory, self.dtype.name, self.index)
        made.negative, made.conjugate = self.negative, self.conjugate
        return made

    def reshape(self, shape: Sequence[int]) -> Tensor:
        return self._view(self.memory.reshape(shape))

    def permute(self, axes: Sequence[int]) -> Tensor:
        return self._view(self.memory.transpose(axes))

    def __getitem__(self, index: Any) -> Tensor:
        return self._view(self.memory[index])

    def __mul__(self, factor: Any) -> Tensor:
        return Tensor(encode(self.values() * factor, self.dtype.name), self.dtype.name, self.index)

    def copy_(self, source: Tensor) -> Tensor:
        self.memory[...] = encode(source.values(), self.dtype.name)
        return self

    def fill_(self, value: Any) -> Tensor:
        self.memory[...] = encode(value, self.dtype.name)
        return self

    def values(self) -> np.ndarray:
        """What the elements mean."""
        return decode(self.memory.conj() if self.conjugate else self.memory, self.dtype.name)


class Parameter(Tensor):
    """A torch.nn.Parameter."""


def tensor(values: Any, dtype: str | None = None, device: int = 0, **kw: Any) -> Tensor:
    """A tensor of values; its strides are those of a NumPy array."""
    values = np.asarray(values)
    name = dtype or values.dtype.name
    return Tensor(values if name == values.dtype.name else encode(values, name), name, device, **kw)


def _empty_strided(shape: Sequence[int], strides: Sequence[int], *, dtype: Dtype, device: Device) -> Tensor:
    size = int(np.prod(shape)) * dtype.storage.itemsize
    State.allocated.append((tuple(shape), dtype.name))
    if size > State.limit:
        raise OutOfMemory("CUDA out of memory")
    order = "C" if not shape or strides[-1] == 1 else "F"
    memory = np.full(shape, -1 if dtype.storage.kind == "i" else 77, dtype.storage, order=order)
    made = Tensor(memory, dtype.name, device.index or 0)
    assert made.stride() == tuple(strides) or 1 in shape or 0 in shape
    return made


class Function:
    """A torch.autograd.Function, of which the context stays with the result."""

    @classmethod
    def apply(cls, *arguments: Any) -> Tensor:
        context = types.SimpleNamespace(
            set_materialize_grads=lambda flag: None,
            save_for_forward=lambda *x: None,
            needs_input_grad=[isinstance(x, Tensor) for x in arguments],
        )
        context.save_for_backward = lambda *x: setattr(context, "saved_tensors", x)
        apart = hasattr(cls, "setup_context")
        before, State.grad = State.grad, False
        result = cls.forward(*(arguments if apart else (context, *arguments)))  # type: ignore[attr-defined]
        State.grad = before
        if apart:
            cls.setup_context(context, arguments, result)  # type: ignore[attr-defined]
        result.context = context
        result.backward = lambda gradient: cls.backward(result.context, gradient)  # type: ignore[attr-defined]
        return result


def _result_type(beside: Tensor, value: Any) -> Dtype:
    kind = beside.dtype.storage.kind if beside.dtype.name != "bfloat16" else "f"
    if isinstance(value, complex) and kind != "c":
        return DTYPES["complex64"]
    return DTYPES["float32"] if isinstance(value, float) and kind in "biu" else beside.dtype


def make_torch() -> Any:
    """The module."""
    State.launches, State.allocated, State.grad, State.limit = [], [], True, 1 << 30
    State.autocast = None
    State.stream, State.resolved = lambda device: 0x700 + device, 0
    return types.SimpleNamespace(
        **DTYPES,
        Tensor=Tensor,
        nn=types.SimpleNamespace(Parameter=Parameter),
        autograd=types.SimpleNamespace(Function=Function),
        _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: State.stream(device)),
        cuda=types.SimpleNamespace(device_count=lambda: 1, OutOfMemoryError=OutOfMemory),
        device=Device,
        strided="strided",
        is_grad_enabled=lambda: State.grad,
        is_autocast_enabled=lambda device="cuda": State.autocast is not None,
        get_autocast_dtype=lambda device: DTYPES[State.autocast],
        empty_strided=_empty_strided,
        result_type=_result_type,
        promote_types=lambda x, y: DTYPES[np.promote_types(x.name, y.name).name],
        as_tensor=lambda value, dtype, device: Tensor(np.asarray(encode(value, dtype.name)), dtype.name, device.index),
    )


class Region:
    """Memory at an address, for `numpy.asarray`."""

    def __init__(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.__array_interface__ = {
            "data": (address, False), "shape": tuple(shape), "strides": tuple(strides), "typestr": dtype.str,
            "version": 3,
        }  # fmt: skip


class AddressExecutable:
    """Contracts what lies at addresses, as a plan's record says, in the widest type."""

    schedule = None

    def __init__(self, gemm: GemmPlan, workspace_bytes: int = 0) -> None:
        self.contraction, self.workspace_bytes = gemm.contraction, workspace_bytes

    def _at(self, address: int, operand: Any) -> np.ndarray:
        storage = DTYPES[operand.dtype].storage
        assert address % max(operand.alignment, 1) == 0
        return np.asarray(
            Region(address, [self.contraction.extents[m] for m in operand.modes], operand.strides, storage)
        )

    def run_at(
        self,
        a: int,
        b: int,
        c: int,
        d: int,
        stream: int,
        workspace: int,
        alpha: Any = 1,
        beta: Any = 0,
        extras: Sequence[int] = (),
    ) -> None:
        contraction = self.contraction
        State.launches.append((stream, workspace, contraction.dtype, alpha, beta))
        assert bool(workspace) is bool(self.workspace_bytes)
        wide = WIDE[DTYPES[contraction.dtype].storage.kind] if contraction.dtype != "bfloat16" else np.float64
        arguments: list[Any] = []
        for address, operand in ((a, contraction.a), (b, contraction.b)):
            # A tensor without elements has no address, and its kernel reads nothing.
            held = operand is not None and all(contraction.extents[m] for m in operand.modes)
            assert bool(address) is held
            if operand is not None:
                values = decode(self._at(address, operand), operand.dtype).astype(wide)
                arguments += [values.conj() if operand.conj else values, list(operand.modes)]
        result = np.einsum(*arguments, list(contraction.d.modes)) * alpha
        if contraction.c is not None and beta:
            added = decode(self._at(c, contraction.c), contraction.c.dtype)
            modes, all_modes = list(contraction.c.modes), list(contraction.d.modes)
            spread = np.einsum(added.astype(wide), modes, np.ones(contraction.shape_d), all_modes, all_modes)
            result = result + beta * spread
        if contraction.epilogue is not None:
            result = self._finished(result, extras)
        self._at(d, contraction.d)[...] = encode(result, contraction.d.dtype)

    def _finished(self, sums: np.ndarray, addresses: Sequence[int]) -> np.ndarray:
        """The epilogue's function of the sums and of the tensors that it reads."""
        contraction = self.contraction
        extras, modes = contraction.extras, contraction.d.modes
        values = []
        for address, operand in zip(addresses, extras, strict=True):
            array = decode(self._at(address, operand), operand.dtype)
            order = sorted(range(array.ndim), key=lambda i, operand=operand: modes.index(operand.modes[i]))
            shape = [contraction.extents[m] if m in operand.modes else 1 for m in modes]
            values.append(array.transpose(order).reshape(shape))
        types = contraction.value_types
        return Evaluator(contraction.epilogue, types)(sums.astype(types[0]), values)
