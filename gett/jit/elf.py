"""Reads a cubin's resources from its ELF sections.

Owns the few parts of the cubin format that this needs: section and symbol tables (ELF-64, little endian) and the
attribute records of `.nv.info`. Useful where no compile log exists any more, as for a kernel from the cache.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from gett.errors import CompileError

_SIZED = 4  # format of an attribute that is followed by as many bytes as its last field says
_REGISTERS, _FRAME, _STACK = 0x2F, 0x11, 0x12  # attributes of .nv.info: (symbol, value)
# From compute capability 9.0 on the first KiB of each block's shared memory is the system's and counted in the section.
_RESERVED_SECTION, _RESERVED_BYTES = ".nv.shared.reserved.0", 1024


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel needs.

    Attributes:
        registers: A thread's.
        local_bytes: Local memory, a thread's: spills and arrays that are indexed at run time, callees included.
        shared_bytes: Static shared memory, a block's; dynamic shared memory is the launch's.
    """

    registers: int
    local_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    offset: int
    size: int
    link: int


def resources(cubin: bytes) -> dict[str, Resources]:
    """Return the resources of each entry in `cubin`.

    Raises:
        CompileError: `cubin` is no cubin.
    """
    try:
        return _read(cubin)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise CompileError(f"not a cubin of a known form ({len(cubin)} bytes): {error}") from error


def code_bytes(cubin: bytes) -> int:
    """Return the size of all machine code in `cubin`; compiling takes the longer the more there is.

    Raises:
        CompileError: `cubin` is no cubin.
    """
    try:
        return sum(section.size for section in _sections(cubin) if section.name.startswith(".text."))
    except (struct.error, IndexError, ValueError) as error:
        raise CompileError(f"not a cubin of a known form ({len(cubin)} bytes): {error}") from error


def _read(data: bytes) -> dict[str, Resources]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it does not start as a 64-bit ELF file")
    sections = _sections(data)
    by_name = {section.name: section for section in sections}
    symbols = _symbols(data, sections, by_name[".symtab"]) if ".symtab" in by_name else []
    values: dict[int, dict[str, int]] = {_REGISTERS: {}, _FRAME: {}, _STACK: {}}
    if ".nv.info" in by_name:
        for attribute, symbol, value in _attributes(data, by_name[".nv.info"]):
            if attribute in values:
                values[attribute][symbols[symbol]] = value
    reserved = _RESERVED_BYTES if _RESERVED_SECTION in by_name else 0
    result = {}
    for name in by_name:
        # Only entries have a section of constants (their parameters); device functions have code alone.
        if not name.startswith(".nv.constant0."):
            continue
        entry = name.removeprefix(".nv.constant0.")
        shared = by_name.get(f".nv.shared.{entry}")
        result[entry] = Resources(
            registers=values[_REGISTERS][entry],
            local_bytes=max(values[_FRAME].get(entry, 0), values[_STACK].get(entry, 0)),
            shared_bytes=max(shared.size - reserved, 0) if shared is not None else 0,
        )
    return result


def _sections(data: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    count, names_index = struct.unpack_from("<HH", data, 60)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * index) for index in range(count)]
    names_offset = rows[names_index][4]
    return [_Section(_text(data, names_offset + row[0]), row[4], row[5], row[6]) for row in rows]


def _symbols(data: bytes, sections: list[_Section], table: _Section) -> list[str]:
    strings = sections[table.link].offset
    starts = range(table.offset, table.offset + table.size, 24)
    return [_text(data, strings + struct.unpack_from("<I", data, start)[0]) for start in starts]


def _attributes(data: bytes, section: _Section) -> Iterator[tuple[int, int, int]]:
    """Yield (attribute, symbol index, value) of those records of `.nv.info` that hold two words."""
    at, end = section.offset, section.offset + section.size
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            if size == 8:
                yield (attribute, *struct.unpack_from("<II", data, at))
            at += size


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
