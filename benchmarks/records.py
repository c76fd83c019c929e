"""What a run leaves behind: measurements, rows, runs, and their JSON. Knows neither libraries nor devices."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gett.measure.timer import Measurement

SCHEMA = 1


@dataclass(slots=True)
class Row:
    """One case: what it is, how fast each rival was, whether gett's result was right.

    Attributes:
        roofline_us: `max(bytes / copy bandwidth, flops / GEMM peak)` with both measured in the same run.
        times: Measurement per rival.
        check: `"right"`, `"WRONG"` or `"unchecked"`.
        check_detail: Largest error as a share of its bound and how many elements differ on integers, or why unchecked.
        plan: What gett planned, as far as it says (schedule, workspace).
        group: The collection or the field that the case belongs to.
    """

    case: str
    einsum: str
    extents: dict[str, int]
    bmnk: tuple[int, int, int, int]
    flops: int
    bytes: int
    roofline_us: float
    times: dict[str, Measurement] = field(default_factory=dict)
    check: str = "unchecked"
    check_detail: str = ""
    plan: dict[str, Any] = field(default_factory=dict)
    group: str = ""

    def us(self, rival: str) -> float | None:
        """Median time of a rival in microseconds, None where it was not run or failed."""
        return self.times[rival].median_us if rival in self.times else None

    def best(self, prefix: str) -> tuple[str, float] | None:
        """The fastest rival whose name starts with `prefix`, and its time in microseconds."""
        found = [(name, m.median_us) for name, m in self.times.items() if name.startswith(prefix)]
        return min(((n, t) for n, t in found if t is not None), key=lambda p: p[1], default=None)


@dataclass(slots=True)
class Run:
    """All rows of one dtype and precision, on one device.

    Attributes:
        kind: `"gpu"` or `"cpu"`.
        bandwidth: Copy bandwidth in bytes/s, reads and writes counted.
        peak: FLOP/s of a large matrix product of this type.
    """

    kind: str
    dtype: str
    precision: str | None
    device: str
    bandwidth: float
    peak: float
    scale: float = 1.0
    seconds: float = 0.0
    environment: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        """Cases on which gett was wrong or did not run."""
        return [r.case for r in self.rows if r.check == "WRONG" or r.us("gett") is None]

    @property
    def unverified(self) -> list[str]:
        """Cases whose result could not be compared with a reference, though it was asked for."""
        return [r.case for r in self.rows if r.check == "unchecked" and r.check_detail]


def to_json(runs: list[Run]) -> str:
    """The runs as JSON text, lossless."""
    return json.dumps({"schema": SCHEMA, "runs": [asdict(r) for r in runs]}, indent=1)


def from_json(text: str) -> list[Run]:
    """The runs of a JSON text.

    Raises:
        ValueError: The text was written by another schema.
    """
    data = json.loads(text)
    if data.get("schema") != SCHEMA:
        raise ValueError(f"this file has schema {data.get('schema')}; this version reads schema {SCHEMA}")
    return [_run(r) for r in data["runs"]]


def write_json(runs: list[Run], path: str | Path) -> None:
    """Write the runs to a file, whole or not at all."""
    write_text(to_json(runs) + "\n", path)


def write_text(text: str, path: str | Path) -> None:
    """Write a file, whole or not at all: where writing breaks off, what was there before stays."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def _run(record: dict[str, Any]) -> Run:
    rows = [_row(r) for r in record.pop("rows")]
    return Run(**record, rows=rows)


def _row(record: dict[str, Any]) -> Row:
    times = {name: Measurement(**m) for name, m in record.pop("times").items()}
    b, m, n, k = record.pop("bmnk")
    return Row(**record, bmnk=(b, m, n, k), times=times)
