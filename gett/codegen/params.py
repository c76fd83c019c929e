"""The one argument of every kernel: a struct passed by value, declared in C++ and packed in Python from one list.

Layout: addresses of a, b, c, d and the workspace at 0, 8, ... 32; alpha at 48 and beta at 64 (16 bytes each, in the
accumulator's type); named integers from 80; the addresses x0, x1, ... of the tensors that an epilogue's function reads;
then the tables of `ParamTable`, and tensor maps at the next multiple of 64.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from gett.codegen.index import ParamTable
from gett.codegen.types import cpp_type
from gett.hw.dtypes import data_type

POINTERS = (("a", 0), ("b", 8), ("c", 16), ("d", 24), ("workspace", 32))
ALPHA, BETA, NAMED = 48, 64, 80
MAP_BYTES = 128


def declare_params(
    dtype: str,
    dtype_c: str,
    dtype_d: str,
    names: Mapping[str, int],
    table: ParamTable,
    maps: Sequence[str] = (),
    extras: Sequence[str] = (),
    factors: tuple[str, str] | None = None,
) -> str:
    """C++ text of `struct Params`.

    Args:
        dtype: In which products are formed.
        dtype_c: Of C.
        dtype_d: Of D.
        names: The named integers.
        table: Strides, divisors and counts.
        maps: The roles that have a tensor map.
        extras: The dtypes of x0, x1, ...
        factors: C++ types of A's and B's elements; by default that of `dtype`.
    """
    acc = cpp_type(data_type(dtype).accumulator)
    a, b = factors or (cpp_type(dtype),) * 2
    # The first integer carries the alignment that puts it at NAMED whatever the size of beta.
    integers = "".join(f"  {'' if i else 'alignas(16) '}int {name};\n" for i, name in enumerate(names))
    return (
        "struct Params {\n"
        f"  const {a}* a;\n  const {b}* b;\n  const {cpp_type(dtype_c)}* c;\n  {cpp_type(dtype_d)}* d;\n"
        f"  {acc}* workspace;\n"
        f"  alignas(16) {acc} alpha;\n  alignas(16) {acc} beta;\n{integers}"
        f"{'' if len(names) % 2 == 0 else '  int pad;' + chr(10)}"
        + "".join(f"  const {cpp_type(x)}* x{i};\n" for i, x in enumerate(extras))
        + table.declare()
        + "".join(f"  gett::TensorMap map_{role};\n" for role in maps)
        + "};\n"
    )


def extra_slots(names: Mapping[str, int], extras: int) -> tuple[tuple[str, int], ...]:
    """Role and byte offset of the address of each tensor that the epilogue's function reads."""
    first = NAMED + 8 * -(-len(names) // 2)
    return tuple((f"x{i}", first + 8 * i) for i in range(extras))


def pack_params(names: Mapping[str, int], table: ParamTable, maps: int = 0, extras: int = 0) -> bytes:
    """The struct's bytes with addresses, alpha, beta and tensor maps zeroed; padded to its alignment."""
    values = [*names.values()] + ([] if len(names) % 2 == 0 else [0])
    out = bytes(NAMED) + struct.pack(f"<{len(values)}i", *values) + bytes(8 * extras) + table.pack()
    return out + bytes(-len(out) % (64 if maps else 16)) + bytes(MAP_BYTES * maps)


def map_offsets(names: Mapping[str, int], table: ParamTable, maps: int, extras: int = 0) -> tuple[int, ...]:
    """Byte offset of each tensor map."""
    first = len(pack_params(names, table, maps, extras)) - MAP_BYTES * maps
    return tuple(first + MAP_BYTES * i for i in range(maps))


def scalar_slots(dtype: str) -> tuple[tuple[str, int, str], ...]:
    """Slots of alpha and beta."""
    kind = data_type(dtype).accumulator
    return (("alpha", ALPHA, kind), ("beta", BETA, kind))
