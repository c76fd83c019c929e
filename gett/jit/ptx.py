"""What PTX shows of a kernel: whether anything touches the accumulators of wgmma while products write them.

`wgmma.mma_async` returns before its registers are written; only `wgmma.wait_group` makes them readable (PTX ISA,
asynchronous warpgroup level matrix instructions). A compiler that keeps a value in another register between two
products copies it there too early. The assembler does not always notice, and results are then wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

_PRODUCT = "wgmma.mma_async"
_COMMIT = "wgmma.commit_group"
_WAIT = re.compile(r"wgmma\.wait_group\.sync\.aligned\s+(\d+)\b")
_ACCUMULATORS = re.compile(r"\{([^}]*)\}")
_REGISTER = re.compile(r"%[a-z]+\d+")
_LABEL = re.compile(r"^([\w$]+):")
_JUMP = re.compile(r"^(@\S+\s+)?(bra|brx|ret|exit|trap)\b(?:\.\w+)*\s*([\w$]*)")
_ANYWHERE = "*"
_Flight = tuple[frozenset[str], ...]  # accumulators of the products not committed yet, then of each group, newest first
_GROUPS = 4  # groups that are told apart; older ones are one
_FUNCTION = re.compile(r"^(?:\.\w+\s+)*\.(?:entry|func)\b", re.MULTILINE)


@dataclass(slots=True)
class _Block:
    """Instructions without a jump between them: registers and effects, and the labels of the blocks that follow."""

    instructions: list[str] = field(default_factory=list)
    following: list[str] = field(default_factory=list)
    falls_through: bool = True


def touched_in_flight(ptx: str) -> list[str]:
    """Return the instructions that read or write an accumulator of wgmma while products are under way, in order.

    Args:
        ptx: Text of a translation unit.
    """
    if _PRODUCT not in ptx:
        return []
    starts = [match.start() for match in _FUNCTION.finditer(ptx)]
    return [
        instruction
        for start, end in zip(starts, [*starts[1:], len(ptx)], strict=True)
        for instruction in _touched(ptx[start:end])
    ]


def _touched(function: str) -> Iterator[str]:
    if _PRODUCT not in function:
        return
    blocks = _blocks(function)
    names = list(blocks)
    reached: dict[str, _Flight] = {names[0]: ()}  # what is under way at the beginning
    pending = [names[0]]
    while pending:
        name = pending.pop()
        i = names.index(name)
        following = [*blocks[name].following, *(names[i + 1 : i + 2] if blocks[name].falls_through else [])]
        if _ANYWHERE in following:
            following = names
        after = _flow(blocks[name], reached[name])[0]
        for target in following:
            met = _joined(reached.get(target, ()), after)
            if target not in reached or met != reached[target]:
                reached[target] = met
                pending.append(target)
    for name, block in blocks.items():
        yield from _flow(block, reached.get(name, ()))[1]


def _joined(a: _Flight, b: _Flight) -> _Flight:
    """What may be under way where two paths meet."""
    empty: frozenset[str] = frozenset()
    return tuple(x | y for x, y in zip_longest(a, b, fillvalue=empty))


def _flow(block: _Block, flight: _Flight) -> tuple[_Flight, list[str]]:
    """What is under way behind a block, and the instructions that touch accumulators of what is before them."""
    touched = []
    for instruction in block.instructions:
        if _PRODUCT in instruction:
            match = _ACCUMULATORS.search(instruction)
            written = frozenset(_REGISTER.findall(match[1])) if match else frozenset()
            flight = (flight[0] | written, *flight[1:]) if flight else (written,)
        elif _COMMIT in instruction:
            newer = (frozenset[str](), *flight)
            flight = (*newer[:_GROUPS], frozenset().union(*newer[_GROUPS:]))
        elif match := _WAIT.search(instruction):
            flight = flight[: int(match[1]) + 1]
        elif not frozenset().union(*flight).isdisjoint(_REGISTER.findall(instruction)):
            touched.append(instruction)
    return flight, touched


def _blocks(function: str) -> dict[str, _Block]:
    """The blocks of a function by label, in the order of the text. Labels between braces are known only there."""
    block = _Block()
    blocks = {"": block}
    scopes, count = [""], 0
    for line in function.splitlines():
        text = line.partition("//")[0].strip()
        if text in ("{", "}"):
            count += 1
            scopes = [*scopes, f"{count}."] if text == "{" else scopes[:-1] or [""]
        elif match := _LABEL.match(text):
            block = blocks[_scoped(match[1], scopes)] = _Block()
        elif match := _JUMP.match(text):
            condition, kind, target = match.groups()
            if kind == "bra":
                block.following.append(_scoped(target, scopes))
            elif kind == "brx":  # by a table, to wherever there is a label
                block.following.append(_ANYWHERE)
            block.falls_through = condition is not None
            block = blocks[f"behind {len(blocks)}"] = _Block()
        elif text:
            block.instructions.append(text)
    return blocks


def _scoped(label: str, scopes: list[str]) -> str:
    return label if label.startswith("$") else scopes[-1] + label
