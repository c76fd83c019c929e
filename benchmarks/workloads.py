"""The contractions of public programs: which there are, and the choice by field, dtype and name.

Owns the data file with its sources. Knows no rival and no device.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import ELEMENT_TYPES, Case, choose
from gett.ir.tensors import PRECISIONS

DATA = Path(__file__).parent / "data" / "workloads.json"
FIELDS = {"ml": "machine learning", "chem": "quantum chemistry", "tn": "tensor networks"}
MOST_BYTES = 12e9  # of A, B and D in the widest dtype of a case that is not large
ON_CPU = ("float32", "float64", "complex64", "complex128")  # of which NumPy has matrix products


@dataclass(frozen=True, slots=True)
class Workload:
    """A contraction and where it is from.

    Attributes:
        case: The contraction; its group is the field.
        source: A public program or a paper.
        dtypes: What its users compute in, the most usual first.
        large: Whether it is run only when asked for.
    """

    case: Case
    source: str
    dtypes: tuple[str, ...]
    large: bool = False

    @property
    def field(self) -> str:
        """A key of `FIELDS`."""
        return self.case.group


def load_workloads(path: Path = DATA) -> tuple[Workload, ...]:
    """The workloads of a file, in its order.

    Args:
        path: JSON with a list `cases` of `{name, field, einsum, extents, dtypes, source}`; in place of `extents`,
            `each` is the extent of every mode. `large` may follow.
    """
    return tuple(_workload(record) for record in json.loads(path.read_text(encoding="utf-8"))["cases"])


def _workload(record: dict[str, object]) -> Workload:
    einsum = str(record["einsum"])
    labels = sorted(set(einsum) - set(",->"))
    extents = record.get("extents") or dict.fromkeys(labels, record["each"])
    assert isinstance(extents, dict)
    case = Case(str(record["name"]), einsum, tuple((x, int(extents[x])) for x in labels), str(record["field"]))
    dtypes = record["dtypes"]
    assert isinstance(dtypes, list)
    return Workload(case, str(record["source"]), tuple(dtypes), bool(record.get("large", False)))


def choose_workloads(
    workloads: Sequence[Workload],
    fields: Sequence[str] = (),
    names: Sequence[str] = (),
    *,
    large: bool = False,
) -> tuple[Workload, ...]:
    """The workloads of some fields, or of some names.

    Args:
        workloads: All of them.
        fields: Keys of `FIELDS`; empty keeps all.
        names: Keep only these, large ones too; empty keeps all.
        large: Whether large ones are kept without being named.

    Raises:
        ValueError: A field or a name is unknown, or nothing is left.
    """
    for field in fields:
        if field not in FIELDS:
            raise ValueError(f"unknown field {field!r}; choose from {', '.join(FIELDS)}")
    choose(tuple(w.case for w in workloads), names)
    found = tuple(
        w
        for w in workloads
        if (not fields or w.field in fields) and (w.case.name in names if names else large or not w.large)
    )
    if not found:
        raise ValueError(f"no case named {' or '.join(names)} belongs to {' or '.join(fields)}")
    return found


def by_dtype(
    workloads: Sequence[Workload], dtypes: Sequence[str] = (), *, on_gpu: bool, precision: str | None = None
) -> dict[str, tuple[Case, ...]]:
    """The cases of each dtype.

    Args:
        workloads: What is to be run.
        dtypes: Keep only these; empty keeps all of each case on a GPU, and the first that NumPy multiplies without one.
        on_gpu: Whether there is a GPU.
        precision: A key of `PRECISIONS`; dtypes that do not have it are left out.

    Raises:
        ValueError: No workload has a dtype that is asked for, or none has the precision.
    """

    def kept(workload: Workload) -> Sequence[str]:
        if on_gpu or dtypes:
            return workload.dtypes
        return [t for t in workload.dtypes if t in ON_CPU][:1]

    having = (PRECISIONS[precision] if precision else None) or tuple(ELEMENT_TYPES)
    cases = {t: tuple(w.case for w in workloads if t in kept(w)) for t in dtypes or having}
    known = ", ".join(t for t in ELEMENT_TYPES if any(t in w.dtypes for w in workloads))
    for dtype, found in cases.items():
        if dtypes and not found:
            raise ValueError(f"none of the cases is in {dtype}; they are in {known}")
        if dtype not in having:
            raise ValueError(f"{dtype} has no precision {precision!r}; it applies to {', '.join(having)}")
    if not any(cases.values()):
        raise ValueError(f"precision {precision!r} applies to {', '.join(having)}; the cases are in {known}")
    return {t: found for t, found in cases.items() if found}
