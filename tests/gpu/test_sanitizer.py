"""The sanitizer's set: right by itself, and without a finding under the tools where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("sanitize.py")


def run(*prefix: str, tool: str = "") -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, str(SCRIPT), tool]
    return subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False, timeout=300)


def test_the_set_is_right() -> None:
    done = run()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    right = [line for line in done.stdout.splitlines() if line.startswith("right")]
    for kind in ("mma.sync", "simt", "stream map", "stream sum"):
        assert any(f": {kind} " in line for line in right), kind


if shutil.which("compute-sanitizer"):  # part of the CUDA toolkit, which running kernels does not need

    @pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
    def test_no_finding(tool: str) -> None:
        done = run("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", tool=tool)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert "0 errors" in done.stdout or "0 hazards" in done.stdout
