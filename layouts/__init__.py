"""The layout algebra: shapes and strides, fusing, boxes, swizzles, alignment, and what a tensor map can express.

Knows neither einsum nor CUDA: extents, strides and bytes only. Imports nothing but the standard library.
"""

from __future__ import annotations

from layouts.access import (
    alignment,
    contiguous_run,
    max_vector,
    run_alignment,
    run_bandwidth,
    run_cost,
    sector_efficiency,
)
from layouts.box import Box, TileDim, boxes, flat_box
from layouts.layout import (
    Layout,
    LayoutError,
    column_major,
    complement,
    compose,
    compose_modes,
    concatenate,
    left_inverse,
    logical_divide,
    logical_product,
    right_inverse,
    row_major,
)
from layouts.modes import Strided, can_fuse, fuse, unit_mode
from layouts.swizzle import SmemLayout, choose_smem, conflicts, replays, swizzle_address, tma_swizzle
from layouts.tma import ModeMap, Refusal, TmaMap, tma_map

__all__ = [
    "Box",
    "Layout",
    "LayoutError",
    "ModeMap",
    "Refusal",
    "SmemLayout",
    "Strided",
    "TileDim",
    "TmaMap",
    "alignment",
    "boxes",
    "can_fuse",
    "choose_smem",
    "column_major",
    "complement",
    "compose",
    "compose_modes",
    "concatenate",
    "conflicts",
    "contiguous_run",
    "flat_box",
    "fuse",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "max_vector",
    "replays",
    "right_inverse",
    "row_major",
    "run_alignment",
    "run_bandwidth",
    "run_cost",
    "sector_efficiency",
    "swizzle_address",
    "tma_map",
    "tma_swizzle",
    "unit_mode",
]
