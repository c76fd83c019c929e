"""Every kernel of the sanitizer's set, compiled as those are that would spill otherwise: the same results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_RUN = """
import runpy, sys
import gett.jit.compile as compiler
compiler.OPTIONS += (getattr(compiler, sys.argv[2]),)
compiler.compile_uncached.__kwdefaults__["options"] = compiler.OPTIONS
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("macro", ["KEEP_PACKED", "SPARING"])
def test_such_kernels_are_right(macro: str) -> None:
    script = Path(__file__).with_name("sanitize.py")
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(script), macro], capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " 0 wrong, 0 did not compile" in done.stdout
