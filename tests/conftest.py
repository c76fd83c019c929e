"""For all tests: a kernel cache of their own and a small, repeatable hypothesis profile."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "gett", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("gett")


@pytest.fixture(scope="session", autouse=True)
def _own_kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    """No test reads or fills the user's kernel cache; within a session kernels are shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GETT_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield
