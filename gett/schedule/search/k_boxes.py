"""Boxes of K for the Hopper main loops: multiples of 16 elements, and residues that a block fills up with zeros.

wgmma takes 16 k at a time. A k-tile of 24, 36 or 84 has room for 32, 48 or 96; the missing k are zeros in both
operands, written once when a block starts, and no copy touches them again: every fill of a stage is the same box at the
same place. So no row of padding is copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gett.schedule.search.tried import SS
from gett.schedule.spec.hopper_needs import up
from layouts.box import Box
from layouts.swizzle import CHUNK, SWIZZLES, swizzle_dividing

DEEP = {4: 1.0, 3: 1.02, 5: 1.03, 6: 1.03, 7: 1.04, 8: 1.04, 1: 1.3}  # factors by instructions, but for two


def k_boxes(
    extents: tuple[int, ...],
    lead: int | None,
    size: int,
    step: int,
    patient: bool,
    depths: Sequence[int],
    leads: Sequence[int],
) -> tuple[list[Box], list[Box]]:
    """Boxes of K of whole instructions: the best, and the shallowest.

    Past the end of a mode both operands read zeros.

    `lead` is the mode along which an operand's rows run, None where they run along M and N only; `step` the k of one
    instruction; `depths` and `leads` are tried of K and of the lead; `patient` is whether the start of a tile is hidden
    behind others.
    """
    others = sorted((m for m in range(len(extents)) if m != lead), key=lambda m: -extents[m])[:2]
    found: dict[tuple[tuple[int, int], ...], tuple[float, int]] = {}
    shallow, volume = min(16, *depths), math.prod(extents)
    for block in depths:
        for cut in _factors(block, lead, others, extents, step, leads):
            if lead is not None and cut.get(lead, 0) not in leads and len(extents) > 1:
                continue
            tiles = math.prod(-(-extent // cut.get(m, 1)) for m, extent in enumerate(extents))
            if tiles > 2 * -(-volume // (2 * shallow)) + 8:
                continue
            lead_bytes = cut.get(lead, 64) * size if lead is not None else 128
            waste = tiles * block / volume
            short = {16: 1.6, 32: 1.25, 64: 1.04}.get(swizzle_dividing(lead_bytes), 1.0)
            deep = 1.08 if patient else 0.99
            cost = waste * short * DEEP.get(block // step, deep)
            found[tuple((m, c) for m, c in cut.items() if c > 1)] = cost, block
    best = sorted(found, key=lambda cut: found[cut][0])
    shallows = [cut for cut in best[3:] if found[cut][1] == step][:1]
    made = [Box.of_cuts(extents, dict(cut)) for cut in (*best[:3], *shallows)]
    return made[:3], made[3:]


def _factors(
    block: int, lead: int | None, others: Sequence[int], extents: Sequence[int], step: int, leads: Sequence[int]
) -> Iterator[dict[int, int]]:
    """Ways to write the block's depth as a product of cuts, the leading mode first."""
    firsts = [v for v in leads if block % v == 0] if lead is not None else [1]
    if lead is not None and not others:
        firsts = [block]
    for v in firsts:
        if lead is not None and v >= 2 * extents[lead] and v > step:
            continue
        rest = block // v
        head = {lead: v} if lead is not None else {}
        if rest == 1:
            yield head
            continue
        if not others:
            continue
        for x in range(1, rest + 1):
            if rest % x:
                continue
            y = rest // x
            if y > 1 and len(others) < 2:
                continue
            # Past a mode's end lies padding: worth it only where the mode is short.
            if (x > extents[others[0]] and x > step) or (y > 1 and y > extents[others[1]]):
                continue
            yield {**head, others[0]: x, **({others[1]: y} if y > 1 else {})}


def residue_boxes(extents: tuple[int, ...], lead: int | None, size: int, step: int) -> list[Box]:
    """Boxes of K that divide it evenly into tiles that are no whole instructions deep, those that are padded least.

    Arguments are those of `k_boxes`. Where there is a leading mode, its row is one piece of a swizzled row, in whole
    16 bytes, so no other mode is tiled with it.
    """
    longest = lead if lead is not None else max(range(len(extents)), key=lambda m: extents[m])
    beside = {m: e for m, e in enumerate(extents) if m != longest and e > 1} if lead is None else {}
    if (math.prod(extents) if lead is None else extents[lead]) % step == 0:
        return []  # full k-tiles divide it
    whole, deepest = math.prod(beside.values()), max(SS.depths) if lead is None else SWIZZLES[-1] // size
    found = []
    for cut in (extents[longest] // parts for parts in range(1, extents[longest] + 1) if extents[longest] % parts == 0):
        deep = whole * cut
        if deep % step and deep <= deepest and (lead is None or deep * size % CHUNK == 0):
            found.append(Box.of_cuts(extents, {longest: cut, **beside}))
    least = min((up(b.size, step) / b.size for b in found), default=1.0)
    return [b for b in found if up(b.size, step) / b.size == least]


def gather_k_boxes(extents: tuple[int, ...], lead: int | None, step: int, chunk: int) -> list[Box]:
    """Boxes of K for gathered operands; the contracted unit-stride mode leads in whole chunks of `chunk` elements."""
    others = sorted((m for m in range(len(extents)) if m != lead), key=lambda m: -extents[m])[:2]
    found: dict[Box, float] = {}
    whole = up(extents[lead], chunk) if lead is not None else 1
    lengths = dict.fromkeys((64, 48, 32, 24, 16, 8, whole) if lead is not None else (1,))
    for first in (v for v in lengths if v <= min(64, whole)):
        for x in range(1, 64 // first + 1) if others else [1]:
            for y in range(1, 64 // (first * x) + 1) if len(others) > 1 else [1]:
                block = first * x * y
                cut = {**({lead: first} if lead is not None else {}), **dict(zip(others, (x, y), strict=False))}
                if block % step or any(cut[m] >= extents[m] + chunk for m in cut):
                    continue
                box = Box.of_cuts(extents, cut)
                waste = box.tiles * block / box.volume
                found[box] = waste * (1 + 2 / first if lead is not None else 1.0) * (1 + 8 / block)
    return sorted(found, key=lambda b: found[b])[:3]
