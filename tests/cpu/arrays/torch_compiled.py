"""Calls inside functions that `torch.compile` compiles: on every route the eager result, without a word.

Run where PyTorch is installed, in a process of its own: TorchDynamo meets this package there for the first time.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gett


def check(torch: Any, device: str, backends: tuple[str, ...]) -> None:
    """All of it, on one device."""
    generator = torch.Generator().manual_seed(1)
    seen: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger("torch")
    root.addHandler(handler)
    traced = _watch(torch)
    warnings.simplefilter("error", UserWarning)
    warnings.filterwarnings("ignore", message="TensorFloat32")  # inductor's, of any program on such a GPU

    def integers(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randint(-3, 4, shape, generator=generator).to(dtype).to(device)

    for backend in backends:
        for name, function, shapes in _routes(torch, integers):
            compiled = torch.compile(function, backend=backend)
            # On the CPU more shapes than TorchDynamo compiles one frame for; on a GPU each takes a kernel.
            for grown in range(10 if device == "cpu" else 3):
                tensors = [integers(*(n + grown if n > 1 else n for n in shape)) for shape in shapes]
                found = [compiled(*tensors) for _ in range(2)]
                expected = function(*tensors)
                for result in found:
                    assert result.dtype is expected.dtype, name
                    assert torch.equal(result, expected), name
    low = [integers(5, 5, dtype=torch.bfloat16) for _ in range(2)]
    compiled = torch.compile(lambda a, b: gett.einsum("ij,jk->ik", a, b) + 1, backend="eager")
    assert torch.equal(compiled(*low), (low[0].double() @ low[1].double()).bfloat16() + 1)
    if device == "cpu":
        _check_numpy(torch)
    root.removeHandler(handler)
    assert not seen, seen
    # What TorchDynamo of PyTorch 2.11 goes on with behind a graph break of `einsum` reads arguments, and no more.
    inner = {x for x in traced if not x.startswith("torch_dynamo_resume_in_")}
    assert not inner - {"einsum", "contract", "plan", "tensordot", "transpose", "__call__", "split_arguments"}, traced
    whole = torch.compile(lambda a, b: gett.einsum("ij,jk->ik", a, b, out=b), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="gett plans and launches kernels of its own"):
        whole(*low)


def _watch(torch: Any) -> set[str]:
    """The functions of this package whose frames TorchDynamo tries to compile from now on."""
    import torch._dynamo.convert_frame as frames

    traced: set[str] = set()
    original = frames._compile

    def compile_frame(code: Any, *args: Any, **options: Any) -> Any:
        if "/gett/" in code.co_filename or "/layouts/" in code.co_filename:
            traced.add(code.co_name)
        return original(code, *args, **options)

    frames._compile = compile_frame
    return traced


def _routes(torch: Any, integers: Any) -> list[tuple[str, Callable[..., Any], list[tuple[int, ...]]]]:
    """Functions by what computes them, with the shapes of their tensors."""

    def scaled(d: Any, x: Any) -> Any:
        return np.maximum(d * 2 + x, 0)

    def planned(a: Any, b: Any) -> Any:
        return gett.plan("ij,jk->ik", a, b)(a, b, alpha=2) + 1

    def into(a: Any, b: Any) -> Any:
        d = torch.empty(a.shape[0], b.shape[1], device=a.device)
        gett.einsum("ij,jk->ik", a, b, out=d)
        return d * 2

    square = [(6, 6), (6, 6)]
    large = [(70, 70), (70, 70)]
    return [
        ("element by element", lambda a, b: gett.einsum("bi,ij->bj", a, b) * 2, square),
        ("BLAS", lambda a, b: gett.einsum("bi,ij->bj", a, b) * 2, large),
        ("a permutation", lambda a: gett.einsum("ij->ji", a) * 2, [(6, 6)]),
        ("a sum", lambda a: gett.einsum("ij->i", a) * 2, [(6, 6)]),
        ("a network", lambda a, b, c: gett.einsum("ab,bc,cd->ad", a, b, c) + 1, [*square, (6, 6)]),
        ("lists of labels", lambda a, b: gett.einsum(a, [0, 1], b, [1, 2], [2, 0]) + 1, square),
        ("conj and options", lambda a, b: gett.einsum("ij,jk", a, b, conj=(True, False), order="F") + 1, square),
        ("out", into, square),
        ("contract", lambda a, b, c: gett.contract("ij,jk->ik", a, b, c, alpha=2, beta=3) + 1, [*square, (6, 6)]),
        (
            "an epilogue",
            lambda a, b, c: gett.contract("ij,jk->ik", a, b, epilogue=scaled, epilogue_args=(c,)) + 1,
            [*square, (6,)],
        ),
        ("a plan", planned, square),
        ("tensordot", lambda a, b: gett.tensordot(a, b, 1) * 2, square),
        ("transpose", lambda a: gett.transpose(a) * 2, [(6, 6)]),
    ]


def _check_numpy(torch: Any) -> None:
    """NumPy's arrays, which TorchDynamo takes for tensors of its own."""
    a = np.arange(12.0).reshape(3, 4)
    compiled = torch.compile(lambda x: gett.einsum("ij,kj->ik", x, x) + 1, backend="eager")
    for _ in range(2):
        np.testing.assert_array_equal(compiled(a), a @ a.T + 1)
