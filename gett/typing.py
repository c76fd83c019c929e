"""Types of the public functions' arguments, for annotations of one's own: `precision: gett.typing.Precision = "ieee"`.

Owns the names that options take, as literal types. Arrays of other libraries are known by what they can do, so that no
library need be installed to check types.
"""

# ruff: noqa: D102 - the protocols' methods are those of the libraries

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

Precision: TypeAlias = Literal["ieee", "bf16x6", "fp16x3", "bf16x3", "tf32"]
"""How products are formed at least."""

Order: TypeAlias = Literal["C", "F", "A", "K"]
"""Memory order of a new result."""

Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
"""NumPy's rule for conversions."""

PathAlgorithm: TypeAlias = Literal[
    "auto", "auto-hq", "optimal", "dp", "dynamic-programming", "greedy", "eager", "opportunistic", "random-greedy",
    "random-greedy-128", "branch-all", "branch-1", "branch-2", "autotune",
]  # fmt: skip
"""How the path of a network is found: opt_einsum's names, and `"autotune"`, which measures kernels."""


class PathTree(Protocol):
    """What has a path, such as cotengra's ContractionTree."""

    def get_path(self) -> Any: ...


class PathSearch(Protocol):
    """What searches trees, such as cotengra's optimisers."""

    def search(self, inputs: Any, output: Any, size_dict: Any) -> Any: ...


Optimize: TypeAlias = (
    bool
    | PathAlgorithm
    | tuple[PathAlgorithm, float | str | None]
    | Sequence[Sequence[int]]
    | PathTree
    | PathSearch
    | Callable[..., Any]
    | None
)
"""`optimize=`: an algorithm, also with a limit on intermediates, a path, a tree, or an optimiser."""

Size: TypeAlias = int | str
"""Bytes, as a number or as text such as `"1GiB"`."""


class TorchDType(Protocol):
    """A dtype of PyTorch."""

    @property
    def is_floating_point(self) -> bool: ...


DType: TypeAlias = npt.DTypeLike | TorchDType | None


class DeviceArray(Protocol):
    """An array of PyTorch, CuPy, JAX or any other library that exchanges memory by DLPack."""

    def __dlpack__(self) -> Any: ...

    @property
    def shape(self) -> Any: ...


class SupportsArray(Protocol):
    """What NumPy takes for an array."""

    def __array__(self) -> Any: ...


DeviceArrayT = TypeVar("DeviceArrayT", bound=DeviceArray)
Labels: TypeAlias = Sequence[complex] | Sequence[str] | Sequence[Sequence[complex]]
"""The labels of an operand in the interleaved form, or lists of numbers."""
NumPyOperand: TypeAlias = npt.NDArray[Any] | np.generic | complex | Labels


class EinsumOptions(TypedDict, total=False):
    """What `einsum` takes by name beside `out`."""

    dtype: DType
    order: Order | None
    casting: Casting
    optimize: Optimize
    precision: Precision | None
    conj: Sequence[bool] | None
    workspace_limit: Size | None
    memory_limit: Size | float | None
    checkpoint: Size | None
    devices: Sequence[int] | None
    shard: str | None
    strip_exponent: Literal[False]


class ContractOptions(TypedDict, total=False):
    """What `contract` takes by name beside `out`."""

    c: Any
    alpha: Any
    beta: Any
    optimize: Optimize
    precision: Precision | None
    epilogue: Callable[..., Any] | None
    epilogue_args: Sequence[Any]
    conj: Sequence[bool] | None
    workspace_limit: Size | None
    memory_limit: Size | float | None
    checkpoint: Size | None
    devices: Sequence[int] | None
    shard: str | None
    strip_exponent: Literal[False]


class CallOptions(TypedDict, total=False):
    """What a plan takes by name beside `out`."""

    c: Any
    alpha: Any
    beta: Any
    epilogue_args: Sequence[Any]
    checkpoint: Size | None
    strip_exponent: Literal[False]
    changed: Sequence[int] | None
