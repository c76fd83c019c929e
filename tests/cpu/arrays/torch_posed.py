"""PyTorch's CPU tensors that pose as a GPU's: calls take the way of CUDA tensors, autograd and compilers are real.

What is real: PyTorch, layouts, addresses, plans, what is bound and kept. What is not: plans are those for the CPU, and
NumPy's executor runs them on the tensors' memory, so bfloat16 has no place here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gett.arrays.torch import TorchKind, torch_library


class PosedKind(TorchKind):
    """CPU tensors as those of GPU 0.

    Attributes:
        launches: How many steps ran.
        idle: Whether steps compute nothing, where host time is measured.
    """

    def __init__(self, library: Any) -> None:
        module = library.module
        self._library, self._number, self._device, self._only = library, 0, module.device("cpu"), True
        self._empty, self._bytes, self._dtypes = module.empty_strided, module.uint8, library.own_dtypes
        self._no_memory = module.cuda.OutOfMemoryError
        self._stream, self._known = int, {}
        self._quick = module._C._dynamo.guards._empty_strided_cpu
        self.describe, self.base = library.describe, library.base
        self.launches, self.idle = 0, False

    def arch(self, device: int) -> str:
        return "cpu"

    def memory(self, device: int) -> int:
        return 1 << 40

    def launch(self, executable: Any, a: Any, b: Any, c: Any, d: Any, *rest: Any) -> None:
        self.launches += 1
        if self.idle:
            _ = a.data_ptr(), 0 if b is None else b.data_ptr(), d.data_ptr(), self._stream(self._number)
            return
        alpha, beta, *extras = rest
        arrays = [None if x is None else self._library.base(x.detach()).numpy() for x in (a, b, c, d)]
        executable(*arrays, alpha, beta, *[[x.detach().numpy() for x in given] for given in extras])


@contextmanager
def posed(torch: Any) -> Iterator[PosedKind]:
    """A context in which CPU tensors say that they are on GPU 0."""
    library = torch_library()
    assert library is not None
    kind = PosedKind(library)
    known, library._kinds[0] = library._kinds.get(0), kind
    torch.Tensor.is_cuda, torch.Tensor.get_device = property(lambda x: True), lambda x: 0
    try:
        yield kind
    finally:
        del torch.Tensor.is_cuda, torch.Tensor.get_device
        del library._kinds[0]
        if known is not None:
            library._kinds[0] = known
