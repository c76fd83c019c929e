"""What PTX shows of a kernel: whether anything touches the accumulators of wgmma while products write them.

`wgmma.mma_async` returns before its registers are written; only `wgmma.wait_group` makes them readable (PTX ISA,
asynchronous warpgroup level matrix instructions). A compiler that keeps a value in another register between two
products copies it there too early, and the assembler does not always notice: results are then wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_PRODUCT = "wgmma.mma_async"
_WAIT_FOR_ALL = re.compile(r"wgmma\.wait_group\.sync\.aligned\s+0\b")
_ACCUMULATORS = re.compile(r"\{([^}]*)\}")
_REGISTER = re.compile(r"%[a-z]+\d+")
_LABEL = re.compile(r"^([\w$]+):")
_JUMP = re.compile(r"^(@\S+\s+)?(bra|brx|ret|exit|trap)\b(?:\.\w+)*\s*([\w$]*)")
_ANYWHERE = "*"
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
    accumulators = {
        register
        for line in function.splitlines()
        if _PRODUCT in line and (match := _ACCUMULATORS.search(line))
        for register in _REGISTER.findall(match[1])
    }
    if not accumulators:
        return
    blocks = _blocks(function)
    names = list(blocks)
    after = {name: _flow(block, False)[0] for name, block in blocks.items()}
    pending = [name for name in names if after[name]]
    reached: set[str] = set()  # where products are under way at the beginning
    while pending:
        name = pending.pop()
        i = names.index(name)
        following = [*blocks[name].following, *(names[i + 1 : i + 2] if blocks[name].falls_through else [])]
        if _ANYWHERE in following:
            following = names
        for target in following:
            if target not in reached:
                reached.add(target)
                if _flow(blocks[target], True)[0]:
                    pending.append(target)
    for name, block in blocks.items():
        for instruction in _flow(block, name in reached)[1]:
            if accumulators.intersection(_REGISTER.findall(instruction)):
                yield instruction


def _flow(block: _Block, in_flight: bool) -> tuple[bool, list[str]]:
    """Whether products are under way behind a block, and its other instructions before which they are."""
    beside = []
    for instruction in block.instructions:
        if _PRODUCT in instruction:
            in_flight = True
        elif _WAIT_FOR_ALL.search(instruction):
            in_flight = False
        elif in_flight:
            beside.append(instruction)
    return in_flight, beside


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
