"""Runs printed index functions in Python: the text itself, with the parameters read back from their packed bytes.

Knows the little C++ that `gett.codegen.index` prints and the meaning of the helpers of `core/index.cuh`; unsigned
division goes through the packed reciprocals.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from gett.codegen.index import Function, ParamTable

_MEMBER = re.compile(r"(int|long long|gett::FastDiv) (\w)\[(\d+)\];")
_FORMAT = {"int": "i", "long long": "q", "gett::FastDiv": "III"}
_STATEMENT = re.compile(r"const (?:int|long long|bool) (\w+) = (.*);")


@dataclass(frozen=True)
class CppParams:
    """The arrays of a parameter struct as a kernel sees them."""

    s: list[int]
    f: list[tuple[int, int, int]]
    i: list[int]

    @classmethod
    def unpack(cls, table: ParamTable, packed: bytes | None = None, offset: int = 0) -> CppParams:
        """Read the members that `table` declares from bytes (its own by default), by C++'s rules of layout."""
        packed = table.pack() if packed is None else packed
        found: dict[str, Any] = {}
        for kind, name, count in _MEMBER.findall(table.declare()):
            form = _FORMAT[kind]
            align = struct.calcsize(form[0])
            offset += -offset % align
            values = [struct.unpack_from(f"<{form}", packed, offset + i * struct.calcsize(f"<{form}"))
                      for i in range(int(count))]  # fmt: skip
            offset += int(count) * struct.calcsize(f"<{form}")
            found[name] = values if len(form) > 1 else [v[0] for v in values]
        assert set(found) == {"s", "f", "i"}
        assert offset <= len(packed)
        return cls(**found)


def _fast_div(n: int, f: tuple[int, int, int]) -> int:
    assert 0 <= n < 2**31
    return ((((n * f[1]) >> 32) + n) & 0xFFFFFFFF) >> f[2]


def tile_div(d: int, n: Any) -> Any:
    """`tile_div<d>(n)` as the kernels do it, of a number or of an array."""
    assert 0 <= np.min(n) <= np.max(n) < 2**16
    return n // d if d & (d - 1) == 0 else n * -(-(2**32) // d) >> 32


def _value(text: str, names: dict[str, Any]) -> Any:
    text = re.sub(r"(p\.f\[\d+\])\.d", r"\1[0]", text.replace("gett::", ""))
    text = re.sub(r"(tile_\w+)<(\d+)>\(", r"\1(\2, ", text)
    return eval(text.replace(" / ", " // ").replace("&&", "and"), {"__builtins__": {}}, names)


def run_cpp(
    function: Function, params: CppParams, struct_t: Mapping[str, int] | None = None, /, **inputs: int
) -> dict[str, int]:
    """The results of a printed function; `struct_t` holds the members of its argument `t`."""
    text = function.to_cpp()
    names: dict[str, Any] = {
        **inputs,
        "p": params,
        "t": SimpleNamespace(**(struct_t or {})),
        "fast_div": _fast_div,
        "fast_mod": lambda n, f: n - _fast_div(n, f) * f[0],
        "tile_div": tile_div,
        "tile_mod": lambda d, n: n - tile_div(d, n) * d,
        "wide": lambda x, s: x * s,
    }
    assert re.search(r"\((.*)\) \{", text), text
    for line in text.splitlines()[1:-1]:
        if match := _STATEMENT.search(line):
            names[match[1]] = _value(match[2], names)
            continue
        returned = re.fullmatch(r"\s*return (.*);", line)
        assert returned, line
        value = returned[1]
        if value.startswith("{"):
            results = _value(f"[{value[1:-1]}]", names)
            return {name: int(x) for (name, _), x in zip(function.outputs, results, strict=True)}
        return {"": int(_value(value, names))}
    raise AssertionError(f"{function.name} returns nothing:\n{text}")
