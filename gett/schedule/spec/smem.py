"""Where the parts of a block's shared memory lie. Worked out once, here; the kernel is told the offsets."""

from __future__ import annotations

from dataclasses import dataclass

from layouts.domains import Index


@dataclass(frozen=True, slots=True)
class SmemPlan:
    """Offsets in bytes from the start of a block's dynamic shared memory (from its first 1024-byte boundary on Hopper).

    Attributes:
        size: Bytes to ask for, alignment included.
        stage: Bytes of one stage.
        stages: Where the stages lie, one after the other.
        stationary: Where the operand that stays lies.
        staging: Where tiles of D are staged.
        barriers: Where mbarriers lie.
        loaders: Where buffers and tables of warps that bring operands lie.
        k_table: Where the table of offsets along K lies: 16 bytes a k, a slot more than stages.
        offsets: Where offsets of a tile's rows and columns in D and C lie.
        planes: Where planes of an operand lie, or an operand transposed, one k-tile after the other.
    """

    size: Index
    stage: Index = 0
    stages: Index = 0
    stationary: Index = 0
    staging: Index = 0
    barriers: Index = 0
    loaders: Index = 0
    k_table: Index = 0
    offsets: Index = 0
    planes: Index = 0
