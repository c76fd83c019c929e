"""The one argument of every kernel: a struct passed by value, declared in C++ and packed in Python from one list.

Layout: addresses of a, b, c, d and the workspace at 0, 8, ... 32; at 40 that of the rows at which problems end, where
there are any; alpha at 48 and beta at 64 (16 bytes each, in the accumulator's type); named integers from 80; the
addresses x0, x1, ... of the tensors that an epilogue's function reads; then the tables of `ParamTable`, and tensor maps
at the next multiple of 64. Kernels spell types as `gett.hw.dtypes` has them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from gett.codegen.index import ParamTable
from gett.hw.dtypes import data_type
from gett.ir.contraction import Contraction, Operand


def cpp_type(dtype: str) -> str:
    """C++ name of a dtype.

    Raises:
        DTypeError: The kernels have no such type.
    """
    return data_type(dtype).cpp


def dtype_c(contraction: Contraction) -> str:
    """The dtype of C, or of D where there is none."""
    return contraction.d.dtype if contraction.c is None else contraction.c.dtype


def factor_type(operand: Operand) -> str:
    """C++ name of what A or B has in memory: elements that a load conjugates have a type of their own.

    Raises:
        DTypeError: The kernels have no such type.
    """
    name = cpp_type(operand.dtype)
    return name.replace("complex", "conj") if operand.conj else name


POINTERS = (("a", 0), ("b", 8), ("c", 16), ("d", 24), ("workspace", 32))
ENDS, ALPHA, BETA, NAMED = 40, 48, 64, 80
MAP_BYTES = 128


def declare_params(
    contraction: Contraction,
    names: Mapping[str, int],
    table: ParamTable,
    maps: Iterable[str] = (),
    factors: tuple[str, str] | None = None,
    ends: str = "",
) -> str:
    """C++ text of `struct Params`: named integers, a table of strides, divisors and counts, maps of some roles.

    `factors` are C++ types of A's and B's elements; by default that in which products are formed. `ends` is the dtype
    of the numbers of rows at which problems end, "" where there are none.
    """
    acc = cpp_type(data_type(contraction.dtype).accumulator)
    a, b = factors or (cpp_type(contraction.dtype),) * 2
    c, d = cpp_type(dtype_c(contraction)), cpp_type(contraction.d.dtype)
    # The first integer carries the alignment that puts it at NAMED whatever the size of beta.
    integers = "".join(f"  {'' if i else 'alignas(16) '}int {name};\n" for i, name in enumerate(names))
    return (
        "struct Params {\n"
        f"  const {a}* a;\n  const {b}* b;\n  const {c}* c;\n  {d}* d;\n  {acc}* workspace;\n"
        + (f"  const {cpp_type(ends)}* ends;\n" if ends else "")
        + f"  alignas(16) {acc} alpha;\n  alignas(16) {acc} beta;\n{integers}"
        f"{'' if len(names) % 2 == 0 else '  int pad;' + chr(10)}"
        + "".join(f"  const {cpp_type(x.dtype)}* x{i};\n" for i, x in enumerate(contraction.extras))
        + table.declare()
        + "".join(f"  gett::TensorMap map_{role};\n" for role in maps)
        + "};\n"
    )


def pointer_slots(contraction: Contraction, names: Mapping[str, int], parts: bool) -> tuple[tuple[str, int], ...]:
    """Role and byte offset of the addresses of the tensors that there are, x0, x1, ... too, and of a workspace."""
    there = {"b": contraction.b is not None, "c": contraction.c is not None, "workspace": parts}
    first = NAMED + 8 * -(-len(names) // 2)
    extras = ((f"x{i}", first + 8 * i) for i in range(len(contraction.extras)))
    return (*(slot for slot in POINTERS if there.get(slot[0], True)), *extras)


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
