"""What contiguous runs cost in memory: rates measured by their length, and what ends inside a sector adds.

Knows bytes; whose memory it was is told by whoever holds the rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

SECTOR = 32
"""Bytes that memory moves at least."""

L2_LINE = 128
"""Bytes of a line of L2."""


@dataclass(frozen=True, slots=True)
class RunRates:
    """Rates of device memory in TB/s, bytes read plus bytes written, of copies one side of which comes in short runs.

    Attributes:
        copy_tbps: Of a plain copy, the measure of the others.
        run_bytes: Lengths of runs, ascending; longer ones are as fast as the last.
        load_tbps, store_tbps: By run, of 16-byte accesses of the threads; runs start at a sector.
        bulk_load_tbps, bulk_store_tbps: By run, of boxes moved by the TMA.
        cut_store_tbps: Of bulk stores in runs of `cut_run_bytes`, each of which fills all sectors but one.
        tile_cut_store_tbps: Of a product's tiles that threads store so, each run right after the one before it.
        cut_run_bytes: Length of those runs.
    """

    copy_tbps: float
    run_bytes: tuple[int, ...]
    load_tbps: tuple[float, ...]
    store_tbps: tuple[float, ...]
    bulk_load_tbps: tuple[float, ...]
    bulk_store_tbps: tuple[float, ...]
    cut_store_tbps: float
    tile_cut_store_tbps: float
    cut_run_bytes: int = 48

    def __hash__(self) -> int:
        """One field tells records apart: to hash all of them would take as long as what is looked up by them."""
        return hash(self.copy_tbps)

    @property
    def long_run(self) -> int:
        """Bytes of a run beyond which longer ones cost no less."""
        return self.run_bytes[-1]

    def at(self, run_bytes: int, *, store: bool, bulk: bool) -> float:
        """TB/s of runs that start at a sector, between the measured lengths linear in the logarithm."""
        loads = self.bulk_load_tbps if bulk else self.load_tbps
        rates = (self.bulk_store_tbps if bulk else self.store_tbps) if store else loads
        return _interpolate(self.run_bytes, rates, run_bytes)

    def scaled(self, factor: float) -> RunRates:
        """The same memory at another rate."""
        return RunRates(
            self.copy_tbps * factor,
            self.run_bytes,
            tuple(x * factor for x in self.load_tbps),
            tuple(x * factor for x in self.store_tbps),
            tuple(x * factor for x in self.bulk_load_tbps),
            tuple(x * factor for x in self.bulk_store_tbps),
            self.cut_store_tbps * factor,
            self.tile_cut_store_tbps * factor,
            self.cut_run_bytes,
        )


@lru_cache(maxsize=4096)
def run_cost(
    rates: RunRates,
    run_bytes: int,
    *,
    store: bool = False,
    start_alignment: int = SECTOR,
    bulk: bool = False,
    tile: bool = False,
) -> float:
    """Time per useful byte relative to copy speed.

    Runs that do not fill their sectors pay for whole sectors. Each sector that a store of several sectors cuts costs
    what it did in the measured runs that cut one.

    Args:
        rates: Of the memory.
        run_bytes: Length of the contiguous runs, at least 1.
        store: Stores instead of loads.
        start_alignment: Alignment in bytes of the starts of runs.
        bulk: Boxes moved by the TMA instead of 16-byte accesses by threads.
        tile: A product's tile that threads store, each run right after the one before it.
    """
    touched, cut = _sectors(run_bytes, start_alignment)
    short = run_bytes <= SECTOR and not (store and touched > 1)
    rate = rates.at(run_bytes if short else -(-run_bytes // SECTOR) * SECTOR, store=store, bulk=bulk)
    if short:  # the table holds the waste of a run inside one sector
        rate /= touched
    elif store and cut:
        whole = rates.cut_run_bytes / rates.at(2 * SECTOR, store=True, bulk=bulk)
        cut_tbps = rates.tile_cut_store_tbps if tile and not bulk else rates.cut_store_tbps
        rate = run_bytes / (run_bytes / rate + cut * (rates.cut_run_bytes / cut_tbps - whole))
    else:
        rate *= run_bytes / (touched * SECTOR)
    return 1.0 / (rate / rates.copy_tbps)


def _sectors(run_bytes: int, start_alignment: int) -> tuple[float, float]:
    """Mean number of sectors that a run touches, and how many of them it does not fill."""
    step = math.gcd(start_alignment, SECTOR)
    starts = range(0, SECTOR, step)
    touched = sum(-(-(s + run_bytes) // SECTOR) for s in starts)
    filled = sum(max((s + run_bytes) // SECTOR - -(-s // SECTOR), 0) for s in starts)
    return touched / len(starts), (touched - filled) / len(starts)


def _interpolate(runs: Sequence[int], rates: Sequence[float], run_bytes: int) -> float:
    if run_bytes <= runs[0]:  # each run costs one sector however short it is
        return rates[0] * run_bytes / runs[0]
    if run_bytes >= runs[-1]:
        return rates[-1]
    i = next(i for i, r in enumerate(runs) if r >= run_bytes)
    x = math.log2(run_bytes / runs[i - 1]) / math.log2(runs[i] / runs[i - 1])
    return rates[i - 1] + (rates[i] - rates[i - 1]) * x
