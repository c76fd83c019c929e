"""Layouts: how strided modes are fused, cut into boxes, laid out in shared memory, and moved by tensor maps.

Knows neither einsum nor CUDA: extents, strides and bytes only. Imports nothing but the standard library.
"""

from __future__ import annotations

from layouts.access import (
    alignment,
    contiguous_run,
    max_vector,
    run_alignment,
)
from layouts.box import Box, TileDim
from layouts.modes import Strided, can_fuse, fuse, unit_mode
from layouts.rates import RunRates, run_bandwidth, run_cost, sector_efficiency
from layouts.swizzle import SmemLayout, choose_smem, replays, swizzle_address, swizzle_dividing, swizzle_holding
from layouts.tma import ModeMap, Refusal, TmaMap, tma_map

__all__ = [
    "Box",
    "ModeMap",
    "Refusal",
    "RunRates",
    "SmemLayout",
    "Strided",
    "TileDim",
    "TmaMap",
    "alignment",
    "can_fuse",
    "choose_smem",
    "contiguous_run",
    "fuse",
    "max_vector",
    "replays",
    "run_alignment",
    "run_bandwidth",
    "run_cost",
    "sector_efficiency",
    "swizzle_address",
    "swizzle_dividing",
    "swizzle_holding",
    "tma_map",
    "unit_mode",
]
