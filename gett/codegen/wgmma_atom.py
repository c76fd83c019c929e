"""The one instruction whose text depends on the tile: `wgmma.mma_async` at a given N (PTX ISA, wgmma)."""

from __future__ import annotations

from collections.abc import Iterable

from gett.hw.dtypes import tensor_type, wgmma_atom
from gett.hw.tensor_types import TensorType


def _instruction(dtype: str, n: int) -> str:
    """Name of the instruction for `n` columns."""
    kind, atom = tensor_type(dtype).kind, wgmma_atom(dtype)
    assert n in range(atom.n, atom.most_n + 1, atom.n)
    return f"wgmma.mma_async.sync.aligned.m{atom.m}n{n}k{atom.k}.f32.{kind}.{kind}"


def _majors(dtype: str, *majors: str) -> str:
    """The last operands of the instruction: whether a tile is MN-major; types that must be K-major have none."""
    atom = wgmma_atom(dtype)
    assert set(majors) <= set(atom.majors), (dtype, majors)
    return "".join(f", {int(major != 'k')}" for major in majors) if atom.either_major else ""


def wgmma_registers_struct(dtype: str, n: int, b_major: str) -> str:
    """A C++ struct `Wgmma` with `mma(acc, a0, a1, a2, a3, b)`: as `wgmma_struct`, A's fragment in registers."""
    instruction, count = _instruction(dtype, n), n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    fragment = ", ".join(f"%{count + i}" for i in range(4))
    words = ", ".join(f"gett::uint32 a{i}" for i in range(4))
    inputs = ", ".join(f'"r"(a{i})' for i in range(4))
    return f"""struct Wgmma {{
  static GETT_DEVICE void mma(float (&d)[{count}], {words}, gett::uint64 b) {{
    asm volatile(
        "{instruction} {{{registers}}}, {{{fragment}}}, %{count + 4}, "
        "1, 1, 1{_majors(dtype, b_major)};\\n"
        : {outputs}
        : {inputs}, "l"(b));
  }}
}};
"""


def wgmma_planes_struct(tensor: TensorType, columns: Iterable[int], b_major: str) -> str:
    """A C++ struct `Wgmma` with `mma<sign>(sum, a, b, keep)`: A's fragment in registers, a[4].

    sum = sign * A * B, or sum += sign * A * B to keep. The sums' length says how many columns: `columns` has those
    that there are.
    """
    functions = "".join(_planes_function(tensor, n, b_major) for n in columns)
    return f"struct Wgmma {{\n{functions}}};\n"


def _planes_function(tensor: TensorType, n: int, b_major: str) -> str:
    atom = tensor.wgmma
    assert atom is not None
    count = n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    fragment = ", ".join(f"%{count + i}" for i in range(4))
    assert b_major in atom.majors
    transposed = f", {int(b_major != 'k')}" if atom.either_major else ""
    head = f"void mma(float (&d)[{count}], const gett::uint32 (&a)[4], gett::uint64 b, bool keep)"
    return f"""  template <int kSign = 1>
  static GETT_DEVICE {head} {{
    asm volatile(
        "{{\\n.reg .pred keep;\\nsetp.ne.b32 keep, %{count + 5}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m{atom.m}n{n}k{atom.k}.f32.{tensor.kind}.{tensor.kind} {{{registers}}}, "
        "{{{fragment}}}, %{count + 4}, keep, %{count + 6}, 1{transposed};\\n}}\\n"
        : {outputs}
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(keep)), "n"(kSign));
  }}
"""


def wgmma_struct(dtype: str, n: int, a_major: str, b_major: str) -> str:
    """A C++ struct `Wgmma` with `mma(acc, a, b, keep)`: acc = A * B, or acc += A * B to keep, on 64 x n x 32 bytes.

    Args:
        dtype: dtype of the operands; products are summed in float32.
        n: Columns, a multiple of 8 up to 256.
        a_major: `"k"` or `"mn"`.
        b_major: Likewise.
    """
    instruction, count = _instruction(dtype, n), n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return f"""struct Wgmma {{
  static GETT_DEVICE void mma(float (&d)[{count}], gett::uint64 a, gett::uint64 b, bool keep) {{
    asm volatile(
        "{{\\n.reg .pred keep;\\nsetp.ne.b32 keep, %{count + 2}, 0;\\n"
        "{instruction} {{{registers}}}, %{count}, %{count + 1}, "
        "keep, 1, 1{_majors(dtype, a_major, b_major)};\\n}}\\n"
        : {outputs}
        : "l"(a), "l"(b), "r"(int(keep)));
  }}
}};
"""
