"""What code that PyTorch's compiler generated calls for a product: operands and memory for the result, no checks.

Owns the plans that are bound to such a call site, by how its tensors lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gett.api.einsum import compute
from gett.arrays.torch import TorchLibrary, torch_library
from gett.arrays.torch_autograd import Product, described_product
from gett.ir.tensors import ALIGNMENT_LIMIT
from gett.plans.call import product_call
from gett.plans.plan_cache import plan_cache
from gett.plans.recording import runner
from gett.slices.finder import plan_on_device

Run = Callable[[Sequence[Any], Any], None]


def launcher(*described: Any, alike: bool = False) -> Launcher:
    """What computes a product.

    Args:
        described: What the operator `gett::contract` takes behind its tensors.
        alike: Whether tensors that are given here differ by their addresses alone.
    """
    return Launcher(described_product(runner(compute), *described), alike=alike)


class Launcher:
    """A product at one place of generated code: `launcher(a, b, out=d)`."""

    __slots__ = ("_alike", "_bound", "_drops", "_product")

    def __init__(self, product: Product, *, alike: bool) -> None:
        self._product, self._alike, self._drops = product, alike, plan_cache.drops
        self._bound: dict[Any, Run] = {}

    def __call__(self, *operands: Any, out: Any) -> None:
        """Write the product of one or two tensors into memory that is none of theirs."""
        place = None
        if self._drops != plan_cache.drops:  # tuned since
            self._drops = plan_cache.drops
            self._bound = {}
        if self._alike:
            place = tuple([x.data_ptr() % ALIGNMENT_LIMIT for x in operands]), out.data_ptr() % ALIGNMENT_LIMIT
            run = self._bound.get(place)
            if run is not None:
                return run(operands, out)
        torch = torch_library()
        assert torch is not None
        warm = torch.layouts((*operands, out))
        if warm is None or warm[2]:
            with torch.module.no_grad(), torch.modes.unwatched():
                compute(product_call(self._product, operands, out))
            return None
        key = tuple(warm[1])
        run = self._bound.get(key)
        if run is None:
            run = self._near(torch, key) or self._bind(torch, warm[0], operands, out)
            self._bound[key] = run
            if place is not None:
                self._bound[place] = run
        return run(operands, out)

    def _near(self, torch: TorchLibrary, parts: tuple[Any, ...]) -> Run | None:
        """While a CUDA graph is recorded, when no kernel may be compiled, what is bound for lesser alignments."""
        if not torch.captures():
            return None
        known = [(x, run) for x, run in self._bound.items() if len(x) == len(parts)]
        return next((run for planned, run in known if torch.near(parts, planned)), None)

    def _bind(self, torch: TorchLibrary, device: int, operands: Sequence[Any], out: Any) -> Run:
        kind = torch.kind(device)
        described = tuple(map(kind.describe, operands))
        call = product_call(self._product, operands, out)
        request = call.request(kind, described, None, kind.describe(out), (), kind.arch(device), device)
        plan, alpha = plan_on_device(kind, replace(request, waits=True)), self._product.alpha
        executable, launch = plan.sole(kind, device), kind.launch
        if executable is None:
            return lambda operands, out: plan.run(kind, device, operands, None, out, alpha, 0)
        if len(operands) == 1:
            return lambda operands, out: launch(executable, operands[0], None, None, out, alpha, 0)
        return lambda operands, out: launch(executable, operands[0], operands[1], None, out, alpha, 0)
