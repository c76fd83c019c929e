"""The function of an epilogue in generated text: its functor, its traits, and how `Index` applies it to an element.

Owns which of the function's tensors x0, x1, ... are read once for a row of the tile, once for a column, or for each
element. The functor's statements are `gett.epilogue.cpp`'s, offsets are `codegen.tiles`'.
"""

from __future__ import annotations

from gett.codegen.common import reach
from gett.codegen.params import cpp_type
from gett.epilogue.cpp import print_functor
from gett.epilogue.types import TRUTH
from gett.ir.contraction import Contraction
from gett.ir.gemm import EXTRA, GemmPlan


def extra_tensors(contraction: Contraction) -> dict[str, int]:
    """The tensors that the function reads: name in the kernel to position in `Strided.strides`."""
    return {f"x{i}": EXTRA + i for i in range(len(contraction.extras))}


def op_traits(contraction: Contraction) -> dict[str, bool | int | str]:
    """Members of the traits: whether there is a function, and how many tensors it reads."""
    return {"kEpilogueOp": contraction.epilogue is not None, "kExtras": len(contraction.extras)}


def op_struct(contraction: Contraction) -> str:
    """The struct `EpilogueOp`, nothing where there is no function."""
    if contraction.epilogue is None:
        return ""
    return f"{print_functor(contraction.epilogue, contraction.value_types, cpp_type)}\n"


def tile_op(plan: GemmPlan, many_batches: bool) -> list[str]:
    """Members of `Index` that apply the function to an element of a tile of rows and columns.

    `op_row` and `op_column` give what rows and columns fix: whether D has them, and of each tensor either its value or
    an offset. What varies along one of the two only is so read once for many elements. Where a block makes
    `many_batches`, these are parts of the rows.
    """
    contraction = plan.contraction
    if contraction.epilogue is None:
        return []
    types = contraction.value_types
    row_fields, column_fields = ["bool ok;"], ["bool ok;"]
    rows = ["m >= 0 && m_ok(p, t, m)"]
    columns = ["n_ok(p, t, n)"]
    element_fields: list[str] = []
    elements: list[str] = []
    within = "m"
    if many_batches:
        within = "m % TileShape::kBlockM"
        rows = [f"l_ok(p, l, m / TileShape::kBlockM) && m_ok(p, t, {within})"]
    arguments = [f"gett::convert<{_cpp(types[0])}>(d)"]
    stored = [x.dtype for x in contraction.extras]
    for (name, tensor), kind, dtype in zip(extra_tensors(contraction).items(), types[1:], stored, strict=False):
        along = {g: any(s.strides[tensor] for s in modes) for g, modes in (("l", plan.l), ("m", plan.m), ("n", plan.n))}
        in_rows = along["m"] or (many_batches and along["l"]) or not along["n"]
        at_row = f"t.{name} + m_{name}(p, t, {within})"
        if many_batches:
            at_row += f" + l_{name}(p, l, m / TileShape::kBlockM)"
        at_column = f"t.{name} + n_{name}(p, t, n)"
        if in_rows:
            at_row = f"l.{name} + {at_row}"
        else:
            at_column = f"l.{name} + {at_column}"
        load = f"gett::load_extra(p.{name}, "
        converted = f"gett::convert<{_cpp(kind)}>"
        if in_rows and along["n"]:
            offset = _offset_type(plan, tensor)
            for values, fields, at in ((rows, row_fields, at_row), (columns, column_fields, at_column)):
                fields.append(f"{offset} {name};")
                values.append(f"({offset})({at})")
            element_fields.append(f"{cpp_type(dtype)} {name};")
            elements.append(f"{load}r.{name} + c.{name}, r.ok && c.ok)")
            arguments.append(f"{converted}(e.{name})")
            continue
        values, fields, at = (rows, row_fields, at_row) if in_rows else (columns, column_fields, at_column)
        fields.append(f"{_cpp(kind)} {name};")
        values.append(f"{converted}({load}{at}, ok))")
        arguments.append(f"{'r' if in_rows else 'c'}.{name}")
    head, acc = "  static GETT_DEVICE", "ProblemTraits::Acc"
    return [
        f"  static constexpr int kElementReads = {len(elements)};",
        f"  struct OpRow {{ {' '.join(row_fields)} }};",
        f"  struct OpColumn {{ {' '.join(column_fields)} }};",
        f"  struct OpElement {{ {' '.join(element_fields)} }};",
        f"{head} OpRow op_row(const Params& p, const LTile& l, const MTile& t, int m) {{\n"
        f"    const bool ok = {rows[0]};\n    return {{{', '.join(['ok', *rows[1:]])}}};\n  }}",
        f"{head} OpColumn op_column(const Params& p, const LTile& l, const NTile& t, int n) {{\n"
        f"    const bool ok = {columns[0]};\n    return {{{', '.join(['ok', *columns[1:]])}}};\n  }}",
        f"{head} OpElement op_element(const Params& p, const OpRow& r, const OpColumn& c) {{\n"
        f"    return {{{', '.join(elements)}}};\n  }}",
        f"{head} {acc} op(const OpRow& r, const OpColumn& c, const OpElement& e, {acc} d) {{\n"
        f"    return gett::convert<{acc}>(EpilogueOp::apply({', '.join(arguments)}));\n  }}",
    ]


def _offset_type(plan: GemmPlan, tensor: int) -> str:
    """What holds the distance of two elements of a tensor: registers are scarce beside the accumulators."""
    return "int" if reach(plan, tensor) < 2**31 else "long long"


def output_op(contraction: Contraction) -> list[str]:
    """The member of `Index` that applies the function to element `o` of a tile of D's modes."""
    if contraction.epilogue is None:
        return []
    types = contraction.value_types
    arguments = [f"gett::convert<{_cpp(types[0])}>(d)"]
    for name, kind in zip(extra_tensors(contraction), types[1:], strict=False):
        arguments.append(f"gett::convert<{_cpp(kind)}>(gett::load_extra(p.{name}, t.{name} + o_{name}(p, t, o), true))")
    return [
        "  static GETT_DEVICE Traits::Acc op(const Params& p, const OTile& t, int o, Traits::Acc d) {\n"
        f"    return gett::convert<Traits::Acc>(EpilogueOp::apply({', '.join(arguments)}));\n  }}"
    ]


def _cpp(dtype: str) -> str:
    return "bool" if dtype == TRUTH else cpp_type(dtype)
