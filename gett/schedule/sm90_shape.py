"""A tile of the Hopper family as searches choose it and cost models look at it: warpgroups, boxes, what stays.

Knows boxes and modes; what may be chosen and what it takes is said by those who import this.
"""

from __future__ import annotations

from dataclasses import dataclass

from gett.schedule.records import Split
from gett.schedule.room import up
from layouts.box import Box
from layouts.modes import Strided

STEP = 16  # k of one wgmma on 16-bit types
ACCUMULATORS = 128  # 32-bit registers of a thread that may hold products


@dataclass(frozen=True, slots=True)
class Roles:
    """Warpgroups of a tile: how many, 64-row blocks each, and whether each has a tile of its own."""

    consumers: int
    m_blocks: int
    ping_pong: bool

    @property
    def rows(self) -> int:
        """Rows of one tile."""
        return 64 * self.m_blocks * (1 if self.ping_pong else self.consumers)

    def takes(self, n: int) -> bool:
        """Whether a thread's registers hold the products of `n` columns, and blocks are not needlessly many."""
        widest = {1: 256, 2: 128, 4: 64, 8: 32}[self.m_blocks]
        return n <= widest and self.m_blocks * n // 2 <= ACCUMULATORS


@dataclass(frozen=True, slots=True)
class Side:
    """A box of M or N with the modes that it cuts, and the split that made them.

    Where `run` is not 0, every chunk of an MN-major tile has room for `chunk` rows and holds only `run`: a run that is
    no power of two travels in one row of the next wider swizzle.
    """

    box: Box
    modes: tuple[Strided, ...]
    split: Split | None
    run: int = 0
    chunk: int = 0

    @property
    def rows(self) -> int:
        """Rows of the tile in shared memory."""
        return self.box.size // self.run * self.chunk if self.run else self.box.size


@dataclass(frozen=True, slots=True)
class Sm90Shape:
    """A tile and its boxes.

    Attributes:
        roles: Who multiplies it.
        m, n, k: Its boxes.
        cluster: Blocks that share operands.
        filled: Set where `k` has a tail (see tails.py) that copies of an MN-major operand fill with zeros themselves:
            their box of K.
        resident: The operand that stays in shared memory, "" for none.
        line: For which tiles it stays: "", for all; `"own"` or `"each"` line of them, as in `WarpRoles`.
        part: What the accumulators hold of M's box, where several tiles of A make one of D.
        added: Whether a tensor map may bring C, if its strides let one.
        trade: Whether the two blocks of a cluster trade halves of their tiles of D.
    """

    roles: Roles
    m: Side
    n: Side
    k: Box
    cluster: tuple[int, int] = (1, 1)
    filled: Box | None = None
    resident: str = ""
    line: str = ""
    part: Side | None = None
    added: bool = False
    trade: bool = False

    @property
    def block(self) -> tuple[int, int, int]:
        """Rows, columns and depth of what the tensor cores multiply."""
        return self.roles.rows, up(self.n.box.size, 8), depth(self.k)

    @property
    def parts(self) -> int:
        """Tiles of A that make one of D."""
        return 1 if self.part is None else self.m.box.size // self.part.box.size


def depth(box_k: Box) -> int:
    """Depth of the tile that holds a box of K."""
    return up(box_k.size, STEP)
