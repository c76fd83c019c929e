"""PyTorch's CPU tensors that pose as a GPU's: calls take the way of CUDA tensors, autograd and compilers are real.

What is real: PyTorch, layouts, addresses, plans, what is bound and kept. What is not: plans are those for the CPU, and
NumPy's executor runs them on the tensors' memory, so bfloat16 has no place here.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from math import prod
from typing import Any

import pytest

import gett
from gett.api.launching import launcher
from gett.arrays.torch import TorchKind, torch_library
from gett.ir.tensors import ALIGNMENT_LIMIT
from gett.plans.plan_cache import plan_cache
from tests.cpu.arrays.torch_derivatives import check_transforms
from tests.cpu.arrays.torch_gradients import check_drawn, check_memory


class PosedKind(TorchKind):
    """CPU tensors as those of GPU 0.

    Attributes:
        launches: How many steps ran.
        held: How many results there were at each of them.
    """

    def __init__(self, library: Any) -> None:
        module = library.module
        self._library, self._number, self._device, self.only = library, 0, module.device("cpu"), True
        self._empty, self._bytes, self._dtypes = module.empty_strided, module.uint8, library.own_dtypes
        self._no_memory = module.cuda.OutOfMemoryError
        self._stream, self._known = int, {}
        self._quick = partial(_aligned, module)
        self.describe, self.base = library.describe, library.base
        self.launches = 0
        self.held: list[int] = []
        self._made: list[Any] = []

    def forget(self) -> None:
        """Count from here on what is held."""
        self._made.clear()
        self.held.clear()

    def arch(self, device: int) -> str:
        return "cpu"

    def memory(self, device: int) -> int:
        return 1 << 40

    def launch(self, executable: Any, a: Any, b: Any, c: Any, d: Any, *rest: Any) -> None:
        self.launches += 1
        self._made = [x for x in self._made if x() is not None] + [weakref.ref(d)]
        self.held.append(len(self._made))
        alpha, beta, *extras = rest
        arrays = [None if x is None else self._library.base(x.detach()).numpy() for x in (a, b, c, d)]
        executable(*arrays, alpha, beta, *[[x.detach().numpy() for x in given] for given in extras])


def _aligned(torch: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
    """A new tensor whose address is a multiple of what plans ask for, as those of a GPU's allocator are."""
    size = prod(shape) * dtype.itemsize
    memory = torch.empty(size + ALIGNMENT_LIMIT, dtype=torch.uint8)
    start = -memory.data_ptr() % ALIGNMENT_LIMIT
    return memory[start : start + size].view(dtype).as_strided(shape, strides)


def check_derivatives(torch: Any) -> None:
    """Derivatives of all kinds, by what is bound where nothing transforms the call."""
    gett.einsum("i->i", torch.ones(2))
    with posed(torch) as kind:
        for check in (check_memory, check_drawn, check_transforms):
            check(torch)
    assert kind.launches > 1000


def check_bound(torch: Any) -> None:
    """What a call comes to is looked up once; what lies otherwise, or was tuned since, is worked out again."""
    x, y, z = (torch.randn(3, 3, requires_grad=True) for _ in range(3))
    weight = torch.randn(3, 3)
    gett.einsum("i->i", torch.ones(2))
    with posed(torch) as kind:

        def found(seed: Any, *operands: Any) -> Any:
            result = gett.einsum("ij,jk,kl->il", *operands, optimize=False)
            return torch.autograd.grad(result, operands, seed)

        def wanted(seed: Any, *operands: Any) -> Any:
            return torch.autograd.grad(operands[0] @ operands[1] @ operands[2], operands, seed)

        def looked_up() -> int:
            info = plan_cache.info()
            return info.hits + info.misses

        for operands in ((x, y, z), (x.mT, y, z), (x, x, z.detach()[:, :1].expand(3, 3).requires_grad_())):
            for seed in (weight, weight.mT, weight[0, 0].expand(3, 3)):
                for _ in range(2):  # bound, then as it is bound
                    torch.testing.assert_close(found(seed, *operands), wanted(seed, *operands))
        before = looked_up(), kind.launches
        found(weight, x, y, z)
        assert (looked_up() - before[0], kind.launches - before[1]) == (1, 6)
        # Which operands require gradients may differ from call to call.
        result = gett.einsum("ij,jk,kl->il", x.detach(), y, z.detach(), optimize=False)
        launches = kind.launches
        torch.testing.assert_close(torch.autograd.grad(result, y, weight)[0], wanted(weight, x, y, z)[1])
        assert kind.launches == launches + 2
        # Hooks may give back tensors that lie otherwise than what was saved.
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach().double(), lambda x: x.mT.float().mT):
            result = gett.einsum("ij,jk,kl->il", x, y, z)
        torch.testing.assert_close(torch.autograd.grad(result, (x, y, z), weight), wanted(weight, x, y, z))
        # A graph that is kept gives the same again, and one that is not is gone.
        result = gett.einsum("ij,jk,kl->il", x, y, z)
        for retain in (True, True, False):
            again = torch.autograd.grad(result, (x, y, z), weight, retain_graph=retain)
            torch.testing.assert_close(again, wanted(weight, x, y, z))
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(result, (x, y, z), weight)
        assert plan_cache.discard(lambda plan: len(plan.steps) > 6) >= 1  # the chain, whose plans were all bound
        torch.testing.assert_close(found(weight, x, y, z), wanted(weight, x, y, z))
        _check_held(torch, kind)
        with pytest.raises(gett.GradientError, match="a result of int64 has none"):
            gett.einsum("ij,jk->ik", x, y, dtype="int64", casting="unsafe")
        _check_launcher(torch)
        plan_cache.clear()


