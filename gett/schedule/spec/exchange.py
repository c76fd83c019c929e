"""How two blocks of a cluster exchange halves of their tiles of D, so that its rows grow longer. Knows boxes only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gett.schedule.spec.epilogue import DsmemExchange, StagedTile
from layouts.box import Box
from layouts.swizzle import CHUNK


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

    `stage` says how the tile is staged; there are `batches` modes of D before those of M.
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
