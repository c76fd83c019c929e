"""How a grouped launch computes: what the kernel of a class of problems is told, and nothing of single problems.

Extents, strides and addresses are in tables on the device, so one kernel serves all problems of a class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from layouts.domains import Count


@dataclass(frozen=True, slots=True)
class GroupedLoad:
    """How an operand's k-tiles get into shared memory.

    Attributes:
        dtype: Of its elements in memory.
        conj: Whether its values are their conjugates.
        major: Group along which rows of the tile run, which is that of the copies.
        vector: Elements that a thread copies at once.
    """

    dtype: str
    conj: bool
    major: Literal["k", "mn"]
    vector: Count


@dataclass(frozen=True, slots=True)
class GroupedTile:
    """A block's share of the work.

    Attributes:
        shape: Rows, columns and k of a k-tile.
        warps: Along rows and columns.
        stages: K-tiles in shared memory.
        resident: Blocks that a multiprocessor is to have room for at least, as far as registers go.
    """

    shape: tuple[Count, Count, Count]
    warps: tuple[Count, Count]
    stages: Count
    resident: Count = 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps[0] * self.warps[1]


@dataclass(frozen=True, slots=True)
class Ragged:
    """Problems that are parts of the same tensors, whose sizes stand on the device.

    Attributes:
        group: The group that has the ragged mode.
        ends: dtype of the numbers of the rows at which the problems end.
    """

    group: Literal["m", "n", "k"]
    ends: str


@dataclass(frozen=True, slots=True)
class GroupedSchedule:
    """The kernel of a class of problems.

    Attributes:
        arch: Such as `"sm_90a"`.
        dtype: In which products are formed.
        d: dtype of the results.
        a: The first factor, in the roles of the kernel.
        b: The second.
        tensor_cores: Whether `mma.sync` multiplies; multiply-adds do otherwise.
        tile: A block's share.
        ragged: Where problems have their sizes on the device; None for a table of problems.
        listed: Whether the argument has the problems' addresses, so that no memory of the device does.
    """

    arch: str
    dtype: str
    d: str
    a: GroupedLoad
    b: GroupedLoad
    tensor_cores: bool
    tile: GroupedTile
    ragged: Ragged | None = None
    listed: bool = False
