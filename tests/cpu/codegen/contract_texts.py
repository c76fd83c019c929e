"""Generated texts as the contract sees them: their structs, the members of each, and texts that lack one."""

from __future__ import annotations

import re
from dataclasses import dataclass

STRUCTS = (
    "Params", "ProblemTraits", "TileShape", "SchedulerTraits", "MainloopTraits", "StagedTileTraits", "EpilogueTraits",
    "Traits", "Smem", "Index",
)  # fmt: skip
_MEMBER = re.compile(
    r"^ *typedef [^;]* (?P<type>\w+);$"
    r"|^ *static constexpr [\w:]+ (?P<constants>\w+ = [^;]*);"
    r"|^ *(?:template <[^>]*> )?static GETT_DEVICE (?:constexpr )?[\w: ]+? (?P<function>\w+)\("
    r"|^ *struct (?P<struct>\w+) \{"
    r"|^ *(?:alignas\(\d+\) )?(?!typedef|static|return|const [\w ]+=)"
    r"[\w:]+(?: [\w:]+)*(?: ?\*)? (?P<field>\w+)(?:\[\d+\])?;$",
    re.M,
)


@dataclass(frozen=True)
class Struct:
    """A struct of a text: where its members stand, `start` to `end`, and their names."""

    name: str
    start: int
    end: int
    members: tuple[str, ...]


def structs(text: str) -> list[Struct]:
    """The structs of the contract in a text; an operand's loader's is `LoaderTraitsA`, B's or C's."""
    found = []
    for match in re.finditer(r"^( *)struct (\w+)(?: : \w+)? \{\n", text, re.M):
        indent, name = match.groups()
        if name in STRUCTS or name.startswith("LoaderTraits"):
            end = text.index(f"\n{indent}}};", match.end() - 1)
            inside = len(indent) + 2
            body = text[match.end() : end + 1]
            own = "".join(x for x in body.splitlines(True) if re.match(rf" {{{inside}}}\S", x))
            found.append(Struct(name, match.end(), end, tuple(_members(own, name))))
    return found


def _members(own: str, struct: str) -> list[str]:
    out = []
    for match in _MEMBER.finditer(own):
        if match["constants"]:
            out += re.findall(r"(?:^|, )(k\w+) =", match["constants"])
        elif match["field"] and struct != "Params":
            continue
        else:
            out.append(next(x for x in match.groups() if x))
    return list(dict.fromkeys(out))


def without(text: str, struct: Struct, member: str) -> str:
    """The text with another name for a member, also where the text itself uses it."""
    name = rf"\b{member}\b"
    if struct.name == "Index":
        at = text.index("struct Index {")
        return text[:at] + re.sub(name, f"{member}_gone", text[at:])
    body = re.sub(name, f"{member}_gone", text[struct.start : struct.end])
    after = text[struct.end :]
    if struct.name == "Params":
        after = re.sub(rf"\bp\.{member}\b", f"p.{member}_gone", after)
    for base in (struct.name, "ProblemTraits") if struct.name in STRUCTS else ():
        after = re.sub(rf"\b{base}::{member}\b", f"{base}::{member}_gone", after)
    return text[: struct.start] + body + after
