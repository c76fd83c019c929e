"""How a schedule packs tensors: launches before and behind the product that copy them to and from a workspace."""

from __future__ import annotations

from dataclasses import dataclass

from gett.schedule.spec.mainloop import StreamMap
from gett.schedule.spec.smem import SmemPlan
from layouts.box import Box
from layouts.domains import Count, Index, Size

MAX_PIECES = 64
"""Most pieces: each has launches of its own, whose arguments a call keeps."""

WORKSPACE_ALIGNMENT = 256
"""Bytes: where a copy begins in the workspace."""


@dataclass(frozen=True, slots=True)
class CopyPass:
    """A launch that copies a tensor between its own layout and a dense one, whose batch modes are slowest.

    Attributes:
        box: Of the copied tensor's modes.
        loop: How it is read and written.
        smem: Of its blocks.
    """

    box: Box
    loop: StreamMap
    smem: SmemPlan


@dataclass(frozen=True, slots=True)
class Packing:
    """The copies around a product. The tiling and main loop of the schedule are those of the product of the copies.

    Attributes:
        cuts: Modes of the result that are cut into pieces, by number, and the pieces' length. The pieces are computed
            one after the other in the same workspace; an operand's copy stays where the next piece shares it.
        a: How the contraction's first operand is copied; None where it is read as it is.
        b: Likewise the second.
        d: How the result is copied from the workspace to its place; None where the product is stored there.
        bytes: Of the workspace for the copies of a piece; the product's own part of it lies behind them.
    """

    cuts: tuple[tuple[Index, Count], ...]
    a: CopyPass | None
    b: CopyPass | None
    d: CopyPass | None
    bytes: Size
