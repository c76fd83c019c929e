"""Gradients of drawn calls of `contract` on PyTorch's tensors against those of torch.einsum; run where PyTorch is.

Operands of small integers must give equal gradients. On other operands each component is within its bound, and gett's
have the same bits on every run.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import gett
from gett import ops

LABELS = "abcde"
# gett's function, PyTorch's, and whether both are exact on integers: f(result, argument). Halves keep off ties.
REAL: list[tuple[Callable[..., Any], Callable[..., Any], bool]] = [
    (lambda d, x: ops.relu(d - x + 0.5), lambda t, d, x: t.relu(d - x + 0.5), True),
    (lambda d, x: np.where(d > 0.5, d * x, -d), lambda t, d, x: t.where(d > 0.5, d * x, -d), True),
    (lambda d, x: np.maximum(d, x + 0.5) + d, lambda t, d, x: t.maximum(d, x + 0.5) + d, True),
    (lambda d, x: np.abs(d) * x, lambda t, d, x: t.abs(d) * x, True),
    (lambda d, x: np.clip(d, -2.5, 2.5) * x, lambda t, d, x: t.clip(d, -2.5, 2.5) * x, True),
    (lambda d, x: np.tanh(d / 8) * x, lambda t, d, x: t.tanh(d / 8) * x, False),
    (lambda d, x: ops.silu(d / 4) + x, lambda t, d, x: t.nn.functional.silu(d / 4) + x, False),
    (lambda d, x: ops.gelu(d / 4) * x, lambda t, d, x: t.nn.functional.gelu(d / 4) * x, False),
]
COMPLEX: list[tuple[Callable[..., Any], Callable[..., Any], bool]] = [
    (lambda d, x: np.conj(d) * x, lambda t, d, x: t.conj(d) * x, True),
    (lambda d, x: np.real(d) * d + x, lambda t, d, x: t.real(d) * d + x, True),
]
BOTH: list[tuple[Callable[..., Any], Callable[..., Any], bool]] = [
    (lambda d, x: d * x + d, lambda t, d, x: d * x + d, True),
    (lambda d, x: d * d - x, lambda t, d, x: d * d - x, True),
]


@dataclass(frozen=True)
class Call:
    """A drawn call.

    Attributes:
        subscripts: The explicit form.
        shapes: Of the operands; an axis of extent 1 may broadcast.
        conj: Which operands are conjugated.
        added: Shape of c, or None.
        alpha: Factor of the product.
        beta: Factor of c.
        dtype: Name of all tensors' dtype.
        epilogue: Both functions, and whether they are exact; or None.
        argument: Shape of the epilogue's argument.
    """

    subscripts: str
    shapes: tuple[tuple[int, ...], ...]
    conj: tuple[bool, ...]
    added: tuple[int, ...] | None
    alpha: complex
    beta: complex
    dtype: str
    epilogue: tuple[Callable[..., Any], Callable[..., Any], bool] | None
    argument: tuple[int, ...]

    def tensors(self, torch: Any, fill: Callable[[tuple[int, ...]], Any]) -> list[Any]:
        """The operands, c where there is one, the argument where there is an epilogue."""
        shapes = [*self.shapes, *([] if self.added is None else [self.added])]
        shapes += [] if self.epilogue is None else [self.argument]
        return [fill(s).to(getattr(torch, self.dtype)).requires_grad_() for s in shapes]

    def ours(self, tensors: Sequence[Any]) -> Any:
        """gett's result."""
        count = len(self.shapes) + (self.added is not None)
        options: dict[str, Any] = {"alpha": self.alpha, "conj": self.conj}
        if self.added is not None:
            options["beta"] = self.beta
        if self.epilogue is not None:
            options |= {"epilogue": self.epilogue[0], "epilogue_args": tuple(tensors[count:])}
        return gett.contract(self.subscripts, *tensors[:count], **options)

    def theirs(self, torch: Any, tensors: Sequence[Any]) -> Any:
        """The same by torch.einsum."""
        count = len(self.shapes)
        turned = [x.conj() if flag else x for x, flag in zip(tensors[:count], self.conj, strict=True)]
        result = torch.einsum(self.subscripts, *turned) * self.alpha
        if self.added is not None:
            result = result + self.beta * tensors[count]
        return result if self.epilogue is None else self.epilogue[1](torch, result, tensors[-1])

    def magnitudes(self, torch: Any, tensors: Sequence[Any], weight: Any) -> list[Any]:
        """For each tensor what its gradient sums, in absolute values, times the number of terms; no epilogue."""
        found = []
        for change in (torch.abs, torch.ones_like):
            plain = [change(x.detach().abs()).requires_grad_() for x in tensors]
            result = torch.einsum(self.subscripts, *plain[: len(self.shapes)])
            result = (result * abs(self.alpha) if change is torch.abs else result) + 0
            if self.added is not None:
                result = result + (abs(self.beta) if change is torch.abs else 1) * plain[-1]
            found.append(torch.autograd.grad(result, plain, change(weight.abs())))
        return [x * (2 + n) for x, n in zip(*found, strict=True)]


