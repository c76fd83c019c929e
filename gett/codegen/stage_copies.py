"""The copies that fill an operand's tile of a stage: slab by slab, whole or the block's part of what its cluster needs.

Owns the statements inside the generated `Index::load`. Knows tensor maps and shares, no pipeline.
"""

from __future__ import annotations

from gett.schedule.cluster import part_box
from gett.schedule.records import BulkMove


def stage_copies(name: str, move: BulkMove) -> list[str]:
    """C++ statements that issue the copies of operand `name` (`"a"` or `"b"`).

    In scope are its place `<name>` in shared memory, `bar`, `share_<name>`, `tile_k`, and the coordinates: `t.<name>0`
    ... of the tile and `k.<name>0` ... of the k-tile.
    """
    made = move.map
    calls = []
    for i, (start, first) in enumerate(_copies(move)):
        coords = [f"t.{name}{d} + k.{name}{d}{f' + {x}' if x else ''}" for d, x in enumerate(first)]
        to = f"{name} + {start}" if start else name
        if move.divided is not None:
            # The divided dimension is the outermost, so a part is one piece of the slab.
            to += f" + int(share_{name}.part) * {made.slab_bytes // move.shared}"
            coords[move.divided] += f" + int(share_{name}.part) * {part_box(move)[move.divided]}"
        if move.shared == 1:
            calls.append(f"    gett::load_box({to}, &p.map_{name}, bar, {', '.join(coords)});")
            continue
        turn = ""
        if move.divided is None:
            whose = f"{i % move.shared}" if move.copies % move.shared == 0 else f"tile_k % {move.shared}"
            turn = f"    if (int(share_{name}.part) == {whose})\n  "
        calls.append(f"{turn}    gett::spread_box({to}, &p.map_{name}, bar, share_{name}.mask, {', '.join(coords)});")
    return calls


def _copies(move: BulkMove) -> list[tuple[int, list[int]]]:
    """Place in shared memory and first coordinates of each copy of a tile."""
    made = move.map
    if not move.repeats:
        rest = [0] * (made.rank - 1)
        return [(slab * made.slab_bytes, [slab * made.box[0], *rest]) for slab in range(made.slabs)]
    out = []
    for i in range(move.copies):
        first, rest_i = [0] * made.rank, i
        for dim, step, count in move.repeats:
            first[dim] += rest_i % count * step
            rest_i //= count
        out.append((i * move.pitch, first))
    return out