def _check_held(torch: Any, kind: PosedKind) -> None:
    """Intermediates and their gradients go while backward walks; of 20 operands the gradients stay."""
    count = 20
    terms = [chr(97 + i) + chr(98 + i) for i in range(count)]
    chain = [torch.randn(2, 2, requires_grad=True) for _ in range(count)]
    for _ in range(2):
        kind.forget()
        result = gett.einsum(f"{','.join(terms)}->{terms[0][0]}{terms[-1][1]}", *chain, optimize=False)
        assert kind.held == [*range(1, count)]  # all intermediates, and the result
        kind.held.clear()
        gradients = torch.autograd.grad(result, chain, torch.ones(2, 2))
        assert max(kind.held) <= count + 3, kind.held
        del gradients


def _check_launcher(torch: Any) -> None:
    """A launcher looks a plan up once, and again after plans were dropped."""
    a, b, found = torch.randn(3, 4), torch.randn(4, 5), torch.empty(3, 5)
    for alike in (False, True):
        launch = launcher("ij,jk->ik", [False, False], 2.0, 0, torch.float32, "C", None, False, 1 << 28, alike=alike)
        lookups = []
        for turn in range(4):
            before = plan_cache.info()
            launch(a, b, out=found.fill_(7))
            after = plan_cache.info()
            lookups.append(after.hits + after.misses - before.hits - before.misses)
            torch.testing.assert_close(found, 2 * (a @ b))
            if turn == 1:
                plan_cache.discard(lambda plan: True)
        assert lookups == [1, 0, 1, 0]
    one = launcher("ij->j", [False], 1, 0, torch.float32, "C", None, False, 1 << 28, alike=True)
    for x in (a, a + 1):
        one(x, out=(column := torch.empty(4)))
        torch.testing.assert_close(column, x.sum(0))


def check_launched(torch: Any) -> None:
    """Inductor's code calls launchers; the operator stays where it must."""
    from torch._inductor.utils import run_and_get_code

    def network(a: Any, b: Any, c: Any) -> Any:
        return gett.einsum("ij,jk,kl->il", a.sin(), b, c).cos()

    def wanted(a: Any, b: Any, c: Any) -> Any:
        return (a.sin() @ b @ c).cos()

    def gradients(function: Any, x: Any) -> Any:
        result = function(*x)
        return torch.autograd.grad(result, x, torch.ones_like(result))

    gett.einsum("i->i", torch.ones(2))
    for dtype, dynamic, launched in ((torch.float32, False, True), (torch.float64, True, True),
                                     (torch.complex64, False, False)):  # fmt: skip
        torch._dynamo.reset()
        compiled = torch.compile(network, fullgraph=True, dynamic=dynamic)
        for posing in (False, True):
            x = [torch.randn(3, 3, dtype=dtype, requires_grad=True) for _ in range(3)]
            with posed(torch) if posing else nullcontext():
                found, code = run_and_get_code(gradients, compiled, x)
                torch.testing.assert_close(found, gradients(wanted, x))
                if code:
                    text = "".join(code)
                    assert ("gett_launcher" in text) is launched
                    assert ("torch.ops.gett" in text) is not launched
        if dynamic:
            x = [torch.randn(4, 4, dtype=dtype, requires_grad=True) for _ in range(3)]
            torch.testing.assert_close(gradients(compiled, x), gradients(wanted, x))
    torch._dynamo.reset()


@contextmanager
def posed(torch: Any) -> Iterator[PosedKind]:
    """A context in which CPU tensors say that they are on GPU 0."""
    library = torch_library()
    assert library is not None
    kind = PosedKind(library)
    known, library._kinds[0] = library._kinds.get(0), kind
    captures, library.captures = library.captures, bool
    torch.Tensor.is_cuda, torch.Tensor.get_device = property(lambda x: True), lambda x: 0
    try:
        yield kind
    finally:
        del torch.Tensor.is_cuda, torch.Tensor.get_device
        del library._kinds[0]
        library.captures = captures
        if known is not None:
            library._kinds[0] = known
