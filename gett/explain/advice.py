"""What would make a plan faster: changes that are planned again, and named where the cost model expects enough of them.

Owns which changes are tried. Plans them through a function that it is given, and reads only their estimates.
"""

# ruff: noqa: D102 - `ContractionPlan` documents the properties of the protocols

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gett.console.formatting import format_bytes
from gett.errors import GettError
from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import ACCESS_BYTES
from gett.ir.subscripts import Subscripts, parse
from gett.ir.tensors import TensorSpec, dense_strides
from gett.network.optimize import AUTOTUNE
from gett.network.request import PlanRequest
from gett.network.steps import Step

GAIN = 1.2  # times as fast, from which a change is worth a line
MUCH = 0.3  # share of the time that launches take, from which it is worth a line
NEAR = 0.8  # share of the roofline from which nothing is tried
FEW = 3  # steps of a network that are planned again


class Made(Protocol):
    """What is read of a plan that was made for a changed request."""

    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def workspace_bytes(self) -> int: ...


class Told(Protocol):
    """What is read of the plan that is told."""

    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def graphs(self) -> int: ...


Make = Callable[[PlanRequest], Made]
"""Plans a request, for no device, and keeps nothing."""


@dataclass(frozen=True, slots=True)
class Change:
    """A request that might be faster, and what the user would do for it; `{workspace}` stands for its workspace."""

    request: PlanRequest
    words: str


# What is rounded by a precision that is faster than the usual one.
_COARSER = {"float32": "factors of 10 bits", "complex64": "factors of 16 bits"}


def advice(request: PlanRequest, plan: Told, share: float, facts: ArchFacts, make: Make) -> list[str]:
    """What would make a plan for a GPU faster, each in a line, the most promising first.

    Args:
        request: What the plan was made for.
        plan: What was planned.
        share: Of the roofline that it reaches; near the roof nothing is looked for.
        facts: Of its GPU.
        make: Plans a changed request.
    """
    steps = plan.steps
    found = [] if plan.graphs else [*_launches(steps, facts)]
    if share >= NEAR or not 0 < len(steps) <= FEW:
        return found
    usual = replace(request, device=None, optimize=True if request.optimize == AUTOTUNE else request.optimize)
    before = _expected(make(usual).steps)
    gains = []
    for change in _changes(usual, steps):
        try:
            made = make(change.request)
        except GettError:  # a change that cannot be planned is no advice
            continue
        gain = before / _expected(made.steps)
        if gain >= GAIN:
            workspace = format_bytes(made.workspace_bytes)
            gains.append((gain, f"{change.words.format(workspace=workspace)}: {gain:.2g} times as fast"))
    return [text for _, text in sorted(gains, reverse=True)] + found


def _expected(steps: Sequence[Step]) -> float:
    return sum(s.forecast.us for s in steps if s.forecast is not None)


def _launches(steps: Sequence[Step], facts: ArchFacts) -> Iterator[str]:
    launching = len(steps) * nearest(facts).launches.launch_us
    if launching >= MUCH * (expected := _expected(steps)) > 0:
        part = min(1.0, launching / expected)
        yield f"launches are {100 * part:.0f} % of the time: a CUDA graph of many calls, or a batch mode, saves them"


def _changes(request: PlanRequest, steps: Sequence[Step]) -> Iterator[Change]:
    yield from _padded(request)
    room = 2 * sum(s.gemm.bytes for s in steps)
    if room > request.workspace_limit:
        yield Change(replace(request, workspace_limit=room), 'workspace_limit="{workspace}" lets operands be packed')
    for dtype in {s.gemm.contraction.dtype for s in steps} & {*_COARSER}:
        coarse = replace(request, precision="tf32")
        yield Change(coarse, f'precision="tf32" ({_COARSER[dtype]})')


def _padded(request: PlanRequest) -> Iterator[Change]:
    """Extents along which rows of a tensor end within 16 bytes, each rounded up, then all of them."""
    subscripts = parse(request.spec, [len(t.shape) for t in request.operands])
    extents: dict[int, int] = {}
    longer: dict[int, int] = {}
    for modes, tensor in zip(subscripts.inputs, request.operands, strict=True):
        extents |= {m: max(e, extents.get(m, 1)) for m, e in zip(modes, tensor.shape, strict=True)}
    widest = max(t.dtype.itemsize for t in request.operands)
    whole = max(1, ACCESS_BYTES // widest)
    for modes, strides in [(m, t.strides) for m, t in zip(subscripts.inputs, request.operands, strict=True)]:
        varying = [m for m, s in zip(modes, strides, strict=True) if s and extents[m] > 1]
        inner = min(varying, key=lambda m: abs(strides[modes.index(m)]), default=None)
        if len(varying) > 1 and inner is not None and extents[inner] % whole:
            longer[inner] = -(-extents[inner] // whole) * whole
    if subscripts.output and len(subscripts.output) > 1 and extents.get(last := subscripts.output[-1], 1) % whole:
        longer[last] = -(-extents[last] // whole) * whole
    groups = [{m: e} for m, e in longer.items()]
    for group in [*groups, *([longer] if len(longer) > 1 else [])]:
        named = ", ".join(f"{subscripts.names[m]} from {extents[m]} to {e}" for m, e in group.items())
        yield Change(_lengthened(request, subscripts, group), f"pad {named}")


def _lengthened(request: PlanRequest, subscripts: Subscripts, longer: Mapping[int, int]) -> PlanRequest:
    """The request with some modes longer: tensors are dense then, their axes ordered as they were."""

    def tensor(spec: TensorSpec, modes: Sequence[int]) -> TensorSpec:
        shape = tuple(longer.get(m, e) if e > 1 else e for m, e in zip(modes, spec.shape, strict=True))
        order = sorted(range(len(shape)), key=lambda i: -abs(spec.strides[i]))
        dense = dense_strides([shape[i] for i in order], spec.dtype.itemsize)
        strides = tuple(dense[order.index(i)] for i in range(len(shape)))
        return replace(spec, shape=shape, strides=strides)

    def last(spec: TensorSpec | None) -> TensorSpec | None:
        if spec is None:
            return None
        return tensor(spec, subscripts.output[len(subscripts.output) - len(spec.shape) :])

    operands = tuple(tensor(t, m) for t, m in zip(request.operands, subscripts.inputs, strict=True))
    extras = tuple(x for x in map(last, request.epilogue_args) if x is not None)
    return replace(request, operands=operands, c=last(request.c), out=last(request.out), epilogue_args=extras)
