"""The cost model of the general door: what copying, shifting and multiplying take of a multiprocessor's shared memory.

Rates of `cost_sm90` where the two doors are alike; knows pieces and chunks, no tensor maps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.cost_copies import L2_BYTES_PER_CLOCK
from gett.schedule.cost_sm90 import FILL_US, SMEM_BYTES_PER_CLOCK, Sm90Model, splits
from gett.schedule.cost_staging import ELEMENT_SLOTS, Staging
from gett.schedule.cost_tiled import LAUNCH_US, Estimate
from gett.schedule.records import Gather
from gett.schedule.rows import row_clocks, row_length
from gett.schedule.sm90_shape import Sm90Shape

CHUNK = 16
# What a piece takes from L2 to its place; fitted to measured kernels with pieces that start anywhere.
PIECE_CLOCKS, ELEMENT_CLOCKS = 2.4, 7.5 / 64
COPY_CLOCKS = 0.14  # of shared memory for a chunk that comes into the ring
SHIFT_CLOCKS = 0.31  # of shared memory for a chunk that goes from the ring into its place
TURN_CLOCKS = 0.5  # of the gathering warps for a chunk that is turned on that way
SINGLE = 1.25  # times as long where a k-tile's copies start only when the one before has left the ring
STEP_CLOCKS = 420.0  # of a k-tile at least: barriers, addresses
TILE_CLOCKS = 1500.0  # offsets of a tile's pieces
SHORT_K, SHORT_SUMS = 64, 1.25  # sums so short that nothing hides a tile's start and its stores, and what that costs


@dataclass(frozen=True, slots=True)
class GatherShape(Sm90Shape):
    """What the model looks at; `runs` are elements of a piece of A and of B, 0 for an operand by tensor map."""

    runs: tuple[int, int] = (0, 0)
    turned: bool = False  # pieces of A


def pieces_of(side: int, block_k: int, run: int) -> int:
    """Pieces of an operand's k-tile."""
    return side * block_k // run


def chunk_bytes(run: int) -> int:
    """Bytes of the aligned chunks that cover a piece of 16-bit elements wherever it starts."""
    return run * 2 + CHUNK


def warp_pieces(side: int, block_k: int, way: Gather, warps: int) -> int:
    """Pieces of a k-tile that each of the warps brings in, as `kernels/loader/gather_pieces.cuh` has them."""
    step = 8 if way.wide else 1
    return -(-pieces_of(side, block_k, way.run) // (step * warps)) * step


def ring_bytes(pieces: int, way: Gather) -> int:
    """What a warp's pieces of a k-tile take of its ring; turned ones have gaps that part their banks."""
    return (8 * (pieces // 8 | 1) if way.wide else pieces) * chunk_bytes(way.run)


class GatherModel:
    """Estimates for one plan."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        self.plan, self.facts = plan, facts
        self.size = itemsize(plan.contraction.dtype)
        self.bulk = Sm90Model(plan, facts)

    def staging(self, shape: GatherShape) -> Staging:
        """How a tile of D is staged."""
        return self.bulk.staging(shape)

    def clocks(self, shape: GatherShape) -> tuple[float, float]:
        """Clocks of a k-tile: of the tensor cores, and of the slowest of what feeds them."""
        _, bn, bk = shape.block
        rows = shape.roles.rows
        math_clocks = rows * bn * bk / self.facts.tensor_lanes[self.plan.contraction.dtype]
        served = (rows / 64) * (64 + bn) * bk * self.size / SMEM_BYTES_PER_CLOCK
        drawn = 0.0
        for side, run in ((shape.m, shape.runs[0]), (shape.n, shape.runs[1])):
            elements = side.box.size * bk
            if run:
                pieces = pieces_of(side.box.size, bk, run)
                drawn += pieces * (PIECE_CLOCKS + run * ELEMENT_CLOCKS)
                served += pieces * (chunk_bytes(run) / CHUNK * COPY_CLOCKS + run / 8 * SHIFT_CLOCKS)
                served += pieces * run / 8 * TURN_CLOCKS if shape.turned and side is shape.m else 0.0
            else:
                drawn += elements * self.size / L2_BYTES_PER_CLOCK
                served += elements * self.size / SMEM_BYTES_PER_CLOCK
        return math_clocks, max(served, drawn, STEP_CLOCKS)

    def estimate(self, shape: GatherShape) -> Estimate:
        """Expected microseconds, what bounds them, and the best split of K."""
        plan, facts, bulk = self.plan, self.facts, self.bulk
        staging = self.staging(shape)
        of = bulk.bytes
        memory = (
            of[A] * bulk.cost(A, shape.m, shape.k, plan.k)
            + of[B] * bulk.cost(B, shape.n, shape.k, plan.k)
            + of[D] * bulk.cost(D, shape.m, shape.n.box, shape.n.modes, staging.bulk)
        ) / facts.dram_tbps * 1e-6  # fmt: skip
        math_clocks, served = self.clocks(shape)
        per_k = max(math_clocks / 0.86, served)
        k_tiles = shape.k.tiles
        tiles = shape.m.box.tiles * shape.n.box.tiles * plan.extent_l
        rows, bn = shape.roles.rows, shape.block[1]
        row = row_length(plan, shape.m.box, shape.n.box) if not staging.bulk else 0
        if row:  # instead of element by element
            elements = shape.m.box.size * shape.n.box.size
            by_element = elements / 32 * (ELEMENT_SLOTS / 4 + 4 * bulk.size_d / 16)
            clocks = staging.clocks - by_element + row_clocks(elements, row)
            staging = replace(staging, clocks=max(clocks, 250.0))
        best: Estimate | None = None
        for split in splits(k_tiles, tiles, facts.sm_count):
            blocks = tiles * split
            waves = math.ceil(blocks / facts.sm_count)
            tail = staging.clocks if split == 1 else rows * bn / 32.0
            loop = -(-k_tiles // split) * per_k
            fetch = loop + TILE_CLOCKS
            each = max(fetch, tail) + 0.2 * min(fetch, tail) if shape.roles.ping_pong else max(fetch, loop + tail + 300)
            busy = waves * each / (facts.clock_ghz * 1e3)
            reduce = LAUNCH_US + 2.0 * blocks * rows * bn * 4 / facts.l2_tbps * 1e-6 if split > 1 else 0.0
            dram = memory / min(1.0, blocks / facts.sm_count)
            us = LAUNCH_US + 2 * FILL_US + max(dram, busy) + 0.2 * min(dram, busy) + reduce
            us *= SHORT_SUMS if plan.extent_k <= SHORT_K else 1.0
            if best is None or us < best.us:
                bound = "DRAM" if dram >= busy else "stores" if tail > fetch else "gathering"
                best = Estimate(us, bound, split)
        assert best is not None
        return best
