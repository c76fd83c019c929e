"""Operands of several dtypes in one contraction, beside the same call after a conversion by hand, and beside others.

Owns the cases, what each is compared with, and the checks. All tensors are PyTorch's, which has bfloat16.
The file also runs by itself: `python -m benchmarks.conversions --json FILE`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gett
from benchmarks import environment
from benchmarks.records import write_text
from benchmarks.timing import GpuTimer, measure_cpu
from gett.measure.timer import sets_to_rotate
from gett.measure.verify import make_tolerance

L2_BYTES = 50 << 20  # of an H200; operands of several sets are more than that
EXTENT_ON_CPU = 24
BUDGET_US = 60_000.0
_SHORT = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class ConversionCase:
    """A contraction whose operands, or whose operands and result, differ in dtype.

    Attributes:
        name: What it is.
        subscripts: Explicit, a character a mode.
        extent: Of every mode that `extents` lacks.
        dtypes: Of the operands.
        result: Of the result.
        extents: Of single modes.
        base: Name of the case that it is compared with, as well as with converting by hand.
        views: For each operand how it lies in memory: "" is in C order, "T" turned, "half" every second along the last
            axis, "wide" one row for all.
    """

    name: str
    subscripts: str
    extent: int
    dtypes: tuple[str, ...]
    result: str
    extents: tuple[tuple[str, int], ...] = ()
    base: str = ""
    views: tuple[str, ...] = ("", "")

    def shapes(self, on_gpu: bool) -> list[tuple[int, ...]]:
        """Of the operands."""
        sizes = {m: self.size(m, on_gpu) for m in self.subscripts}
        return [tuple(sizes[m] for m in term) for term in self.subscripts.split("->")[0].split(",")]

    def size(self, mode: str, on_gpu: bool) -> int:
        """Extent of a mode."""
        return dict(self.extents).get(mode, self.extent) if on_gpu else EXTENT_ON_CPU

    def length(self, on_gpu: bool) -> int:
        """Products in a sum."""
        inputs, output = self.subscripts.split("->")
        return math.prod(self.size(m, on_gpu) for m in {*inputs} - {",", *output})


MM = "ik,kj->ij"


def _products(real: str, cplx: str) -> list[ConversionCase]:
    kinds = [(real, real), (real, cplx), (cplx, real), (cplx, cplx)]
    base = f"{real} x {real}"
    made = [
        ConversionCase(f"{a} x {b}", MM, 2048, (a, b), real if a == b == real else cplx, base="" if a == b else base)
        for a, b in kinds
    ]
    turned = [(MM, ("T", "")), (MM, ("", "T")), ("ik,kj->ji", ("", ""))]
    for spec, views in turned:
        name = f"{real} x {cplx}, {spec[5:] if spec != MM else ' '.join(v or '-' for v in views)}"
        made.append(ConversionCase(name, spec, 2048, (real, cplx), cplx, base=base, views=views))
    return made


CASES = (
    *(ConversionCase(f"{t} to {t}", MM, 4096, (t, t), t) for t in _SHORT),
    *(ConversionCase(f"{t} to float32", MM, 4096, (t, t), "float32", base=f"{t} to {t}") for t in _SHORT),
    ConversionCase("bfloat16 to float32, batched", "bik,bkj->bij", 1024, ("bfloat16",) * 2, "float32", (("b", 16),)),
    ConversionCase("bfloat16 to float32, thin", MM, 4096, ("bfloat16",) * 2, "float32", (("i", 64),)),
    ConversionCase("bfloat16 to float32, by vector", "ik,k->i", 8192, ("bfloat16",) * 2, "float32"),
    ConversionCase(
        "bfloat16 to float32, three", "ik,kl,lj->ij", 2048, ("bfloat16",) * 3, "float32", views=("", "", "")
    ),
    *_products("float32", "complex64"),
    *_products("float64", "complex128"),
    ConversionCase("real x complex, thin", MM, 4096, ("float32", "complex64"), "complex64", (("i", 32),)),
    ConversionCase("real x complex, by vector", "ik,k->i", 8192, ("float32", "complex64"), "complex64"),
    ConversionCase("real x complex, elements", "ij,ij->ij", 8192, ("float32", "complex64"), "complex64"),
    ConversionCase("float16 x float32", MM, 2048, ("float16", "float32"), "float32"),
    ConversionCase("float16 x bfloat16", MM, 2048, ("float16", "bfloat16"), "float32"),
    ConversionCase("int8 x float32", MM, 2048, ("int8", "float32"), "float32"),
    ConversionCase("bool x float32", MM, 2048, ("bool", "float32"), "float32"),
    ConversionCase("bool x float32, one for all", "bik,bkj->bij", 512, ("bool", "float32"), "float32",
                   (("b", 64),), views=("wide", "")),
    ConversionCase("int8 x bfloat16 to float32", MM, 2048, ("int8", "bfloat16"), "float32"),
    ConversionCase("float32 x float64", MM, 2048, ("float32", "float64"), "float64"),
    ConversionCase("int32 x float32", MM, 2048, ("int32", "float32"), "float64"),
    ConversionCase("int8 x int32", MM, 1024, ("int8", "int32"), "int32"),
    ConversionCase("bfloat16 x complex64", MM, 2048, ("bfloat16", "complex64"), "complex64"),
    ConversionCase("float32 x complex128", MM, 2048, ("float32", "complex128"), "complex128"),
    ConversionCase("float16 x float32, turned", MM, 2048, ("float16", "float32"), "float32", views=("T", "T")),
    ConversionCase("float16 x float32, half", MM, 2048, ("float16", "float32"), "float32", views=("half", "")),
    ConversionCase("float16 x float32, by vector", "ik,k->i", 8192, ("float16", "float32"), "float32"),
    ConversionCase("float16 x float32, elements", "ij,ij->ij", 8192, ("float16", "float32"), "float32"),
    ConversionCase("float16 x float32, 64 x 64", MM, 64, ("float16", "float32"), "float32"),
)  # fmt: skip


def operand(torch: Any, shape: tuple[int, ...], dtype: str, view: str, device: str) -> Any:
    """A tensor without values, laid out as asked for."""
    kind = getattr(torch, dtype)
    if view == "T":
        return torch.empty(shape[::-1], dtype=kind, device=device).permute(*range(len(shape))[::-1])
    if view == "half":
        return torch.empty((*shape[:-1], 2 * shape[-1]), dtype=kind, device=device)[..., ::2]
    if view == "wide":
        return torch.empty((1, *shape[1:]), dtype=kind, device=device).expand(shape)
    return torch.empty(shape, dtype=kind, device=device)


def fill(torch: Any, x: Any, *, integers: bool) -> None:
    """Small integers, or normal numbers where the dtype has such."""
    memory = x[:1] if x.stride() and x.stride()[0] == 0 else x
    if x.dtype.is_complex:
        for part in torch.view_as_real(memory).unbind(-1):
            fill(torch, part, integers=integers)
    elif x.dtype.is_floating_point and not integers:
        memory.normal_()
    else:
        memory.copy_(torch.randint(0, 2, memory.shape, device=x.device) if x.dtype == torch.bool
                     else torch.randint(-2, 3, memory.shape, device=x.device))  # fmt: skip


def reference_of(torch: Any, case: ConversionCase, operands: Sequence[Any]) -> Any:
    """The contraction in double precision."""
    wide = torch.complex128 if any(x.dtype.is_complex for x in operands) else torch.float64
    return torch.einsum(case.subscripts, *(x.to(wide) for x in operands))


def off_by(torch: Any, case: ConversionCase, operands: Sequence[Any], found: Any, on_gpu: bool) -> float:
    """The largest error as a share of its bound."""
    reference = reference_of(torch, case, operands)
    size = reference_of(torch, case, [x if x.dtype == torch.bool else x.abs() for x in operands])
    own = make_tolerance([case.length(on_gpu)], case.result)
    product = own.product
    if any(t in _SHORT for t in case.dtypes):  # sums of tensor cores
        product = max(product, make_tolerance([case.length(on_gpu)], "float16").product)
    if len(operands) > 2:  # and an intermediate of 16 bits, which is rounded
        product += own.output * len(operands)
    allowed = own.output * reference.abs() + product * size + own.tiny
    return float(((found.to(reference.dtype) - reference).abs() / allowed).max())


def differing(torch: Any, case: ConversionCase, operands: Sequence[Any], found: Any) -> int:
    """How many elements of a result of small integers are not exact, but for the rounding of the result."""
    return int((reference_of(torch, case, operands).to(found.dtype) != found).sum())


def run_case(torch: Any, case: ConversionCase, on_gpu: bool) -> dict[str, Any]:
    """Times of a call, of the same after a conversion by hand, and of PyTorch's where it has it; the checks."""
    device = "cuda" if on_gpu else "cpu"
    torch.manual_seed(0)
    shapes, result = case.shapes(on_gpu), getattr(torch, case.result)
    views = [*case.views, *[""] * len(shapes)]

    def one() -> tuple[Any, ...]:
        made = [operand(torch, s, t, v, device) for s, t, v in zip(shapes, case.dtypes, views, strict=False)]
        for x in made:
            fill(torch, x, integers=False)
        target = [case.size(m, on_gpu) for m in case.subscripts.split("->")[1]]
        return (*made, torch.empty(target, dtype=result, device=device))

    nbytes = sum(math.prod(s) for s in shapes) * result.itemsize
    sets = [one() for _ in range(sets_to_rotate(nbytes, L2_BYTES, most=8) if on_gpu else 1)]

    def call(i: int) -> object:
        *factors, out = sets[i]
        return gett.einsum(case.subscripts, *factors, out=out)

    def by_hand(i: int) -> object:
        *factors, out = sets[i]
        return gett.einsum(case.subscripts, *(x.to(result) for x in factors), out=out)

    calls: dict[str, Callable[[int], object]] = {"gett": call}
    if {*case.dtypes} != {case.result}:
        calls["by hand"] = by_hand
    if case.subscripts == MM and {*case.dtypes} <= {*_SHORT} and len({*case.dtypes}) == 1 and on_gpu:
        if case.result == "float32":
            calls["torch"] = lambda i: torch.mm(sets[i][0], sets[i][1], out_dtype=torch.float32)
        else:
            calls["torch"] = lambda i: torch.mm(sets[i][0], sets[i][1])
    row: dict[str, Any] = {"name": case.name, "dtypes": list(case.dtypes), "result": case.result, "base": case.base}
    try:
        call(0)
    except Exception as error:  # what a tree lacks must not end the run
        return row | {"us": {}, "off_by": math.inf, "differing": -1, "error": f"{type(error).__name__}: {error}"[:300]}
    inexact = result.is_floating_point or result.is_complex
    row["off_by"] = off_by(torch, case, sets[0][:-1], sets[0][-1], on_gpu) if inexact else 0.0
    if on_gpu:
        timer = GpuTimer(len(sets), budget_us=BUDGET_US)
        times = {name: timer.measure(f) for name, f in calls.items()}
        plan = gett.plan(case.subscripts, *sets[0][:-1], out=sets[0][-1])
        row["schedules"] = [str(s.schedule.kind) for s in plan.steps if s.schedule is not None]
    else:
        times = measure_cpu({name: (lambda f=f: f(0)) for name, f in calls.items()}, rounds=2)  # type: ignore[misc]
    row["us"] = {name: m.median_us for name, m in times.items()}
    row["errors"] = {name: m.error for name, m in times.items() if m.error}
    for x in sets[0][:-1]:
        fill(torch, x, integers=True)
    sets[0][-1].fill_(1)
    call(0)
    row["differing"] = differing(torch, case, sets[0][:-1], sets[0][-1])
    return row


