"""The rules of packed copies. They refer to the plan as it was made; copies and product have their own rules."""

from __future__ import annotations

from collections.abc import Iterator

from gett.ir.gemm import itemsize
from gett.ir.packing import BITS, count_pieces
from gett.schedule.packed import plans_of
from gett.schedule.rules.rule import Lowered, rule
from gett.schedule.spec.packing import MAX_PIECES, Packing


def packing_of(x: Lowered) -> Packing:
    """The copies, which there are."""
    assert x.s.packing is not None
    return x.s.packing


@rule
def packed_product(x: Lowered) -> Iterator[str]:
    """Copies are made for a product of two tensors, to which nothing is added."""
    c, packing = x.plan.contraction, packing_of(x)
    if c.b is None or x.s.mainloop.one_group:
        yield "no main loop multiplies two tensors"
    if packing.a is packing.b is packing.d is None:
        yield "no tensor is copied"
    if c.c is not None or c.extras:
        yield "C or tensors of the epilogue would have to be read piece by piece"


@rule
def pieces(x: Lowered) -> Iterator[str]:
    """Modes of D, each once, are cut into pieces no longer than they are; there are at most 64."""
    c, cuts = x.plan.contraction, packing_of(x).cuts
    for mode, length in cuts:
        if mode not in c.d.modes:
            yield f"mode {mode} is none of D"
        elif length > c.extents[mode]:
            yield f"pieces of {length} of {c.extents[mode]} along {c.names[mode]}"
    if len({mode for mode, _ in cuts}) < len(cuts):
        yield "a mode is cut twice"
    elif count_pieces(c, cuts) > MAX_PIECES:
        yield f"{count_pieces(c, cuts)} pieces"


@rule
def copied_tensors(x: Lowered) -> Iterator[str]:
    """A copied tensor has elements of 1, 2, 4 or 8 bytes, and each of them once."""
    c, packing = x.plan.contraction, packing_of(x)
    for name, copy, tensor in (("A", packing.a, c.a), ("B", packing.b, c.b), ("D", packing.d, c.d)):
        if copy is None or tensor is None:
            continue
        if itemsize(tensor.dtype) not in BITS:
            yield f"elements of {name} have {itemsize(tensor.dtype)} bytes"
        if any(s == 0 and c.extents[m] > 1 for m, s in zip(tensor.modes, tensor.strides, strict=True)):
            yield f"{name} has a stride of 0"


@rule
def copying(x: Lowered) -> Iterator[str]:
    """Copies are launched together, with as many threads each."""
    packing = packing_of(x)
    threads = [copy.loop.threads for copy in (packing.a, packing.b, packing.d) if copy is not None]
    if len(set(threads)) > 1:
        yield f"blocks of {threads} threads"


@rule
def packed_workspace(x: Lowered) -> Iterator[str]:
    """The workspace holds the copies of one piece and partial sums, and is no larger than its user allows."""
    needed, kept = plans_of(x.plan, packing_of(x)).workspace_bytes, packing_of(x).bytes
    if kept != needed:
        yield f"{kept} bytes, copies take {needed}"
    if x.s.workspace_bytes < kept:
        yield f"{x.s.workspace_bytes} bytes in all, {kept} of them for copies"
    if x.s.workspace_bytes > x.facts.workspace_limit:
        yield f"{x.s.workspace_bytes} bytes, workspace_limit is {x.facts.workspace_limit}"


PACKING_RULES = (packed_product, pieces, copied_tensors, copying, packed_workspace)
"""All conditions, each relying on those before it."""
