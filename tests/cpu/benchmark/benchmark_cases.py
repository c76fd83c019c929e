"""What the tests of the benchmarks share: the cases, two element types, an engine and a run that were made up."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.cases import ELEMENT_TYPES, load_cases
from benchmarks.records import Measurement, Row, Run
from benchmarks.rivals.table import ON_GPU

FP16, FP32 = ELEMENT_TYPES["float16"], ELEMENT_TYPES["float32"]
CASES = load_cases()


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command line says of options that it refuses, with 2 for its exit status."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert caught.value.code == 2
    return capsys.readouterr().err


def standin(subscripts, a, b, *, out=None, order="K"):
    """Any engine that is called like `numpy.einsum`."""
    return np.einsum(subscripts, a, b, out=out, order=order)


def gpu_run(check: str = "right") -> Run:
    run = Run("gpu", "float16", None, "a GPU", 4e12, 8e14, environment={"date": "2026-01-01", "commit": "abc"})
    for i, case in enumerate(CASES):
        row = Row(case.name, case.einsum, dict(case.extents), case.bmnk, case.flops(FP16), case.bytes(FP16), 50.0)
        row.times = {name: Measurement(100.0 * 2 ** (j % 4), 90.0, 1.0, 9) for j, name in enumerate(ON_GPU)}
        row.times["cutensor:TGETT"] = Measurement(error="CuTensorError: not supported")
        row.times["gett"] = Measurement(50.0 + 50.0 * (i == 3), 40.0, 1.0, 9)
        row.check = check if i == 3 else "right"
        run.rows.append(row)
    return run
