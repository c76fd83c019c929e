"""Operands that stay in shared memory: whole, or the rows that the tiles of a panel need.

Owns when that is possible and what is known of its pace. Knows plans and boxes, no tensor map and no text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.mainloops.wgmma_ss import stationary_bytes
from gett.schedule.search.tried import STAYING
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile
from layouts.box import Box

Sides = Sequence[OperandTiling]


def shared_operands(plan: GemmPlan) -> tuple[str, ...]:
    """Operands (`"a"`, `"b"`) that are the same for every batch."""
    return tuple(n for n, t in (("a", A), ("b", B)) if not any(s.extent > 1 and s.strides[t] for s in plan.l))


def with_stationary(
    tile: WgmmaTile, shared: tuple[str, ...], size: int, batches: int, sm_count: int
) -> Iterator[WgmmaTile]:
    """The same tile with an operand that stays in shared memory, or with the rows of a panel.

    `shared` are those operands that are the same for all `batches`; their elements have `size` bytes.
    """
    if tile.m.box.tiles * tile.n.box.tiles * batches < STAYING.tiles * sm_count:
        return
    sides = (("a", tile.m, tile.n), ("b", tile.n, tile.m))
    whole = next((x for x, kept, _ in sides if x in shared and _stays(x, kept, tile.k, size, True)), "")
    if whole or tile.mma_tile is not None:
        yield from (replace(tile, stationary=whole),) if whole else ()
        return
    for x, kept, other in sides:
        if batches == 1 and not tile.warpgroups.ping_pong and _one_panel(kept, other, tile.k, sm_count):
            yield replace(tile, stationary=x, panel="one")
        if kept.box.tiles * batches > 1 and _stays(x, kept, tile.k, size, False):
            yield replace(tile, stationary=x, panel="each")


def may_stay(
    sides: tuple[Sides, Sides], box_k: Box, shared: tuple[str, ...], size: int, batches: int, sm_count: int
) -> Iterator[tuple[str, bool]]:
    """The operands that stay in tiles of any of these boxes, and whether for a block's one panel."""
    m, n = sides
    if max(x.box.tiles for x in m) * max(x.box.tiles for x in n) * batches < STAYING.tiles * sm_count:
        return
    for x, of, others in (("a", m, n), ("b", n, m)):
        if batches == 1 and any(_one_panel(kept, other, box_k, sm_count) for kept in of for other in others):
            yield x, True
        elif any(_stays(x, kept, box_k, size, whole) for kept in of for whole in {x in shared, False}):
            yield x, False


def _stays(name: str, kept: OperandTiling, box_k: Box, size: int, whole: bool) -> bool:
    """Whether an operand's rows of a tile stay: alone if they are the `whole` operand, else beside the next ones."""
    if whole and kept.box.tiles > 1:
        return False
    held = box_k.tiles * (1 if whole else 2)
    return stationary_bytes(name, kept.rows, box_k.size * size, held) <= STAYING.bytes


def _one_panel(kept: OperandTiling, other: OperandTiling, box_k: Box, sm_count: int) -> bool:
    """Whether blocks may each keep to one of few panels, and there is something to gain."""
    s, box = STAYING, kept.box
    if not 1 < box.tiles <= min(s.panels, sm_count) or box.tiles * other.box.tiles < s.panel_tiles * sm_count:
        return False
    if box.size * other.box.size > s.outputs or box.volume <= s.one_tile:
        return False
    return box_k.volume >= s.panel_k and box.tiles * box.size <= s.padded * box.volume
