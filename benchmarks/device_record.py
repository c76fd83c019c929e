"""From figures of a calibration to the record of a device, and to the Python file that holds it.

Figures go by the path of a field, e.g. `"tma.row_clocks"`. With figures of a reference device, whose record was fitted,
a field becomes the fitted value times the ratio of the two figures; without, it becomes the figure. Fields without a
figure stay as they are. Numbers of main loops have no figure: `benchmarks.refit` fits them. Owns the form of the file.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.records import write_text
from gett.hw import measured
from gett.hw.device import DeviceModel
from layouts.rates import RunRates

Value = float | Sequence[float]


def field_at(record: Any, path: str) -> Any:
    """The value of a field."""
    for name in path.split("."):
        record = getattr(record, name)
    return record


def with_field(record: Any, path: str, value: Any) -> Any:
    """The record with another value in one field."""
    name, _, rest = path.partition(".")
    return replace(record, **{name: with_field(getattr(record, name), rest, value) if rest else value})


def taken(figures: Mapping[str, Value], reference: Mapping[str, Value] | None) -> list[str]:
    """The fields that get a figure: with a reference those that it has as well."""
    return [path for path in figures if reference is None or path in reference]


def calibrated(base: DeviceModel, figures: Mapping[str, Value], reference: Mapping[str, Value] | None) -> DeviceModel:
    """The record of a device.

    Args:
        base: Where fields without a figure come from: the nearest device's, rescaled; with a reference the reference's.
        figures: Measured on the device.
        reference: Measured by the same means on the device that `base` was fitted on, None where there is none.
    """
    made = base
    for path in taken(figures, reference):
        figure = figures[path]
        if reference is not None:
            figure = _product(field_at(base, path), figure, reference[path])
        made = with_field(made, path, _rounded(figure))
    return replace(made, memory=_bounded(made.memory))


def _bounded(rates: RunRates) -> RunRates:
    """No run is faster than longer ones, nor than a copy: short runs do not scale with memory as long ones do."""
    found = {}
    for name in ("load_tbps", "store_tbps", "bulk_load_tbps", "bulk_store_tbps"):
        most, bounded = rates.copy_tbps, []
        for rate in reversed(getattr(rates, name)):
            most = min(most, rate)
            bounded.append(most)
        found[name] = tuple(reversed(bounded))
    return replace(rates, **found)


def _product(old: Any, figure: Value, reference: Value) -> Value:
    if isinstance(old, tuple):
        assert isinstance(figure, Sequence)
        assert isinstance(reference, Sequence)
        return tuple(o * f / r for o, f, r in zip(old, figure, reference, strict=True))
    assert not isinstance(figure, Sequence)
    assert not isinstance(reference, Sequence)
    return float(old * figure / reference)


def _rounded(value: Value) -> Any:
    """Three digits: measurements have no more."""
    return tuple(float(f"{x:.3g}") for x in value) if isinstance(value, Sequence) else float(f"{value:.3g}")


def source_text(record: DeviceModel, remarks: Sequence[str]) -> str:
    """The Python file of a record.

    Args:
        record: The device.
        remarks: Lines of the docstring: date, commit, clocks, what was measured.
    """
    names: dict[str, set[str]] = {}
    lines = _lines(record, names)
    imports = ""
    for module in sorted(names):
        listed = "".join(f"    {name},\n" for name in sorted(names[module], key=str.casefold))
        imports += f"from {module} import (\n{listed})\n"
    doc = "\n".join([f'"""{record.name} as it was measured.', "", *remarks, '"""'])
    return f"{doc}\n\n{imports}\nMODEL = {lines}\n"


def _lines(value: Any, names: dict[str, set[str]], indent: int = 0) -> str:
    """The value in Python; the names of its records by their modules go to `names`."""
    if not is_dataclass(value):
        text = _spelled(value)
        if len(text) > 80:  # a long tuple, in lines of its own
            inner = " " * (indent + 4)
            wrapped = textwrap.fill(text[1:-1], 120 - len(inner) - 1).replace("\n", f"\n{inner}")
            return f"(\n{inner}{wrapped},\n{' ' * indent})"
        return text
    kind = type(value)
    names.setdefault(kind.__module__, set()).add(kind.__name__)
    inner = " " * (indent + 4)
    body = "".join(f"{inner}{f.name}={_lines(getattr(value, f.name), names, indent + 4)},\n" for f in fields(value))
    return f"{kind.__name__}(\n{body}{' ' * indent})"


def _spelled(value: Any) -> str:
    return '"' + value.replace('"', r"\"") + '"' if isinstance(value, str) else repr(value)


def file_name(device: str) -> str:
    """The module of a device: `"NVIDIA H100 80GB HBM3"` is `"h100_80gb_hbm3.py"`."""
    words = re.findall(r"[a-z0-9]+", device.lower())
    return "_".join(w for w in words if w != "nvidia") + ".py"


def write_record(record: DeviceModel, remarks: Sequence[str], path: str | Path | None = None) -> Path:
    """Write a record's file through a temporary one; a text that does not give the record back is never left there.

    Args:
        record: The device.
        remarks: As in `source_text`.
        path: The file; by default that of the device in `gett.hw.measured`.

    Raises:
        OSError: The file cannot be written.
    """
    target = Path(path) if path is not None else Path(measured.__path__[0]) / file_name(record.name)
    text = source_text(record, remarks)
    scope: dict[str, Any] = {}
    exec(compile(text, str(target), "exec"), scope)
    assert scope["MODEL"] == record
    write_text(text, target)
    return target
