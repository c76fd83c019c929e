"""A plugin of pytest: another library's tests with gett in the place of what the library contracts by.

`python -m pytest -p tests.third_party.with_gett --with-gett cotengra --record counts.json FILES` runs them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.third_party.checked import COUNTS, checked

OUTCOMES: Counter[str] = Counter()
FAILED: list[str] = []
CONTRACTING: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--with-gett", choices=sorted(PLACES), help="the library that contracts by gett")
    parser.addoption("--record", type=Path, help="where counts are written")
    parser.addoption("--dealt", type=int, nargs=2, default=(0, 1), help="which share of how many runs")


def _opt_einsum() -> None:
    """Its functions of NumPy, PyTorch and CuPy; those of objects are its own."""
    from opt_einsum import backends

    theirs, ours = backends.get_func, {name: checked(name) for name in ("einsum", "tensordot", "transpose")}

    def get_func(name: str, backend: str = "numpy", default: Any = None) -> Any:
        known = name in ours and backend in ("numpy", "torch", "cupy")
        return ours[name] if known else theirs(name, backend, default)

    backends.get_func = get_func


def _cotengra() -> None:
    """The implementation of its trees, and what it and quimb call by autoray.

    With constants and with `autojit=True` it traces an expression by autoray's lazy arrays first. The expression is
    computed by the functions that autoray finds for the arrays, which are gett's too.
    """
    from autoray import register_function
    from autoray.lazy.core import LazyArray, einsum, tensordot
    from cotengra.contract import set_default_implementation

    def traced(ours: Callable[..., Any], lazy: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: (lazy if any(isinstance(x, LazyArray) for x in args) else ours)(*args)

    lazy = {"einsum": einsum, "tensordot": tensordot}
    ours = {name: checked(name) for name in lazy}
    set_default_implementation(tuple(traced(ours[name], lazy[name]) for name in lazy))
    for name, function in ours.items():
        for backend in ("numpy", "torch"):
            register_function(backend, name, function)


PLACES = {"opt_einsum": _opt_einsum, "cotengra": _cotengra, "quimb": _cotengra}


def pytest_configure(config: pytest.Config) -> None:
    PLACES[config.getoption("--with-gett")]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, parts = config.getoption("--dealt")
    items[:] = items[part::parts]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    before = COUNTS["contractions"]
    try:
        return (yield)
    finally:
        if COUNTS["contractions"] > before:
            CONTRACTING.add(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        OUTCOMES[report.outcome] += 1
        if report.failed:
            FAILED.append(report.nodeid)
        if report.passed and report.nodeid in CONTRACTING:
            OUTCOMES["passed by contractions"] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = session.config.getoption("--record")
    if target is not None:
        target.write_text(json.dumps({"tests": OUTCOMES, "calls": COUNTS, "failed": FAILED}))
