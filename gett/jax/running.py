"""How the primitive of products runs: gett's plans on XLA's buffers, which stay where they are.

Owns the lowerings: on the CPU the NumPy executor writes XLA's buffer of the result, on a GPU kernels do so in XLA's
stream. Elsewhere a callback computes on the host. Knows no derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir

from gett.api.einsum import compute
from gett.arrays.exported import from_interface, required_cupy
from gett.arrays.kinds import CPU, NUMPY, CupyKind
from gett.errors import MissingPackageError
from gett.ir.tensors import ALIGNMENT_LIMIT, BFLOAT16, TensorSpec, dense_strides, own_dtype
from gett.jax.primitive import PRODUCT, Product
from gett.plans.call import make_call
from gett.slices.finder import plan_on_device

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


def _planned(kind: Any, device: int, product: Product, specs: Sequence[TensorSpec], out: TensorSpec) -> Any:
    """The plan of a product on arrays of a device, written to one that is there already."""
    operands, c = _split(specs)
    call = _call(product, operands, None, None)
    request = call.request(kind, operands, c, out, (), kind.arch(device), device)
    return plan_on_device(kind, replace(request, waits=True))


def _dense(shape: Sequence[int], dtype: Any) -> TensorSpec:
    own = own_dtype(np.dtype(dtype))
    return TensorSpec(tuple(shape), dense_strides(shape, own.itemsize), own)


def _described(product: Product, arrays: Sequence[Any]) -> tuple[tuple[TensorSpec, ...], TensorSpec]:
    """XLA's buffers of the arrays and of the result, which are dense."""
    specs = tuple(_dense(x.shape, x.dtype) for x in arrays)
    return specs, _dense(product.shape(arrays[:2]), product.dtype)


def _has_bfloat16(product: Product, arrays: Sequence[Any]) -> bool:
    return any(own_dtype(np.dtype(x)) is BFLOAT16 for x in (*(x.dtype for x in arrays), product.dtype))


# --- on the CPU


