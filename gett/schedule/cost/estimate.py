"""What every cost model gives and shares: the estimate, traffic at copy speed, slices of K and the time they add."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gett.hw.archs import ArchFacts
from gett.hw.device import DeviceModel
from gett.hw.dtypes import products_of
from gett.ir.gemm import A, B, D, GemmPlan

PORT = 128
"""Bytes that shared memory moves a clock."""

ROUNDED = 1.0 - 1e-9
"""A bound is not above what it bounds, however the sums are rounded."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Time in microseconds, what bounds it, the split of K that gives it, and whether stream-K divides tiles."""

    us: float
    bound: str
    split_k: int
    stream_k: bool = False


def fastest(estimates: Iterable[Estimate]) -> Estimate:
    """The least time; of equals the first."""
    return min(estimates, key=lambda e: e.us)


def traffic_us(plan: GemmPlan, device: DeviceModel) -> dict[int, float]:
    """Microseconds that A, B and D each take of device memory at copy speed."""
    volumes = {A: (plan.l, plan.m, plan.k), B: (plan.l, plan.n, plan.k), D: (plan.l, plan.m, plan.n)}
    return {
        t: math.prod(s.extent for g in groups for s in g) * plan.size(t) / device.memory.copy_tbps * 1e-6
        for t, groups in volumes.items()
    }


def products_us(plan: GemmPlan, facts: ArchFacts) -> float:
    """Microseconds that tensor cores take for the products of a plan at their nominal rate, those of planes counted."""
    tensor, products = products_of(plan.contraction.dtype, plan.contraction.precision)
    return plan.flops * products / facts.tensor_tflops[tensor.name] * 1e-6


def even_splits(wishes: Iterable[int], k_tiles: int) -> list[int]:
    """Slices of K, 1 among them, such that no slice of equal length is empty."""
    return sorted({1, *(-(-k_tiles // -(-k_tiles // max(1, wish))) for wish in wishes)})


def split_us(blocks: int, outputs: int, device: DeviceModel) -> float:
    """Microseconds that adding up slices takes: another launch, and partial sums through L2."""
    return device.launches.launch_us + 2.0 * blocks * outputs * 4 / device.l2.read_tbps * 1e-6


def bounded_split(split: int, tile_bytes: int, tiles: int, k_tiles: int, limit: int) -> tuple[int, int]:
    """The split of K that keeps the partial sums within a limit of bytes, and their bytes; (1, 0) for none."""
    split = even_splits([min(split, limit // (tiles * tile_bytes))], k_tiles)[-1]
    return (split, split * tiles * tile_bytes) if split > 1 else (1, 0)
