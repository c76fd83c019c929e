"""PyTorch tensors behind the interface of `ArrayKind`; PyTorch is used only after somebody else has imported it.

Owns every call into PyTorch: what a tensor is, how a new one is made, which stream is current. Knows neither subscripts
nor plans. Results and workspaces come from PyTorch's caching allocator, so its rules about streams hold for them.
"""

# ruff: noqa: D102 - `gett.arrays.kinds.ArrayKind` documents the methods of every kind

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import numpy as np

from gett.arrays.dynamo import leaves_tracing
from gett.arrays.kinds import ALIGNMENT, out_of_memory
from gett.arrays.torch_modes import HOLD_NO_VALUES, TorchModes
from gett.errors import DTypeError, OperandError
from gett.ir.subscripts import Spec, sums_products
from gett.ir.tensors import ALIGNMENT_LIMIT, SUPPORTED, TensorSpec, dense_strides, parse_dtype

_LOWERED = ("bfloat16", "float16", "float32")  # what autocast converts


class TorchLibrary:
    """The `torch` module as far as it is used, with its dtypes translated.

    Attributes:
        tensor: The class of all tensors.
        plain: Classes whose instances are what they seem: memory with strides.
        dtypes: This package's dtype of each of PyTorch's that is supported.
        own_dtypes: PyTorch's dtype by this package's name.
        conjugated: What stands for each dtype in `layouts` where a tensor is lazily conjugated.
        stream: From a device number to the handle of this thread's current stream there.
        casts: Whether `torch.autocast` holds on GPUs now.
        captures: Whether a CUDA graph is recorded now.
        modes: What PyTorch records and transforms now.
        operator: `gett::contract` once it is registered.
        functions: The autograd functions of contractions once their classes are made.
        node: That of whole networks, as `gett.arrays.torch_chain` calls it.
        epilogue: That of epilogues.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.tensor: Any = module.Tensor
        self.plain: tuple[Any, ...] = (module.Tensor, module.nn.Parameter)
        found = {name: getattr(module, name, None) for name in sorted(SUPPORTED)}
        self.own_dtypes = {name: own for name, own in found.items() if own is not None}
        self.dtypes = {own: parse_dtype(name) for name, own in self.own_dtypes.items()}
        self.conjugated = {own: (own, "conj") for own in self.dtypes}
        # The public call makes a stream object, which takes longer than the rest of a call to this package.
        quick = getattr(module._C, "_cuda_getCurrentRawStream", None)
        self.stream: Callable[[int], int] = quick or (lambda device: module.cuda.current_stream(device).cuda_stream)
        self.casts: Callable[[], bool] = getattr(module, "is_autocast_enabled", bool)
        captures = getattr(module.cuda, "is_current_stream_capturing", bool)
        self.captures: Callable[[], bool] = captures
        self.modes = TorchModes(module, self.plain)
        self._dual_levels, self._dispatch_modes = self.modes.dual_levels, self.modes.dispatch_modes
        self._lowered = {own for name, own in self.own_dtypes.items() if name in _LOWERED}
        self.operator: Any = None
        self.functions: Any = None
        self.node: Any = None
        self.epilogue: Any = None
        self._kinds: dict[int, TorchKind] = {}

    def kind(self, device: int) -> TorchKind:
        """The tensors of one GPU."""
        found = self._kinds.get(device)
        return self._kinds.setdefault(device, TorchKind(self, device)) if found is None else found

    def layouts(self, tensors: Sequence[Any]) -> tuple[int, list[Any], bool] | None:
        """Of CUDA tensors the device, what a plan for them depends on, and whether derivatives are recorded.

        None where one of them needs a closer look. This is the warm path: it makes no records.
        """
        device, recorded = -1, False
        parts: list[Any] = []
        plain = self.plain
        if self._dual_levels._current_level >= 0 or self._dispatch_modes():
            return None
        try:
            for x in tensors:
                if x.__class__ not in plain or not x.is_cuda or x.is_neg():
                    return None
                dtype = x.dtype
                if x.requires_grad:
                    recorded = True
                if dtype.is_complex and x.is_conj():
                    dtype = self.conjugated[dtype]
                where = x.get_device()
                if where != device:
                    if device >= 0:
                        return None
                    device = where
                address = x.data_ptr()
                if not address:  # empty, or without memory, as functionalize's tensors are
                    return None
                parts += (x.shape, x.stride(), dtype, where, ALIGNMENT[address % ALIGNMENT_LIMIT])
        except RuntimeError:  # a tensor without strides or memory
            return None
        if recorded:
            recorded = self.modes.recording()
            if recorded and self.modes.transforms():
                return None
        return device, parts, recorded

    def translate(self, planned: Sequence[TensorSpec], device: int) -> list[Any]:
        """A plan's tensors as `layouts` describes such."""
        parts: list[Any] = []
        for t in planned:
            size = t.dtype.itemsize
            # A fraction equals no tensor's stride.
            elements = tuple(s // size if s % size == 0 else s / size for s in t.strides)
            own = self.own_dtypes.get(t.dtype.name)
            parts += (t.shape, elements, self.conjugated.get(own) if t.conj else own, device, t.alignment)
        return parts

    def fit(self, tensors: Sequence[Any], planned: list[Any]) -> bool:
        """Whether CUDA tensors are laid out as the first of those that `translate` gave."""
        found = self.layouts(tensors)
        if found is None or found[2]:
            return False
        return self.near(found[1], planned[: len(found[1])])

    def near(self, parts: Sequence[Any], planned: Sequence[Any]) -> bool:
        """Whether what `layouts` gave fits what was planned for: addresses may be multiples of more than that."""
        if parts == planned:
            return True
        return all(x >= y if i % 5 == 4 else x == y for i, (x, y) in enumerate(zip(parts, planned, strict=True)))

    def admit(self, x: Any, name: str, *, lazily: bool = False, recorded: bool = False) -> Any:
        """A tensor whose memory holds its values, without its gradient; `x` itself, unless PyTorch negates it lazily.

        Args:
            x: Any tensor.
            name: For messages.
            lazily: Whether it may stay conjugated lazily; it is conjugated in a copy otherwise.
            recorded: Whether derivatives are recorded, so that it may have some, and may have no memory.

        Raises:
            DTypeError: It has no strides, no memory or an unsupported dtype.
        """
        if x.__class__ not in self.plain and not recorded:
            _check_class(x, name)
        if x.is_nested:
            raise OperandError(
                f"{name} is a nested tensor, whose rows differ in extent: contract its parts, x.unbind(), one by one, "
                "or pass torch.nested.to_padded_tensor(x, 0.0)"
            )
        if x.layout is not self.module.strided:
            raise DTypeError(f"{name} is a PyTorch tensor of layout {x.layout}: pass a dense one")
        if x.dtype not in self.dtypes:
            raise DTypeError(f"{name} has dtype {x.dtype}; supported are {', '.join(self.own_dtypes)}")
        if recorded:
            return x.resolve_neg() if x.is_neg() else x
        try:
            if not x.data_ptr() and x.numel():
                raise RuntimeError("it has no memory")
        except RuntimeError as error:
            raise DTypeError(f"{name} is a {type(x).__name__} without memory of its own ({error})") from error
        if x.is_conj() and not lazily:
            x = x.resolve_conj()
        return x.resolve_neg() if x.is_neg() else x

    def memory(self, x: Any) -> Any:
        """The NumPy array on an admitted CPU tensor's memory."""
        return (x.detach() if x.requires_grad else x).numpy()

    def autocast(self, spec: Spec, tensors: Sequence[Any]) -> Any:
        """PyTorch's dtype in which `torch.autocast` has an einsum of some tensors computed; None where it has no say.

        It holds for real tensors of at most 32 bits, on the devices that it was entered for. On a GPU every einsum is
        computed in its dtype (PyTorch's "CUDA Ops that can autocast to float16"), elsewhere the matrix products are.
        """
        for x in tensors:
            if isinstance(x, self.tensor):
                break
        else:
            return None
        device = x.device.type
        if device not in ("cpu", "cuda") or not self.module.is_autocast_enabled(device):
            return None
        if not self.lowers([x.dtype for x in tensors if isinstance(x, self.tensor)]):
            return None
        return self.module.get_autocast_dtype(device) if device == "cuda" or sums_products(spec) else None

    def lowers(self, dtypes: Sequence[Any]) -> bool:
        """Whether `torch.autocast` converts tensors of these dtypes."""
        return self._lowered.issuperset(dtypes)

    def scalar(self, value: Any, beside: Any) -> Any:
        """A number as a tensor of rank 0 on another one's device.

        A Python number takes that tensor's dtype where its kind allows, as in PyTorch; NumPy's scalars keep theirs.
        """
        module = self.module
        if isinstance(value, np.generic):
            dtype = self.own_dtypes.get(value.dtype.name)
            if dtype is None:
                raise DTypeError(f"a NumPy scalar of dtype {value.dtype} has no place beside PyTorch tensors")
            value = value.item()
        else:
            dtype = module.result_type(beside, value)
        return module.as_tensor(value, dtype=dtype, device=beside.device)

    def describe(self, x: Any) -> TensorSpec:
        """Shape, strides, dtype and alignment of a tensor anywhere, and whether it is conjugated lazily."""
        size = x.element_size()
        strides, alignment = tuple(s * size for s in x.stride()), ALIGNMENT[x.data_ptr() % ALIGNMENT_LIMIT]
        return TensorSpec(tuple(x.shape), strides, self.dtypes[x.dtype], alignment, bool(x.is_conj()))

    def base(self, x: Any) -> Any:
        """The tensor of the numbers that memory holds, of one that may be conjugated lazily."""
        return x.conj() if x.is_conj() else x

    def to_host(self, x: Any) -> Any:
        """The numbers that a tensor's memory holds as a dense NumPy array."""
        return self.base(x.detach()).cpu().contiguous().numpy()


class TorchKind:
    """PyTorch's tensors on one GPU.

    Attributes:
        only: Whether there is no other GPU.
    """

    name = "PyTorch"

    def __init__(self, library: TorchLibrary, device: int) -> None:
        module = library.module
        self._library = library
        self._number, self._device = device, module.device("cuda", device)
        self.only = module.cuda.device_count() == 1
        self._empty, self._bytes = module.empty_strided, module.uint8
        self._stream, self._dtypes = library.stream, library.own_dtypes
        self._known: dict[Any, Any] = {}
        # What PyTorch's own compiler allocates by takes half as long; it allocates on the current device.
        guards = getattr(getattr(module._C, "_dynamo", None), "guards", None)
        self._quick: Any = getattr(guards, "_empty_strided_cuda", None) if self.only else None
        self._no_memory = module.cuda.OutOfMemoryError
        self.describe, self.base, self.to_host = library.describe, library.base, library.to_host

    def from_host(self, array: Any) -> Any:
        return self._library.module.as_tensor(array, device=self._device)

    def device(self, array: Any) -> int:
        return int(array.get_device())

    def pointer(self, array: Any) -> int:
        return int(array.data_ptr())

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], order: str = "C") -> Any:
        own = self._known.get(dtype)
        if own is None:  # NumPy takes longer to tell a dtype's name than PyTorch to allocate
            own = self._known.setdefault(dtype, self._dtypes[dtype.name])
        shape = tuple(shape)
        strides = _element_strides(shape, order)
        try:  # with strides, since PyTorch takes half as long then
            if self._quick is not None:
                return self._quick(shape, strides, own)
            return self._empty(shape, strides, dtype=own, device=self._device)
        except self._no_memory as error:
            raise out_of_memory(shape, dtype, "device") from error

    def copy(self, target: Any, source: Any) -> None:
        if isinstance(source, self._library.tensor):
            target.copy_(source)
        else:
            target.fill_(source)

    def memory(self, device: int) -> int:
        from gett.runtime.device import device_facts

        return device_facts(device).memory_bytes

    def free(self, device: int) -> int:
        cuda = self._library.module.cuda
        return int(cuda.mem_get_info(device)[0] + cuda.memory_reserved(device) - cuda.memory_allocated(device))

    def permute(self, array: Any, axes: Sequence[int]) -> Any:
        return array.permute(tuple(axes))

    def on(self, device: int) -> AbstractContextManager[Any] | None:
        if self.only:
            return None
        from gett.runtime.device import require_cupy

        cuda = require_cupy().cuda
        if cuda.runtime.getDevice() == device:
            return None
        context: AbstractContextManager[Any] = cuda.Device(device)
        return context

    def arch(self, device: int) -> str:
        from gett.runtime.device import device_facts

        return device_facts(device).arch

    def launch(
        self, executable: Any, a: Any, b: Any, c: Any, d: Any, alpha: Any, beta: Any, extras: Sequence[Any] = ()
    ) -> None:
        # The allocator gives the workspace to nobody else before this stream has run what is queued in it now.
        nbytes = executable.workspace_bytes
        memory = self._workspace(nbytes) if nbytes else None
        if extras:
            extras = [x.data_ptr() for x in extras]
        executable.run_at(
            a.data_ptr(),
            0 if b is None else b.data_ptr(),
            0 if c is None else c.data_ptr(),
            d.data_ptr(),
            self._stream(self._number),
            0 if memory is None else memory.data_ptr(),
            alpha,
            beta,
            extras,
        )

    def stream(self) -> int:
        return int(self._stream(self._number))

    def _workspace(self, nbytes: int) -> Any:
        try:
            return self._empty((nbytes,), (1,), dtype=self._bytes, device=self._device)
        except self._no_memory as error:
            raise out_of_memory((nbytes,), np.dtype(np.uint8), "device") from error


def _check_class(x: Any, name: str) -> None:
    """Refuse tensors of classes that PyTorch traces with.

    Raises:
        OperandError: It is of such a class.
    """
    for cls in type(x).__mro__:
        if cls.__name__ in HOLD_NO_VALUES:
            raise OperandError(
                f"{name} is a {cls.__name__}, which holds no values: call this outside of torch.export and of "
                "what else traces with such tensors"
            )


@lru_cache(maxsize=1024)
def _element_strides(shape: tuple[int, ...], order: str) -> tuple[int, ...]:
    return dense_strides(shape, 1, order)


_library: TorchLibrary | None = None


@leaves_tracing
def is_tensor(x: Any) -> bool:
    """Whether something is a tensor of PyTorch's."""
    torch = torch_library()
    return torch is not None and isinstance(x, torch.tensor)


def torch_library() -> TorchLibrary | None:
    """PyTorch if it has been imported (by anybody), else None."""
    global _library
    if _library is None:
        module = sys.modules.get("torch")
        if module is not None and hasattr(module, "Tensor") and hasattr(module, "nn"):
            _library = TorchLibrary(module)
    return _library
