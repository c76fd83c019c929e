"""Other libraries' own tests pass where gett does their contractions; each of these is compared with NumPy's."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from tests.third_party import checked
from tests.third_party.suites import Suite, run_suite

SUITES = (
    *(Suite("opt_einsum", ("test_contract.py",), 1700, (), part, 4) for part in range(4)),
    Suite(
        "opt_einsum",
        ("test_backends.py", "test_blas.py", "test_edge_cases.py", "test_input.py", "test_sharing.py"),
        60,  # a third more where PyTorch is installed
    ),
    Suite("cotengra", ("test_backends.py", "test_compute.py", "test_interface.py", "test_tree.py"), 900),
    Suite("quimb", ("test_tensor/test_tensor_core.py",), 300),
    Suite("quimb", ("test_tensor/test_optimizers.py",), 8, ("-k", "not basin")),
    Suite("quimb", ("test_tensor/test_contract.py", "test_tensor/test_gating.py", "test_tensor/test_fitting.py"), 80),
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("third_party")


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES, ids=repr)
def test_their_tests_pass(suite: Suite, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_suite(suite, folder)
    with capsys.disabled():
        print(f"\n{suite}: {found['tests']}, {found['calls']}")
    assert not found["failed"], found["text"]
    assert found["tests"]["passed by contractions"] >= suite.least
    assert found["calls"]["compared"] >= 0.99 * found["calls"]["contractions"]


@pytest.mark.parametrize("change", ["value", "dtype", "shape"])
def test_a_wrong_contraction_is_seen(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = checked.gett.einsum

    @functools.wraps(real)
    def wrong(*args: object) -> np.ndarray:
        result = real(*args)
        return {"value": result * (1 + 1e-14), "dtype": result.astype("f4"), "shape": result[None]}[change]

    a, b = np.random.default_rng(1).standard_normal((2, 3, 3))
    checked.checked("einsum")("ij,jk->ik", a, b)
    checked.checked("einsum")(a, [0, 1], b, [1, 2])
    monkeypatch.setattr(checked.gett, "einsum", wrong)
    with pytest.raises(AssertionError, match="einsum: "):
        checked.checked("einsum")("\u03b1\u03b2,\u03b2\u03b3->\u03b1\u03b3", a, b)
