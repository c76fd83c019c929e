"""Everything here needs a GPU: without one all of it is skipped; with one, whatever else is missing is an error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gett.errors import DeviceError
from gett.plans.plan_cache import plan_cache
from gett.runtime.device import require_cupy
from gett.runtime.driver import load_driver


def _no_gpu() -> str:
    """Why there is no GPU, or nothing. It asks the driver, so that a missing CuPy is no reason to skip."""
    try:
        return "" if load_driver().device_count() else "no GPU is visible"
    except DeviceError as error:
        return str(error)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a GPU one test a module is left: it says why it is skipped, for all of its module."""
    if not _no_gpu():
        return
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    modules: set[Path] = set()
    here = str(Path(__file__).parent) + os.sep
    for item in items:
        again = item.path in modules and str(item.path).startswith(here)
        (left_out if again else kept).append(item)
        modules.add(item.path)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    """Skip all tests of this directory where there is no GPU."""
    reason = _no_gpu()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cupy(gpu: None) -> Any:
    """The CuPy module."""
    return require_cupy()


@pytest.fixture
def shared_kernels_first(own_kernels_first: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A cache of the test's own, and shared kernels before own ones."""
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("GETT_CACHE_DISABLE", raising=False)
    monkeypatch.delenv("GETT_SHARED_FIRST", raising=False)
    plan_cache.clear()
    yield
    plan_cache.clear()