class HostProduct:
    """What writes a product to XLA's buffers by the NumPy executor; XLA keeps it as long as what it compiled."""

    def __init__(self, product: Product, arrays: Sequence[Any]) -> None:
        """Made for arrays, or for their descriptions, of which none is of bfloat16."""
        specs, out = _described(product, arrays)
        specs = tuple(replace(x, alignment=1) for x in specs)  # as NumPy's arrays are described
        self._run = _planned(NUMPY, CPU, product, specs, replace(out, alignment=1)).run
        self._alpha, self._beta, self._adds = product.alpha, product.beta, len(specs) == 3

    def __call__(self, context: Any, out: Any, a: Any, b: Any, *c: Any) -> None:
        """What XLA calls."""
        added = c[0].__array__() if self._adds else None
        operands = a.__array__(), b.__array__()
        self._run(NUMPY, CPU, operands, added, out.__array__(), self._alpha, self._beta)


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
    if _has_bfloat16(product, arrays):  # which NumPy lacks: XLA converts
        wide = [x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x for x in arrays]
        dtype = jnp.dtype("float32") if product.dtype == jnp.bfloat16 else product.dtype
        return _on_cpu(*wide, product=replace(product, dtype=dtype)).astype(product.dtype)
    return buffer_callback(HostProduct(product, arrays), _result(product, arrays))(*arrays)


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

    Attributes:
        workspace_bytes: Of the buffer that XLA passes behind the result, 0 for none.
        only_launches: Whether a call launches kernels and does nothing else, so that XLA may record it in a CUDA graph.
    """

    def __init__(self, product: Product, arrays: Sequence[Any]) -> None:
        """Plans and compiles for each GPU of JAX's.

        Args:
            product: What is computed.
            arrays: The operands and, behind them, C where there is one; or their descriptions.
        """
        self._product = product
        self.kind = BufferKind(required_cupy().module, _has_bfloat16(product, arrays))
        self._plans: dict[Any, Any] = {}
        self._ready: dict[int, Any] = {}
        specs, out = _described(product, arrays)
        devices = {x.local_hardware_id for x in jax.local_devices(backend="gpu")}
        for device in sorted(devices):
            executable = self._plan(device, specs, out).executable_on(device)
            if executable is not None:
                self._ready[device] = executable
        self.workspace_bytes = max((x.workspace_bytes for x in self._ready.values()), default=0)
        self.only_launches = len(self._ready) == len(devices)

    def __call__(self, context: Any, results: Sequence[Any], *buffers: Any) -> None:
        """What XLA calls, for each execution outside of CUDA graphs: it reads addresses and launches.

        Args:
            context: Has the stream.
            results: The result's buffer and, where `workspace_bytes` is not 0, the workspace.
            buffers: Those of the operands, and of C.
        """
        executable = self._ready.get(results[0].__dlpack_device__()[1])
        if executable is None:
            return self._run_plan(context.stream, results[0], buffers)
        addresses = [x.__cuda_array_interface__["data"][0] for x in (*buffers, *results)]
        if any([x % ALIGNMENT_LIMIT for x in addresses]):
            return self._run_plan(context.stream, results[0], buffers)
        workspace = addresses.pop() if self.workspace_bytes else 0
        a, b, *c, d = addresses
        executable.run_at(a, b, c[0] if c else 0, d, context.stream, workspace, self._product.alpha, self._product.beta)
        return None

    def _run_plan(self, stream: int, out: Any, buffers: Sequence[Any]) -> None:
        """A call that takes CuPy's arrays: of several steps, or on buffers of less alignment than XLA's own."""
        kind, product = self.kind, self._product
        d = from_interface(out, "out", [])
        device = kind.device(d)
        with kind.module.cuda.Device(device), kind.module.cuda.ExternalStream(stream):
            arrays = [from_interface(x, f"operand {i}", []) for i, x in enumerate(buffers)]
            plan = self._plan(device, tuple(map(kind.describe, arrays)), kind.describe(d))
            operands, c = _split(arrays)
            plan.run(kind, device, operands, c, d, product.alpha, product.beta)

    def _plan(self, device: int, specs: tuple[TensorSpec, ...], out: TensorSpec) -> Any:
        key = device, specs, out
        if key not in self._plans:
            self._plans[key] = _planned(self.kind, device, self._product, specs, out)
        return self._plans[key]


def _on_gpu(*arrays: Any, product: Product) -> Any:
    """A product by gett's kernels, on XLA's buffers and in XLA's stream. XLA makes the workspace too."""
    if buffer_callback is None:
        raise MissingPackageError("gett.jax on a GPU needs jax.experimental.buffer_callback, which this JAX lacks")
    result = _result(product, arrays)
    short = result.dtype == jnp.bfloat16
    run = GpuProduct(product, arrays)
    results = [jax.ShapeDtypeStruct(result.shape, _STAND_IN) if short else result]
    if run.workspace_bytes:
        results.append(jax.ShapeDtypeStruct((run.workspace_bytes,), np.uint8))
    made = buffer_callback(run, results, command_buffer_compatible=run.only_launches)
    found = made(*(lax.bitcast_convert_type(x, _STAND_IN) if x.dtype == jnp.bfloat16 else x for x in arrays))[0]
    return lax.bitcast_convert_type(found, jnp.bfloat16) if short else found


# --- registration


@lru_cache(maxsize=1024)
def _eager(product: Product) -> Any:
    """A product of arrays, compiled by XLA as a call of its own."""
    return jax.jit(partial(PRODUCT.bind, product=product))


def _run_eagerly(*arrays: Any, product: Product) -> Any:
    with jax.disable_jit(False):  # else the product would be evaluated by this function again
        return _eager(product)(*arrays)


PRODUCT.def_impl(_run_eagerly)
for _function, _platform in ((_by_host, None), (_on_cpu, "cpu"), (_on_gpu, "cuda")):
    mlir.register_lowering(PRODUCT, mlir.lower_fun(_function, multiple_results=False), platform=_platform)