def right(row: dict[str, Any]) -> bool:
    """Whether the results were right, of integers and of normal numbers, and gett was timed."""
    return row["off_by"] <= 1 and row["differing"] == 0 and row["us"].get("gett") is not None


def table(rows: list[dict[str, Any]], where: str) -> str:
    """The figures as text."""
    lines = [f"operands of several dtypes, us ({where}); ratios are of gett's time to the one named"]
    head = f"{'gett':>9} {'by hand':>9} {'torch':>9} {'/by hand':>8} {'/torch':>7} {'/base':>6}"
    lines.append(f"  {'':<34} {head}")
    base = {row["name"]: row["us"].get("gett") for row in rows}
    for row in rows:
        us = row["us"]
        if not us:
            lines.append(f"  {row['name']:<34} {row['error']}"[:110])
            continue

        def ratio(x: float | None, width: int, own: float | None = us.get("gett")) -> str:
            return f"{own / x:{width}.2f}" if own and x else " " * width

        figures = " ".join(f"{us[n]:9.1f}" if us.get(n) else " " * 9 for n in ("gett", "by hand", "torch"))
        ratios = f"{ratio(us.get('by hand'), 8)} {ratio(us.get('torch'), 7)} {ratio(base.get(row['base']), 6)}"
        lines.append(f"  {row['name']:<34} {figures} {ratios}" + ("" if right(row) else "  WRONG"))
    lines.append("  /base: 16 bits to float32 beside 16 bits to 16; real x complex beside real x real (2 is twice it)")
    return "\n".join(lines)


