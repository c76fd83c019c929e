"""`python -m benchmarks known`: the known schedules that the package ships, written from stored times; no GPU.

For each contraction of a file of times the fastest schedule is kept, but where the cost model's choice was timed and
takes no longer, up to noise: that the model chooses by itself. A choice that was not timed is a forecast, and a time is
worth more. To be run after each `refit`, and where times are added or kernels change.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.regret import STORED, facts_of
from benchmarks.schedule_times import Problem, read
from gett.codec import decode, encode
from gett.schedule.known.lookup import key_of, path_of
from gett.schedule.legality import can_implement
from gett.schedule.search.select import searched
from gett.schedule.spec.schedule import Forecast, Schedule

WORSE = 1.02
"""The best time of several is by so much too good where times scatter by one or two percent."""


def known(path: Path) -> tuple[str, dict[str, tuple[float, str]]]:
    """The GPU of a file of times, and (microseconds, schedule as JSON) of what is worth knowing, by the plan's key."""
    stored = read(path)
    device, facts, found = str(stored["device"]), facts_of(stored["device"]), {}
    for case in stored["cases"]:
        timed = {decode(Schedule, x["schedule"]): (x["us"], x["schedule"]) for x in case["schedules"]}
        if len(timed) < 2:
            continue
        plan = Problem.of(case).gemm(facts.arch)
        chosen = timed.get(searched(plan, facts, every=False, first=True)[0])
        legal = [x for s, x in timed.items() if can_implement(s, plan, facts) is None]
        if not legal:
            continue
        us, best = min(legal, key=lambda x: x[0])
        if chosen is None or chosen[0] > WORSE * us:
            found[key_of(plan)] = us, json.dumps(bare(best), separators=(",", ":"))
    return device, found


def bare(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """An encoded schedule without its forecast, which the time replaces."""
    return {**schedule, "forecast": encode(Forecast())}


def main(paths: Sequence[Path] = STORED) -> int:
    """Write the file of each GPU."""
    for path in paths:
        device, found = known(path)
        data = json.dumps(dict(sorted(found.items())), separators=(",", ":")).encode()
        target = path_of(device)
        target.write_bytes(gzip.compress(data, 9, mtime=0))
        print(f"{device}: {len(found)} known schedules, {target.stat().st_size / 1024:.0f} KiB in {target.name}")
    return 0
