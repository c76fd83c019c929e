"""The one instruction whose text depends on the tile: `wgmma.mma_async` at a given N (PTX ISA, wgmma)."""

from __future__ import annotations

from gett.schedule.mainloops.kind import WgmmaText


def wgmma_struct(text: WgmmaText) -> str:
    """A C++ struct `Wgmma` with a function `mma` for each number of columns, which the sums' length tells apart.

    With both operands in shared memory it is `mma(acc, a, b, keep)`: acc = A * B, or acc += A * B to keep. With A's
    fragment in registers it is `mma(acc, a0, a1, a2, a3, b)`, which adds, or `mma<sign>(acc, a, b, keep)`, where `a`
    has those four and the product has a sign.
    """
    return f"struct Wgmma {{\n{''.join(_function(text, n) for n in text.columns)}}};\n"


def _function(text: WgmmaText, n: int) -> str:
    count = n // 2
    fragment = f"{{{', '.join(f'%{count + i}' for i in range(4))}}}, %{count + 4}, "
    name, template, last = f"{_instruction(text, n)}, ", "", f"1{_transposed(text)};\\n"
    if len(text.majors) == 2:
        arguments, inputs = "gett::uint64 a, gett::uint64 b, bool keep", ['"l"(a)', '"l"(b)']
        lines = [f"{name}%{count}, %{count + 1}, ", f"keep, 1, {last}"]
    elif text.signed:
        template, arguments = "  template <int kSign = 1>\n", "const gett::uint32 (&a)[4], gett::uint64 b, bool keep"
        inputs = [*(f'"r"(a[{i}])' for i in range(4)), '"l"(b)']
        lines = [name, f"{fragment}keep, %{count + 6}, {last}"]
    else:
        arguments = ", ".join([*(f"gett::uint32 a{i}" for i in range(4)), "gett::uint64 b"])
        inputs = [*(f'"r"(a{i})' for i in range(4)), '"l"(b)']
        lines = [f"{name}{fragment}", f"1, 1, {last}"]
    if "keep" in arguments:
        declared = f"{{\\n.reg .pred keep;\\nsetp.ne.b32 keep, %{count + len(inputs)}, 0;\\n"
        lines = [declared, lines[0], f"{lines[1]}}}\\n"]
        inputs += ['"r"(int(keep))', *(['"n"(kSign)'] if text.signed else [])]
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    body = "".join(f'        "{line}"\n' for line in lines)
    return (
        f"{template}  static GETT_DEVICE void mma(float (&d)[{count}], {arguments}) {{\n    asm volatile(\n{body}"
        f"        : {outputs}\n        : {', '.join(inputs)});\n  }}\n"
    )


def _instruction(text: WgmmaText, n: int) -> str:
    """Its name for `n` columns, and the registers of their sums."""
    atom, kind = text.tensor.wgmma, text.tensor.kind
    assert atom is not None
    assert n in range(atom.n, atom.most_n + 1, atom.n)
    sums = ", ".join(f"%{i}" for i in range(n // 2))
    return f"wgmma.mma_async.sync.aligned.m{atom.m}n{n}k{atom.k}.f32.{kind}.{kind} {{{sums}}}"


def _transposed(text: WgmmaText) -> str:
    """Its last operands: whether a tile is MN-major; types that must be K-major have none."""
    atom = text.tensor.wgmma
    assert atom is not None
    assert set(text.majors) <= set(atom.majors), text
    return "".join(f", {int(major != 'k')}" for major in text.majors) if atom.either_major else ""
