"""A distributed contraction that its test kills: python killed_run.py FOLDER; it sums a slice in 0.1 s."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from problems import operands, plan

import gett
from gett.slices.recipe import Worker

summed = Worker.sum


def slowly(self, node, each=lambda: None):
    """The sum, later."""
    time.sleep(0.1)
    return summed(self, node, each)


Worker.sum = slowly  # type: ignore[method-assign]
arrays = operands()
with ThreadPoolExecutor(2) as pool:
    gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64, resume=sys.argv[1])
