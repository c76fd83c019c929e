"""Tiles of D larger than what accumulators hold or than what one block stores: so that D's rows grow longer.

Where A's rows run along one free mode and D's along another, a tile has A's run times D's run rows, and a warpgroup's
registers bound the product. Either several MMA tiles are staged one after the other and leave together, or two blocks
of a cluster exchange halves of their tiles. Owns which such tiles are tried; knows modes and boxes, no tensor map.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import D, GemmPlan
from gett.schedule.spec.epilogue import DsmemExchange, StagedTile
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box
from layouts.swizzle import CHUNK


def store_tiles(
    plan: GemmPlan, rows: int, columns: int, unit: int | None, sizes: tuple[int, int], facts: ArchFacts
) -> Iterator[tuple[OperandTiling, OperandTiling]]:
    """(tile of D, its MMA tile) along M; MMA tiles of `rows` rows follow each other along D's unit-stride mode.

    Args:
        plan: The plan, exchanged where A and B change roles.
        rows: Of the accumulators, padding included.
        columns: Of the tile.
        unit: A's unit-stride mode in M, None where A's rows run along K.
        sizes: Bytes of an element of A and of D.
        facts: Of the GPU, all of whose multiprocessors should have tiles.
    """
    modes = plan.m
    along = next((i for i, s in enumerate(modes) if s.strides[D] == sizes[1]), None)
    if unit is None or along is None or along == unit:
        return
    extents = tuple(s.extent for s in modes)
    for run, atom in _runs(modes[unit].extent, sizes[0]):
        count, extent = rows // atom, modes[along].extent
        most = facts.smem_per_block // 2 // (run * columns * sizes[1])  # the other half belongs to stages
        lengths = [n for n in range(2 * count, min(most, extent) + 1, count) if extent % n == 0]
        for length in lengths[-2:]:
            whole, mma = (Box.of_cuts(extents, {unit: run, along: n}) for n in (length, count))
            if whole.tiles * plan.extent_l < facts.sm_count:
                continue
            padded = (run, atom) if run < atom else (0, 0)
            yield OperandTiling(whole, modes, None, *padded), OperandTiling(mma, modes, None, *padded)


def _runs(extent: int, size: int) -> list[tuple[int, int]]:
    """(elements of A's run, rows that an atom has room for): whole swizzled rows, or the mode whole in a wider one."""
    found = [(span // size, span // size) for span in (128, 64) if extent * size % span == 0]
    wider = next((s for s in (64, 128) if s > extent * size and extent * size % CHUNK == 0), 0)
    return found or ([(extent, wider // size)] if wider and extent * size * 2 > wider else [])


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An exchange and what follows from it.

    Attributes:
        cluster: Blocks along M and N that exchange.
        m, n: Boxes of D that each of them stores then.
        exchange: The exchange.
    """

    cluster: tuple[int, int]
    m: Box
    n: Box
    exchange: DsmemExchange


def exchanged(box_m: Box, box_n: Box, stage: StagedTile, size: int, batches: int) -> Exchanged | None:
    """How two blocks exchange halves of a tile whose rows have 16 bytes, None where they cannot.

    Such rows write half a sector each, which takes four times as long as whole ones. Of two tiles side by side in
    D's unit mode each block stores one half, in rows of 32 bytes.

    Args:
        box_m: Box of the tile's rows.
        box_n: Of its columns.
        stage: How it is staged.
        size: Bytes of an element of D.
        batches: Modes of D before those of M.
    """
    if stage.row * size != CHUNK or stage.swizzle_bytes != CHUNK or stage.cut is not None or len(stage.order) < 2:
        return None
    boxes = {"m": box_m, "n": box_n}
    (group, i), (slow, j) = stage.order[0], stage.order[-1]
    row, last = boxes[group].dims[i], boxes[slow].dims[j]
    if len(row.modes) > 1 or len(last.modes) > 1 or row.box != stage.row or last.box % 2:
        return None
    if boxes[group].tiles_per_dim[i] % 2:
        return None
    made = dict(boxes)
    for name, at, extent in ((group, i, 2 * row.box), (slow, j, last.box // 2)):
        dims = made[name].dims
        made[name] = replace(made[name], dims=(*dims[:at], replace(dims[at], box=extent), *dims[at + 1 :]))
    first = {"m": batches, "n": batches + len(box_m.extents)}
    distance = math.prod(boxes[group].tiles_per_dim[:i])
    record = DsmemExchange(
        distance, (first[group] + row.modes[0], row.box), (first[slow] + last.modes[0], last.box // 2)
    )
    return Exchanged((1, 2) if group == "n" else (2, 1), made["m"], made["n"], record)
