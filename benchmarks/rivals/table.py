"""The rivals: whoever else computes an einsum, each prepared once and then a call on buffer set i.

The benchmarks and the commands choose from this one list. All rivals of a run work on the same memory. Each may be
missing or fail alone; whoever runs them catches that.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.rivals.cutensor import ALGORITHMS, EMULATIONS, CuTensor
from benchmarks.rivals.ttgt import Ttgt, split_subscripts
from gett.cpu.threads import available_threads
from gett.errors import DTypeError, MissingPackageError, OptionError
from gett.typing import Precision

Call = Callable[[int], Any]
# numpy.einsum's own default keeps intermediates below the largest operand, and takes a network all at once where it
# cannot: hours instead of milliseconds.
GREEDY = ("greedy", 1 << 62)


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
            torch = importlib.import_module("torch")
        except ImportError as error:
            raise MissingPackageError(f"PyTorch is not installed: pip install torch ({error})") from error
        if not torch.cuda.is_available():
            raise MissingPackageError("this PyTorch finds no GPU")
        return torch


@dataclass
class Setting:
    """One contraction and its memory.

    Attributes:
        einsum: Explicit subscripts.
        dtype: Of the elements, NumPy's name or `"bfloat16"`.
        precision: What the user asked for, or None.
        sets: Buffer sets, the operands and then the result, visited in turn. On a GPU CuPy arrays, C-contiguous;
            bfloat16, which CuPy lacks, lies in their 16-bit integers, and whoever multiplies takes `torch_sets`.
        libraries: Shared by all settings of a run.
        plan: gett's, once it is prepared.
    """

    einsum: str
    dtype: str
    precision: Precision | None
    sets: list[tuple[Any, ...]]
    libraries: Libraries
    plan: Any = field(default=None)

    @cached_property
    def torch_sets(self) -> list[tuple[Any, ...]]:
        """The same memory as PyTorch tensors."""
        torch = self.libraries.torch

        def convert(x: Any) -> Any:
            if self.narrow:
                return torch.from_dlpack(x.view("int16")).view(torch.bfloat16)
            return torch.from_dlpack(x)

        return [tuple(map(convert, tensors)) for tensors in self.sets]

    @property
    def narrow(self) -> bool:
        """Whether the elements are bfloat16."""
        return self.dtype == "bfloat16"

    @property
    def own_sets(self) -> list[tuple[Any, ...]]:
        """The sets as arrays of the element type: CuPy's where it has that, else PyTorch's."""
        return self.torch_sets if self.narrow else self.sets

    def gett(self) -> Call:
        """Our own: plan once, then call it."""
        import gett

        sets = self.own_sets
        self.plan = plan = gett.plan(self.einsum, *sets[0][:-1], precision=self.precision)

        def call(i: int) -> Any:
            *operands, d = sets[i]
            return plan(*operands, out=d)

        return call

    def numpy_einsum(self) -> Call:
        """`numpy.einsum` along a path, with a C-contiguous result."""
        return lambda i: np.ascontiguousarray(np.einsum(self.einsum, *self.sets[i][:-1], optimize=GREEDY))

    def opt_einsum(self) -> Call:
        """`opt_einsum.contract`, with a C-contiguous result."""
        contract = importlib.import_module("opt_einsum").contract
        return lambda i: np.ascontiguousarray(contract(self.einsum, *self.sets[i][:-1]))

    def tblis(self) -> Call:
        """TBLIS through pytblis, on as many threads as this process has processors; its results are C-contiguous."""
        pytblis = importlib.import_module("pytblis")
        pytblis.set_num_threads(available_threads())
        return lambda i: pytblis.einsum(self.einsum, *self.sets[i][:-1])

    def cutensor(self, algorithm: str, emulation: str | None = None) -> Call:
        """One algorithm of cuTENSOR, with 128-byte alignment promised; products formed as asked, or by an emulation."""
        a, b, d = self.sets[0]
        precision = emulation or self.precision
        plan = self.libraries.cutensor.plan(
            self.einsum, a, b, d, algorithm=algorithm, precision=precision, alignment=128, dtype=self.dtype
        )
        return lambda i: plan(*self.sets[i])

    def ttgt(self) -> Call:
        """Transposed copies by CuPy (PyTorch for bfloat16) and a cuBLAS product."""
        sets = self.own_sets
        a, b, _ = sets[0]
        plan = Ttgt(self.einsum, a, b, self.libraries.torch if self.narrow else importlib.import_module("cupy"))
        return lambda i: plan(*sets[i])

    def cupy_einsum(self) -> Call:
        """`cupy.einsum` along a path; its result may be a strided view, which spares it a copy."""
        cupy = importlib.import_module("cupy")
        if self.narrow:
            raise DTypeError("CuPy has no bfloat16")
        # Two operands are called as a user calls it: there is no path to find.
        options = {"optimize": GREEDY} if len(self.sets[0]) > 3 else {}
        return lambda i: cupy.einsum(self.einsum, *self.sets[i][:-1], **options)

    def torch_einsum(self) -> Call:
        """`torch.einsum` as a user calls it; its result may be a strided view, which spares it a copy."""
        torch, sets = self.libraries.torch, self.torch_sets
        return lambda i: torch.einsum(self.einsum, *sets[i][:-1])

    def torch_ordered(self) -> Call:
        """`torch.einsum` followed by the copy that puts its result into C order, where it is not."""
        call = self.torch_einsum()
        return lambda i: in_c_order(call(i))

    def torch_compiled(self) -> Call:
        """`torch.einsum` and the copy into C order, compiled together.

        What was compiled before is forgotten first: PyTorch returns to eager mode after eight versions of a function.
        """
        torch, sets = self.libraries.torch, self.torch_sets
        torch.compiler.reset()

        def ordered(*operands: Any) -> Any:
            return torch.einsum(self.einsum, *operands).contiguous()

        compiled = torch.compile(ordered, dynamic=False)
        return lambda i: compiled(*sets[i][:-1])

    def cublas(self) -> Call:
        """A plain matrix product of equal M, N and K on the same memory: what no permutation at all would cost.

        Raises:
            OptionError: M, N or K is 1.
        """
        terms = split_subscripts(self.einsum)
        extents = {
            x: e for term, t in zip(terms, self.sets[0], strict=True) for x, e in zip(term, t.shape, strict=True)
        }
        a, b, d = map(set, terms)
        batch, m, n, k = (
            math.prod(extents[x] for x in group) for group in (a & b & d, (a & d) - b, (b & d) - a, (a & b) - d)
        )
        if min(m, n, k) == 1:
            raise OptionError("there is no matrix product of this size: M, N or K is 1")
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
            sets, product = self.sets, importlib.import_module("cupy").matmul
        matrices = [[x.reshape(s) for x, s in zip(tensors, shapes, strict=True)] for tensors in sets]

        def call(i: int) -> Any:
            x, y, z = matrices[i]
            return product(x, y, out=z)

        return call


def in_c_order(result: Any) -> Any:
    """A result of any library in C order, copied where it is not."""
    if hasattr(result, "contiguous"):  # PyTorch's
        return result.contiguous()
    return result if result.flags.c_contiguous else result.copy()


def _cutensor(algorithm: str, emulation: str | None = None) -> Callable[[Setting], Call]:
    return lambda setting: setting.cutensor(algorithm, emulation)


ON_GPU: dict[str, Callable[[Setting], Call]] = {
    "gett": Setting.gett,
    **{f"cutensor:{name}": _cutensor(name) for name in ALGORITHMS},
    "ttgt": Setting.ttgt,
    "cupy.einsum": Setting.cupy_einsum,
    "torch.einsum": Setting.torch_einsum,
    "torch.einsum+order": Setting.torch_ordered,
    "cublas": Setting.cublas,
}
"""Every rival on a GPU by name, gett first."""

KNOWN: dict[str, Callable[[Setting], Call]] = {
    **ON_GPU,
    "torch.compile": Setting.torch_compiled,
    **{f"cutensor:{a}/{e}": _cutensor(a, e) for e in EMULATIONS for a in ALGORITHMS},
}
"""Those and the ones that are run only where they are named: they compile, or emulate a dtype's precision."""

ON_CPU: dict[str, Callable[[Setting], Call]] = {"numpy.einsum": Setting.numpy_einsum, "opt_einsum": Setting.opt_einsum}
"""Every rival on NumPy arrays by name."""


def on_cpu(dtype: str) -> dict[str, Callable[[Setting], Call]]:
    """Those, and TBLIS where pytblis is installed and TBLIS has the dtype."""
    has = dtype in ("float32", "float64", "complex64", "complex128") and importlib.util.find_spec("pytblis")
    return ON_CPU | ({"tblis": Setting.tblis} if has else {})


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
