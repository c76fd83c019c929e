"""What the schedules of a tile of the Hopper main loops are made of, before there is a `Schedule`."""

from __future__ import annotations

from typing import NamedTuple

from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.loader import CpAsyncTile, Gather, Tma
from gett.schedule.spec.schedule import TileScheduler
from gett.schedule.tile.wgmma_tile import WgmmaTile

Loader = Tma | Gather | CpAsyncTile


class Parts(NamedTuple):
    """What the schedules of a tile are made of: its loaders, its epilogue, slices of K and bytes of their sums."""

    tile: WgmmaTile
    a: Loader
    b: Loader
    epilogue: Epilogue
    slices: int
    workspace: int
    order: TileScheduler


def by_map(a: Loader, b: Loader) -> tuple[Tma, Tma]:
    """The loaders of A and B, both by tensor map."""
    assert a.tma is not None
    assert b.tma is not None
    return a.tma, b.tma
