"""What tests of the public functions share."""

from __future__ import annotations

import pytest

import gett


@pytest.fixture
def empty_cache():
    gett.plan_cache.clear()
    yield gett.plan_cache
    gett.plan_cache.clear()
    gett.plan_cache.resize(1024)