def main(*, on_gpu: bool, json_path: str | None = None) -> int:
    """Measure, print, and write JSON where asked; 1 when a result is wrong or missing, 2 without PyTorch."""
    try:
        import torch
    except ImportError:
        print("benchmarks conversions needs PyTorch, which has all the dtypes", file=sys.stderr)
        return 2
    if on_gpu:
        import cupy  # noqa: F401 - gett runs kernels through it
    rows = []
    for case in CASES:
        rows.append(run_case(torch, case, on_gpu))
        if on_gpu:
            torch.cuda.empty_cache()
        if json_path:  # after each case: a run that is cut short keeps what it has
            figures = {"environment": environment.describe() | {"clocks": environment.clocks()}, "cases": rows}
            write_text(json.dumps(figures, indent=1) + "\n", json_path)
    print(table(rows, "PyTorch tensors on a GPU" if on_gpu else "PyTorch tensors on the CPU, small"))
    return 0 if all(map(right, rows)) else 1


if __name__ == "__main__":
    command = argparse.ArgumentParser(prog="python -m benchmarks.conversions")
    command.add_argument("--json", metavar="FILE", help="write every figure there")
    command.add_argument("--cpu", action="store_true", help="run on the CPU even where there is a GPU")
    given = command.parse_args()
    sys.exit(main(on_gpu=not given.cpu and environment.gpu_available(), json_path=given.json))
