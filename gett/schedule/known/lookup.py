"""The known schedule of a plan: the fastest of those that were timed for it on a GPU.

Owns the files of known schedules, one a GPU, beside this module. `python -m benchmarks known` writes them from stored
times, and leaves out where the cost model's choice is as good. An entry counts only if it is legal for the plan and the
GPU at hand. Knows no search.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from gett.codec import Stale, decode
from gett.hw.archs import ArchFacts
from gett.hw.device import own_record
from gett.ir.gemm import GemmPlan
from gett.schedule.legality import can_implement
from gett.schedule.spec.schedule import Forecast, Schedule

FOLDER = Path(__file__).parent
BOUND = "as measured"  # what limits a kernel whose time was measured


def known_schedule(plan: GemmPlan, facts: ArchFacts) -> Schedule | None:
    """The fastest schedule that was timed for a plan on a GPU, its time as the forecast; None where there is none."""
    record = own_record(facts)
    if record is None:
        return None
    found = known_of(record.name).get(key_of(plan))
    if found is None:
        return None
    us, text = found
    try:
        schedule = decode(Schedule, json.loads(text))
    except Stale:  # of a version that had other records
        return None
    if schedule.workspace_bytes > facts.workspace_limit or can_implement(schedule, plan, facts) is not None:
        return None
    return replace(schedule, forecast=Forecast(us, BOUND, f"the fastest of those timed on an {record.name}"))


@lru_cache(maxsize=1024)
def key_of(plan: GemmPlan) -> str:
    """What a plan is known by: all that schedules depend on."""
    return hashlib.sha256(plan.signature.encode()).hexdigest()[:16]


@cache
def known_of(device: str) -> Mapping[str, tuple[float, str]]:
    """(microseconds, schedule as JSON) of what is known of a GPU, by key; empty where there is no file."""
    path = path_of(device)
    if not path.exists():
        return {}
    found: dict[str, tuple[float, str]] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def path_of(device: str) -> Path:
    """The file of a GPU, by its product name."""
    return FOLDER / (re.sub(r"\W+", "-", device.lower()) + ".json.gz")
