"""How the primitive of products runs: gett's plans on XLA's buffers, which stay where they are.

Owns the lowerings: on the CPU the NumPy executor writes XLA's buffer of the result, on a GPU kernels do so in XLA's
stream. Elsewhere a callback computes on the host. Knows no derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir

from gett.api.call import make_call
from gett.api.einsum import compute, plan_on_device
from gett.arrays.exported import from_interface, required_cupy
from gett.arrays.kinds import CupyKind
from gett.errors import MissingPackageError
from gett.ir.tensors import BFLOAT16, TensorSpec, dense_strides, own_dtype
from gett.jax.primitive import PRODUCT, Product

try:
    from jax.experimental.buffer_callback import buffer_callback
except ImportError:  # a JAX without it, or one that has replaced it
    buffer_callback = None

_STAND_IN = np.dtype(np.uint16)  # stands for bfloat16, which CuPy lacks


def _call(product: Product, operands: Sequence[Any], c: Any, out: Any) -> Any:
    """The record of a product on arrays, or on their descriptions."""
    return make_call(
        product.subscripts, tuple(operands), out, own_dtype(product.dtype), "C", "unsafe", True, product.precision,
        product.conj, product.limit, None, c, product.alpha, product.beta,
    )  # fmt: skip


def _split(arrays: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    return arrays[:2], arrays[2] if len(arrays) == 3 else None


# --- on the CPU


def _write_on_host(product: Product, context: Any, out: Any, *buffers: Any) -> None:
    operands, c = _split([np.asarray(x) for x in buffers])
    compute(_call(product, operands, c, np.asarray(out)))


def _compute_on_host(product: Product, *arrays: Any) -> Any:
    operands, c = _split([np.asarray(x) for x in arrays])
    return np.asarray(compute(_call(product, operands, c, None)), product.dtype)


def _by_host(*arrays: Any, product: Product) -> Any:
    """A product by a callback that copies to the host and back."""
    return jax.pure_callback(partial(_compute_on_host, product), _result(product, arrays), *arrays)


def _on_cpu(*arrays: Any, product: Product) -> Any:
    """A product by the NumPy executor, on XLA's own memory."""
    if buffer_callback is None:
        return _by_host(*arrays, product=product)
    return buffer_callback(partial(_write_on_host, product), _result(product, arrays))(*arrays)


def _result(product: Product, arrays: Sequence[Any]) -> Any:
    return jax.ShapeDtypeStruct(product.shape(arrays[:2]), product.dtype)


# --- on a GPU


class BufferKind(CupyKind):
    """CuPy arrays on XLA's buffers. Where bfloat16 takes part, arrays of uint16 hold it."""

    name = "JAX"

    def __init__(self, module: Any, bfloat16: bool) -> None:
        super().__init__(module)
        self._bfloat16 = bfloat16

    def describe(self, array: Any) -> TensorSpec:
        """As `CupyKind`."""
        found = super().describe(array)
        if not self._bfloat16 or found.dtype != _STAND_IN:
            return found
        return TensorSpec(found.shape, found.strides, BFLOAT16, found.alignment)

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], order: str = "C") -> Any:
        """As `CupyKind`."""
        return super().empty(shape, _STAND_IN if dtype is BFLOAT16 else dtype, order)


class GpuProduct:
    """What writes a product to XLA's buffers in XLA's stream; XLA keeps it as long as what it compiled.

    It holds its plans, since a CUDA graph of XLA's has their kernels when the plan cache has dropped them.
    """

    def __init__(self, product: Product, arrays: Sequence[Any]) -> None:
        """Made for arrays, or for their descriptions."""
        self._product, self._arrays = product, [(tuple(x.shape), x.dtype) for x in arrays]
        dtypes = [*(dtype for _, dtype in self._arrays), product.dtype]
        self.kind = BufferKind(required_cupy().module, any(own_dtype(x) is BFLOAT16 for x in dtypes))
        self._plans: dict[Any, Any] = {}

    def __call__(self, context: Any, out: Any, *buffers: Any) -> None:
        """What XLA calls."""
        kind, product = self.kind, self._product
        d = from_interface(out, "out", [])
        device = kind.device(d)
        with kind.module.cuda.Device(device), kind.module.cuda.ExternalStream(context.stream):
            arrays = [from_interface(x, f"operand {i}", []) for i, x in enumerate(buffers)]
            plan = self._plan(device, tuple(map(kind.describe, arrays)), kind.describe(d))
            operands, c = _split(arrays)
            plan.run(kind, device, operands, c, d, product.alpha, product.beta)

    def takes_memory(self) -> bool:
        """Whether a call takes device memory of its own on any GPU of JAX's; plans and compiles for each.

        XLA may record what takes none in a CUDA graph.
        """
        specs = tuple(_dense(*x) for x in self._arrays)
        out = _dense(self._product.shape(specs[:2]), self._product.dtype)
        devices = sorted({x.local_hardware_id for x in jax.local_devices(backend="gpu")})
        return any([self._plan(device, specs, out).takes_memory for device in devices])

    def _plan(self, device: int, specs: tuple[TensorSpec, ...], out: TensorSpec) -> Any:
        key = device, specs, out
        if key not in self._plans:
            kind, (operands, c) = self.kind, _split(specs)
            call = _call(self._product, operands, None, None)
            self._plans[key] = plan_on_device(kind, call.request(kind, operands, c, out, (), kind.arch(device), device))
        return self._plans[key]


def _dense(shape: Sequence[int], dtype: Any) -> TensorSpec:
    own = own_dtype(np.dtype(dtype))
    return TensorSpec(tuple(shape), dense_strides(shape, own.itemsize), own)


def _on_gpu(*arrays: Any, product: Product) -> Any:
    """A product by gett's kernels, on XLA's buffers and in XLA's stream."""
    if buffer_callback is None:
        raise MissingPackageError("gett.jax on a GPU needs jax.experimental.buffer_callback, which this JAX lacks")
    result = _result(product, arrays)
    short = result.dtype == jnp.bfloat16
    run = GpuProduct(product, arrays)
    made = buffer_callback(
        run,
        jax.ShapeDtypeStruct(result.shape, _STAND_IN) if short else result,
        command_buffer_compatible=not run.takes_memory(),
    )
    found = made(*(lax.bitcast_convert_type(x, _STAND_IN) if x.dtype == jnp.bfloat16 else x for x in arrays))
    return lax.bitcast_convert_type(found, jnp.bfloat16) if short else found


# --- registration


@lru_cache(maxsize=1024)
def _eager(product: Product) -> Any:
    """A product of arrays, compiled by XLA as a call of its own."""
    return jax.jit(partial(PRODUCT.bind, product=product))


def _run_eagerly(*arrays: Any, product: Product) -> Any:
    return _eager(product)(*arrays)


PRODUCT.def_impl(_run_eagerly)
for _function, _platform in ((_by_host, None), (_on_cpu, "cpu"), (_on_gpu, "cuda")):
    mlir.register_lowering(PRODUCT, mlir.lower_fun(_function, multiple_results=False), platform=_platform)
