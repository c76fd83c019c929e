"""PyTorch's own samples of einsum and tensordot (its `OpInfo`) through gett; run where PyTorch is installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import gett

# Samples that PyTorch takes and gett refuses as NumPy does, with the text of the error.
REFUSED: dict[tuple[str, str], tuple[type[Exception], str]] = {
    ("einsum", "...ik, ...j -> ij"): (gett.SubscriptsError, "the output has no ellipsis to keep them"),
    ("tensordot", "(1, 1, 1)"): (gett.ShapeError, "tensordot pairs axis 0 of operand 0 with extent 1"),
}
# Further things that a sample may be: all have the same values.
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "as it is": lambda torch, x: x,
    "in other strides": lambda torch, x: torch.stack([x, x], -1)[..., 1],
    "lazily conjugated": lambda torch, x: x.conj().resolve_conj().conj(),
}


def check(torch: Any, device: str) -> Counter[str]:
    """Values in every dtype that the samples have; numerical derivatives of two orders; counts of both."""
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(1)
    counts: Counter[str] = Counter()
    kind = torch.device(device).type
    for info in (x for x in op_db if x.name in ("einsum", "tensordot")):
        for dtype in sorted(info.supported_dtypes(kind), key=str):
            for change in CHANGES:
                if change == "lazily conjugated" and not dtype.is_complex:
                    continue
                for sample in info.sample_inputs(device, dtype):
                    _check_values(torch, info, sample, change, counts)
        for dtype in (torch.float64, torch.complex128):
            assert dtype in info.supported_backward_dtypes(kind)
            for sample in info.sample_inputs(device, dtype, requires_grad=True):
                _check_derivatives(torch, info, sample, counts)
    return counts


def _calls(info: Any, sample: Any) -> tuple[list[Any], Callable[..., Any], Callable[..., Any], str]:
    """The tensors of a sample, gett's function and PyTorch's of them, and the name of what the sample is."""
    if info.name == "einsum":
        (subscripts,) = sample.args
        tensors = list(sample.input)
        return tensors, lambda *x: gett.einsum(subscripts, *x), lambda *x: info.op(list(x), subscripts), subscripts
    (second,) = sample.args
    dims = sample.kwargs["dims"]
    name = str(tuple(sample.input.shape))
    return [sample.input, second], lambda *x: gett.tensordot(*x, dims), lambda *x: info.op(*x, dims=dims), name


def _check_values(torch: Any, info: Any, sample: Any, change: str, counts: Counter[str]) -> None:
    tensors, ours, theirs, name = _calls(info, sample)
    tensors = [CHANGES[change](torch, x) for x in tensors]
    wanted = theirs(*tensors)  # which PyTorch takes
    if (info.name, name) in REFUSED:
        error, text = REFUSED[info.name, name]
        with pytest.raises(error, match=text):
            ours(*tensors)
        counts["values refused"] += 1
        return
    found = ours(*tensors)
    if wanted.dtype.is_floating_point or wanted.dtype.is_complex:
        torch.testing.assert_close(found, wanted, msg=lambda text: f"{info.name} {name} {change}: {text}")
    else:  # PyTorch sums small integers in int64 where nothing is multiplied, gett in their dtype, as NumPy's einsum
        assert found.dtype is tensors[0].dtype
        assert torch.equal(found, wanted.to(found.dtype)), (info.name, name, change, found, wanted)
    counts["values"] += 1


def _check_derivatives(torch: Any, info: Any, sample: Any, counts: Counter[str]) -> None:
    tensors, ours, theirs, name = _calls(info, sample)
    if (info.name, name) in REFUSED:
        counts["derivatives refused"] += 1
        return
    assert torch.autograd.gradcheck(ours, tensors, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(ours, tensors, check_fwd_over_rev=True, check_batched_grad=True)
    weight = torch.randn_like(theirs(*tensors))
    torch.testing.assert_close(*(torch.autograd.grad(f(*tensors), tensors, weight) for f in (ours, theirs)))
    counts["derivatives"] += 1
