"""Host time of each layer of a call on PyTorch's tensors, without a GPU: `python -m tests.cpu.arrays.torch_layers`.

CPU tensors pose as a GPU's, and kernels compute nothing. So what is timed is this package and PyTorch around it,
without the launch itself. `torch.einsum` computes what it is asked for, on tensors as small. Times are the processor's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from string import ascii_letters
from typing import Any

import gett
from tests.cpu.arrays.torch_posed import PosedKind, posed

PRODUCTS = 10  # of the chain, forward; backward has twice as many


def microseconds(call: Callable[[], Any], calls: int = 200, blocks: int = 9) -> float:
    """Processor time of a call, the least over blocks of calls."""
    found = []
    for _ in range(blocks + 1):
        start = time.process_time()
        for _ in range(calls):
            call()
        found.append((time.process_time() - start) / calls * 1e6)
    return min(found[1:])


def layers(torch: Any, einsum: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    """The calls, each of which has a layer more than the one before."""
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    x, y = (torch.randn(2, 2, 2, 2, requires_grad=True) for _ in range(2))
    seed, corner = torch.ones(2, 2, 2, 2), torch.ones(2, 2)
    chain = [torch.randn(2, 2, requires_grad=True) for _ in range(PRODUCTS + 1)]
    terms = [ascii_letters[i : i + 2] for i in range(PRODUCTS + 1)]
    spec = f"{','.join(terms)}->{terms[0][0]}{terms[-1][1]}"

    def four() -> Any:
        return einsum("aebf,fdec->abcd", x, y)

    def pairs(first: Any, *rest: Any) -> Any:
        for other in rest:
            first = einsum("ij,jk->ik", first, other)
        return first

    def gradients(function: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(function(*chain), chain, corner)

    whole, parts = gradients(lambda *x: einsum(spec, *x)), gradients(pairs)
    return {
        "64 x 64, no derivatives": lambda: einsum("ij,jk->ik", a, b),
        "four modes, forward": four,
        "four modes, forward and backward": lambda: four().backward(seed),
        f"network of {PRODUCTS} products, forward and backward": whole,
        f"{PRODUCTS} products one by one, forward and backward": parts,
        "the same, compiled by aot_eager": gradients(torch.compile(pairs, backend="aot_eager", fullgraph=True)),
        "the same, compiled by inductor": gradients(torch.compile(pairs, fullgraph=True)),
    }


def main() -> None:
    """Print a table."""
    import torch

    torch.set_num_threads(1)
    gett.einsum("i->i", torch.ones(2))
    columns = {}
    for name, einsum in (("torch", torch.einsum), ("gett", gett.einsum)):
        with posed(torch) if name == "gett" else nullcontext() as kind:
            if kind is not None:
                kind._quick, kind.launch = torch._C._dynamo.guards._empty_strided_cpu, partial(_idle, kind)
            torch._dynamo.reset()
            calls = layers(torch, einsum)
            columns[name] = {layer: microseconds(call) for layer, call in calls.items()}
    for layer, us in columns["gett"].items():
        print(f"{layer:52s} gett {us:8.1f} us, torch {columns['torch'][layer]:8.1f} us")


def _idle(kind: PosedKind, executable: Any, a: Any, b: Any, c: Any, d: Any, *rest: Any) -> None:
    """What the way of a launch reads, and no more."""
    _ = a.data_ptr(), 0 if b is None else b.data_ptr(), d.data_ptr(), kind._stream(kind._number)


if __name__ == "__main__":
    main()
