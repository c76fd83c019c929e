"""The tables of `docs/contract.md`: members of generated structs, from the concepts of `gett/kernels/contract`.

A line of a concept names a member and says in its comment what it is; a comment of its own stands before a long line.
The concepts are the list: this page and the compiler read the same lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from gett.jit.compile import kernel_headers

FOLDER = "gett/contract/"
_MEMBER = re.compile(
    r"\{ (?:typename )?(?:(?P<struct>[A-Z]\w*)::|p\.)(?P<name>\w+)(?P<rest>[^{}]*(?:\{[^}]*\}[^{}]*)*)\}"
)
_CONCEPT = re.compile(r"^(?:template <[^>]*> *)?concept (\w+) ?=", re.M)


@dataclass(frozen=True)
class Member:
    """A member that headers need.

    Attributes:
        struct: The generated struct: that whose renderer gives it, or one that extends it.
        name: As the text has it.
        field: The field of its result that is meant, or nothing.
        arguments: As a function of it is called; None for what is no function.
        meaning: What it is.
        concept: Where it is asked for.
        header: The header of that concept.
    """

    struct: str
    name: str
    field: str
    arguments: str | None
    meaning: str
    concept: str
    header: str


@cache
def members() -> tuple[Member, ...]:
    """The members of all concepts, in their order."""
    found = []
    for header, text in kernel_headers().items():
        if not header.startswith(FOLDER):
            continue
        concept, before = "", ""
        for line in text.splitlines():
            code, _, comment = (x.strip() for x in line.partition("//"))
            if match := _CONCEPT.search(code):
                concept = match[1]
            asked = list(_MEMBER.finditer(code))
            for match in asked:
                call = re.match(r"\((.*)\)", match["rest"])
                field = re.search(r"\)\.(\w+)", match["rest"])
                struct = match["struct"] or "Params"
                found.append(
                    Member(struct, match["name"], field[1] if field else "", call[1] if call else None,
                           comment or before, concept, header)
                )  # fmt: skip
            before = comment if not code else ""
    return tuple(found)


@cache
def uses() -> dict[str, tuple[str, ...]]:
    """The concepts that each concept asks for, itself first."""
    direct: dict[str, list[str]] = {}
    for header, text in kernel_headers().items():
        if header.startswith(FOLDER):
            code = re.sub(r"//.*", "", text)
            parts = _CONCEPT.split(code)
            for name, body in zip(parts[1::2], parts[2::2], strict=True):
                direct[name] = re.findall(r"\b([A-Z]\w+)(?=<)", body.split(";\n")[0])

    def below(name: str) -> Iterable[str]:
        yield name
        for other in direct[name]:
            if other in direct:
                yield from below(other)

    return {name: tuple(dict.fromkeys(below(name))) for name in direct}


@cache
def parts() -> dict[str, str]:
    """The concepts that classes of headers ask for, with the header of the class."""
    found = {}
    for header, text in kernel_headers().items():
        if not header.startswith(FOLDER):
            for name in re.findall(r"GETT_REQUIRES\(contract::(\w+)<", text):
                found[name] = header
    return found


GROUPS = {
    "the main loops of warpgroups": ("WgmmaSS", "WgmmaRS", "WgmmaSplit", "WgmmaTf32", "DmmaTma"),
    "the stores of warpgroups": ("TmaStore", "VectorStore", "RowStore"),
    "the persistent tile schedulers": (
        "PersistentRaster",
        "PersistentBatches",
        "PersistentPanel",
        "PersistentRagged",
        "PersistentRaggedSums",
        "StreamK",
    ),
    "the stream kernels": ("StreamMap", "StreamSum", "StreamMatrix"),
}
"""Concepts that often need the same, and how they are called together."""


def table(*structs: str) -> str:
    """The constants and types of generated structs: name, what it is, and which concepts ask for it."""
    rows: dict[str, tuple[list[str], set[str]]] = {}
    for member in members():
        if member.struct in structs:
            meanings, needed = rows.setdefault(_shown(member), ([], set()))
            meanings += [member.meaning] if member.meaning not in meanings else []
            needed |= _needed(member.concept)
    lines = ["| member | what it is | who needs it |", "|---|---|---|"]
    lines += [f"| `{shown}` | {'; '.join(meanings)} | {_who(needed)} |" for shown, (meanings, needed) in rows.items()]
    return "\n".join(lines)


def functions() -> str:
    """The members of `Index`, by the concept that asks for them."""
    lines: list[str] = []
    last = ""
    for member in members():
        if member.struct != "Index":
            continue
        if member.concept != last:
            last = member.concept
            lines += ["", f"`{last}`, for {_who(_needed(last))}:", "", "| member | what it gives |", "|---|---|"]
        lines.append(f"| `{_shown(member)}` | {member.meaning} |")
    return "\n".join(lines)


def _needed(concept: str) -> set[str]:
    """The classes' concepts that ask for a concept."""
    return {part for part in parts() if concept in uses()[part]}


def _who(needed: set[str]) -> str:
    names = []
    for together, group in GROUPS.items():
        if needed >= set(group):
            names.append(together)
            needed = needed - set(group)
    return ", ".join([*names, *(f"`{x}`" for x in sorted(needed))])


def _shown(member: Member) -> str:
    if member.arguments is None:
        return member.name
    call = re.sub(r"Index::\w+\(p, i\)", "t", re.sub(r"\{[^}]*\}", "...", member.arguments))
    return f"{member.name}({call}){f'.{member.field}' if member.field else ''}"


@cache
def homes() -> dict[str, str]:
    """The header of each concept."""
    return {
        name: header
        for header, text in kernel_headers().items()
        if header.startswith(FOLDER)
        for name in _CONCEPT.findall(text)
    }


def classes() -> str:
    """The concepts that classes ask for, with the headers of both."""
    lines = ["| concept | of the class in | stands in `gett/kernels/contract` |", "|---|---|---|"]
    for name, header in sorted(parts().items(), key=lambda x: x[1]):
        lines.append(f"| `{name}` | `{header.removeprefix('gett/')}` | `{homes()[name].removeprefix(FOLDER)}` |")
    return "\n".join(lines)
