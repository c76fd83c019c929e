"""Who is timed on a GPU: one preparing function per rival, each returning a call on buffer set i.

All rivals work on the same memory. Each may be missing or fail alone; whoever runs them catches that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from benchmarks.cases import Case, ElementType
from gett.baselines.cutensor import ALGORITHMS, CuTensor
from gett.baselines.ttgt import Ttgt
from gett.errors import DTypeError, MissingPackageError

Call = Callable[[int], object]


class Libraries:
    """The optional libraries, loaded at first use and kept for the whole run."""

    @cached_property
    def cutensor(self) -> CuTensor:
        """The cuTENSOR library with one handle."""
        return CuTensor()

    @cached_property
    def torch(self) -> Any:
        """PyTorch with a GPU."""
        try:
            import torch
        except ImportError as error:
            raise MissingPackageError(f"PyTorch is not installed: pip install torch ({error})") from error
        if not torch.cuda.is_available():
            raise MissingPackageError("this PyTorch finds no GPU")
        return torch


@dataclass
class Setting:
    """One case on the device.

    Attributes:
        case: What is computed.
        element: Of which type.
        precision: What the user asked for, or None.
        sets: Buffer sets (A, B, D) of CuPy arrays, visited in turn; bfloat16, which CuPy lacks, lies in their 16-bit
            integers, and whoever multiplies takes `torch_sets`.
        libraries: Shared by all cases.
    """

    case: Case
    element: ElementType
    precision: str | None
    sets: list[tuple[Any, Any, Any]]
    libraries: Libraries
    plan: Any = field(default=None)

    @cached_property
    def torch_sets(self) -> list[tuple[Any, Any, Any]]:
        """The same memory as PyTorch tensors."""
        torch = self.libraries.torch

        def convert(x: Any) -> Any:
            if self.narrow:
                return torch.from_dlpack(x.view("int16")).view(torch.bfloat16)
            return torch.from_dlpack(x)

        return [(convert(a), convert(b), convert(d)) for a, b, d in self.sets]

    @property
    def narrow(self) -> bool:
        """Whether the elements are bfloat16."""
        return self.element.name == "bfloat16"

    @property
    def own_sets(self) -> list[tuple[Any, Any, Any]]:
        """The sets as arrays of the element type: CuPy's where it has that, else PyTorch's."""
        return self.torch_sets if self.narrow else self.sets

    def gett(self) -> Call:
        """Our own: plan once, then call it."""
        import gett

        sets = self.own_sets
        a, b, _ = sets[0]
        self.plan = plan = gett.plan(self.case.einsum, a, b, precision=self.precision)

        def call(i: int) -> object:
            x, y, d = sets[i]
            return plan(x, y, out=d)

        return call

    def cutensor(self, algorithm: str) -> Call:
        """One algorithm of cuTENSOR, with 128-byte alignment promised."""
        plan = self.libraries.cutensor.plan(
            self.case.einsum, *self.sets[0], algorithm=algorithm, precision=self.precision, alignment=128,
            dtype=self.element.name,
        )  # fmt: skip
        return lambda i: plan(*self.sets[i])

    def ttgt(self) -> Call:
        """Transposed copies by CuPy (PyTorch for bfloat16) and a cuBLAS product."""
        import cupy

        sets = self.own_sets
        a, b, _ = sets[0]
        plan = Ttgt(self.case.einsum, a, b, self.libraries.torch if self.narrow else cupy)
        return lambda i: plan(*sets[i])

    def cupy_einsum(self) -> Call:
        """`cupy.einsum` as a user calls it."""
        import cupy

        if self.narrow:
            raise DTypeError("CuPy has no bfloat16")
        return lambda i: cupy.einsum(self.case.einsum, self.sets[i][0], self.sets[i][1])

    def torch_einsum(self) -> Call:
        """`torch.einsum` as a user calls it; its result may be a strided view, which spares it a copy."""
        torch, sets = self.libraries.torch, self.torch_sets
        return lambda i: torch.einsum(self.case.einsum, sets[i][0], sets[i][1])

    def torch_ordered(self) -> Call:
        """`torch.einsum` followed by the copy that puts its result into C order, where it is not."""
        torch, sets = self.libraries.torch, self.torch_sets
        return lambda i: torch.einsum(self.case.einsum, sets[i][0], sets[i][1]).contiguous()

    def cublas(self) -> Call:
        """A plain matrix product of equal M, N and K on the same memory: what no permutation at all would cost."""
        batch, m, n, k = self.case.bmnk
        shapes: list[tuple[int, ...]] = [(m, k), (k, n), (m, n)]
        if batch > 1:
            shapes = [(batch, *s) for s in shapes]
        product: Any
        try:
            torch, sets = self.libraries.torch, self.torch_sets
            product = torch.matmul
        except MissingPackageError:
            if self.narrow:
                raise
            import cupy

            sets, product = self.sets, cupy.matmul
        matrices = [[x.reshape(s) for x, s in zip(tensors, shapes, strict=True)] for tensors in sets]

        def call(i: int) -> object:
            x, y, z = matrices[i]
            return product(x, y, out=z)

        return call


def all_rivals() -> dict[str, Callable[[Setting], Call]]:
    """Every rival by name, gett first."""

    def with_cutensor(algorithm: str) -> Callable[[Setting], Call]:
        return lambda setting: setting.cutensor(algorithm)

    return {
        "gett": Setting.gett,
        **{f"cutensor:{name}": with_cutensor(name) for name in ALGORITHMS},
        "ttgt": Setting.ttgt,
        "cupy.einsum": Setting.cupy_einsum,
        "torch.einsum": Setting.torch_einsum,
        "torch.einsum+order": Setting.torch_ordered,
        "cublas": Setting.cublas,
    }


@contextlib.contextmanager
def math_mode(precision: str | None, libraries: Libraries) -> Iterator[None]:
    """Let CuPy and PyTorch round float32 operands to TF32 if, and only if, that precision is asked for."""
    import cupy
    from cupy._core import _routines_linalg, get_compute_type, set_compute_type

    tf32 = precision == "tf32"
    before = get_compute_type(cupy.float32)
    wanted = "COMPUTE_TYPE_TF32" if tf32 else "COMPUTE_TYPE_DEFAULT"
    set_compute_type(cupy.float32, getattr(_routines_linalg, wanted))
    torch = None
    with contextlib.suppress(Exception):  # PyTorch is optional
        torch = libraries.torch
        torch_before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        yield
    finally:
        set_compute_type(cupy.float32, before)
        if torch is not None:
            torch.backends.cuda.matmul.allow_tf32 = torch_before
