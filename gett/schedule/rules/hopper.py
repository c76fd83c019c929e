"""Rules of all Hopper main loops: tiles, warpgroups, stages, blocks of the grid.

Rules are asked in order, and later ones rely on those before. How operands travel and how D leaves have rules of their
own; what one main loop alone asks is beside it in `gett.schedule.mainloops`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gett.hw.dtypes import data_type
from gett.schedule.rules.rule import Lowered, rule
from gett.schedule.spec.hopper_needs import (
    ACCUMULATORS,
    ARCHS,
    MOST_STAGES,
    MOST_STAGES_OF_ONE,
    multiplied,
    planes,
    up,
)
from layouts.domains import MOST

ORDERED = 256
"""Most clusters whose first tiles a table of bytes has."""


@rule
def hopper(x: Lowered) -> Iterator[str]:
    """The architecture has tensor maps, clusters and wgmma as Hopper has them."""
    if x.facts.arch not in ARCHS:
        yield f"{x.facts.arch} has not, {ARCHS[0]} has"


def whole_operands(x: Lowered, source: str) -> Iterator[str]:
    """Why wgmma does not multiply operands as they come; `source` is where it reads them, `"ss"` or `"rs"`."""
    dtype, loop, tensor = x.plan.contraction.dtype, x.s.hopper, multiplied(x.plan)
    if planes(x.plan) is not None:
        yield f"{dtype} at precision {x.plan.contraction.precision} by a {type(loop).__name__}"
    elif tensor is None:
        yield f"wgmma does not multiply {dtype} of {data_type(dtype).bytes} bytes as it is"
    elif loop.by_warps and not data_type(dtype).exact:
        yield f"operands are gathered as they are, {dtype} is to be rounded to {tensor.name}"
    elif source not in x.atom.sources:
        yield f"wgmma of {dtype} has sources {x.atom.sources}, not {source}"


@rule
def scheduler(x: Lowered) -> Iterator[str]:
    """Persistent blocks make tiles of one batch each; there are enough for a cluster, which begin in some order."""
    made, order = x.s.scheduler, x.s.scheduler.cluster_order
    if not made.persistent:
        yield "Hopper blocks are persistent, this one makes 1 tile and ends"
    elif not x.blocks <= made.blocks <= x.facts.sm_count * x.facts.blocks_per_sm:
        yield f"{made.blocks} blocks in clusters of {x.s.cluster}, for {x.facts.sm_count} multiprocessors"
    if sorted(order) != list(range(len(order))) or len(order) > ORDERED:
        yield f"{len(order)} clusters begin at {order}, no permutation of {ORDERED} at most"
    if x.s.tiling.l is not None:
        yield f"{x.s.tiling.batches} batches in a block, a Hopper block makes tiles of 1"


@rule
def batches_together(x: Lowered) -> Iterator[str]:
    """Batches that are visited together exist; single blocks make whole sums of their tiles."""
    made, group = x.s.scheduler, x.s.scheduler.group_l
    if group > max(1, x.plan.extent_l) or (group > 1 and (x.blocks > 1 or made.split_k > 1)):
        yield f"{group} of {x.plan.extent_l} batches, clusters of {x.s.cluster}, {made.split_k} slices of K"


@rule
def stream_k(x: Lowered) -> Iterator[str]:
    """Stream-K divides tiles that are left over, in shares of a k-tile or more, where stages and D's tile allow it."""
    made, loop, store, t = x.s.scheduler, x.s.hopper, x.s.epilogue.store, x.s.tiling
    if not made.stream_k:
        return
    left = x.clusters % x.s.shares
    if not x.s.shares <= left * t.k.tiles <= MOST:
        yield f"{left} tiles of {t.k.tiles} k-tiles are left over, for {x.s.shares} shares of one or more"
    if loop.keeps or loop.in_turn:
        yield f"the {t.k.tiles} k-tiles of a {type(loop).__name__} stay, or are dealt out in turn"
    if store.exchange is not None or store.reuse_mainloop_smem or t.mma_tiles > 1:
        yield f"a tile of {t.mma_tiles} MMA tiles that two blocks store, or that is staged where stages are"


@rule
def mma_tiles(x: Lowered) -> Iterator[str]:
    """MMA tiles of one tile of D divide the last tiled dimension of M, come and leave together by tensor map."""
    count, tiled, loop, store = x.s.tiling.mma_tiles, x.s.tiling.m.tiled, x.s.hopper, x.s.epilogue.store
    if count == 1:
        return
    if not tiled or tiled[-1][1].box % count:
        yield f"{count} do not divide the last dimension of box_m, {tiled[-1][1].box if tiled else 1}"
    if not loop.many_mma_tiles or loop.by_warps or loop.ping_pong or store.map is None:
        how = "in ping-pong " if loop.ping_pong else ""
        yield f"{count} of a {type(loop).__name__} {how}that leave by a {type(store).__name__}"


@rule
def block(x: Lowered) -> Iterator[str]:
    """A block is whole instructions: rows of all warpgroups, columns and depth of the boxes."""
    loop, atom, (m, n, k) = x.s.hopper, x.atom, x.s.tiling.shape
    rows = atom.m * loop.mma_m * (1 if loop.ping_pong else loop.warpgroups)
    columns, deep = up(x.s.tiling.n.size, atom.n), up(x.s.tiling.k.size, atom.k)
    if m != rows:
        yield f"block_m = {m}, but {loop.warpgroups} warpgroups of {loop.mma_m} MMA atoms of {atom.m} rows make {rows}"
    if n != columns or n > atom.most_n:
        yield f"block_n = {n}: box_n needs {columns}, a multiple of {atom.n} up to {atom.most_n}"
    if k != deep:
        yield f"block_k = {k}: box_k needs {deep}, a multiple of {atom.k}"


@rule
def accumulators(x: Lowered) -> Iterator[str]:
    """A thread's registers hold its products."""
    count = x.s.hopper.mma_m * x.s.tiling.shape[1] // 2
    if count > ACCUMULATORS:
        yield f"{count} registers a thread, the limit is {ACCUMULATORS}"


@rule
def stages(x: Lowered) -> Iterator[str]:
    """The pipeline has two stages or more, of which all have barriers."""
    loop = x.s.hopper
    # Transposed k-tiles are deep; each is multiplied while the next one is still in the warps' buffers.
    least = 1 if loop.a.transform else 2
    most = MOST_STAGES_OF_ONE if loop.slabs_of_b or loop.keeps else MOST_STAGES
    if not least <= loop.stages <= most:
        yield f"{loop.stages}, a pipeline has {least} to {most}"