def draw(generator: random.Random) -> Call:
    """A call of one to four operands with whatever a call may have."""
    extents = {label: generator.choice([0, 1, 1, 2, 2, 2, 3, 3, 3, 3]) for label in LABELS}
    terms = [
        "".join(generator.choices(LABELS, k=generator.randint(0, 3))) for _ in range(generator.choice([1, 2, 2, 3, 4]))
    ]
    present = sorted(set("".join(terms)))
    output = "".join(generator.sample(present, generator.randint(0, len(present))))
    shapes = []
    for term in terms:
        squeezed = {x for x in term if generator.random() < 0.3 and sum(x in t for t in terms) > 1}
        shapes.append(tuple(1 if x in squeezed else extents[x] for x in term))
    held = {x: [s[t.index(x)] for t, s in zip(terms, shapes, strict=True) if x in t] for x in output}
    result = [next((n for n in sizes if n != 1), 1) for sizes in held.values()]
    kept = result[generator.randint(0, len(result)) :]
    is_complex = generator.random() < 0.5
    epilogue = generator.choice(BOTH + (COMPLEX if is_complex else REAL)) if generator.random() < 0.4 else None
    return Call(
        f"{','.join(terms)}->{output}",
        tuple(shapes),
        tuple(generator.random() < 0.4 for _ in terms),
        tuple(generator.choice([n, 1]) for n in kept) if generator.random() < 0.4 else None,
        generator.choice([1, 2, -3] + [1 - 2j] * is_complex),
        generator.choice([1, -1, 2] + [2j] * is_complex),
        "complex128" if is_complex else "float64",
        epilogue,
        tuple(result[generator.randint(0, len(result)) :]),
    )


def features(call: Call) -> set[str]:
    """What a call has that not every call has."""
    terms, sizes = call.subscripts.partition("->")[0].split(","), [n for s in call.shapes for n in s]
    extents: dict[str, set[int]] = {}
    for term, shape in zip(terms, call.shapes, strict=True):
        for label, n in zip(term, shape, strict=True):
            extents.setdefault(label, set()).add(n)
    found = {
        "conj": any(call.conj) and call.dtype == "complex128", "diagonal": any(len(set(t)) < len(t) for t in terms),
        "broadcast": any(len(n) > 1 for n in extents.values()), "extent 0": 0 in sizes, "extent 1": 1 in sizes,
        "network": len(terms) > 2, "c": call.added is not None, "epilogue": call.epilogue is not None,
        call.dtype: True,
    }  # fmt: skip
    return {name for name, has in found.items() if has}


def check(torch: Any, count: int) -> str:
    """Check so many calls; the digest of the bits of all of gett's results and gradients."""
    generator, bits, seen = random.Random(11), hashlib.sha256(), Counter[str]()
    numbers = torch.Generator().manual_seed(11)
    for _ in range(count):
        call = draw(generator)
        seen.update(features(call))

        def integers(shape: tuple[int, ...], call: Call = call) -> Any:
            real = torch.randint(-2, 3, shape, generator=numbers)
            return real + 1j * torch.randint(-2, 3, shape, generator=numbers) if "c" in call.dtype else real

        def floats(shape: tuple[int, ...], call: Call = call) -> Any:
            return torch.randn(shape, generator=numbers, dtype=getattr(torch, call.dtype))

        _check_integers(torch, call, call.tensors(torch, integers), integers)
        tensors = call.tensors(torch, floats)
        _check_floats(torch, call, tensors, floats, bits)
    assert len(seen) == 10, seen
    assert min(seen.values()) >= count // 20, seen
    return f"{bits.hexdigest()} of {count}: {dict(sorted(seen.items()))}"


def _gradients(torch: Any, result: Any, tensors: Sequence[Any], weight: Any) -> list[Any]:
    return [x.resolve_conj() for x in torch.autograd.grad(result, tensors, weight, materialize_grads=True)]


def _check_integers(torch: Any, call: Call, tensors: list[Any], integers: Callable[..., Any]) -> None:
    found, wanted = call.ours(tensors), call.theirs(torch, tensors)
    assert found.shape == wanted.shape
    assert found.dtype is wanted.dtype
    weight = integers(tuple(wanted.shape)).to(wanted.dtype)
    pairs = zip(_gradients(torch, found, tensors, weight), _gradients(torch, wanted, tensors, weight), strict=True)
    exact = call.epilogue is None or call.epilogue[2]
    for one, other in ((found, wanted), *pairs):
        same = torch.equal(one, other) if exact else torch.allclose(one, other, rtol=1e-13, atol=1e-12)
        assert same, (call, one, other)


def _check_floats(torch: Any, call: Call, tensors: list[Any], floats: Callable[..., Any], bits: Any) -> None:
    wanted = call.theirs(torch, tensors)
    weight = floats(tuple(wanted.shape))
    runs = []
    for _ in range(2):
        found = call.ours(tensors)
        runs.append([found.detach(), *_gradients(torch, found, tensors, weight)])
    for one, other in zip(*runs, strict=True):
        data = one.resolve_conj().contiguous().numpy().tobytes()
        assert data == other.resolve_conj().contiguous().numpy().tobytes(), call
        bits.update(data)
    if call.epilogue is None:
        theirs = _gradients(torch, wanted, tensors, weight)
        bounds = call.magnitudes(torch, tensors, weight)
        for one, other, bound in zip(runs[0][1:], theirs, bounds, strict=True):
            assert bool(((one - other).abs() <= 8 * 2.0**-53 * bound).all()), (call, one, other)
