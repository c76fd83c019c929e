"""For all tests: a kernel cache of their own and a small, repeatable hypothesis profile."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests.specs import SHARED

settings.register_profile(
    "gett", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("gett")

# A shell starts what it puts into the background with Ctrl-C ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """The first process of a run makes the folder that all of its processes share; workers have its environment.

    The catalogue stays, and to walk over it for garbage again and again takes a fifth of the time of planning.
    """
    gc.set_threshold(100_000, 50, 100)
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="gett-tests-")
        os.environ[SHARED] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    """What was collected stays, too: no search for garbage walks over it."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_kernel_cache() -> object:
    """No test reads or fills the user's kernel cache; within a run kernels are shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GETT_CACHE_DIR", os.path.join(os.environ[SHARED], "kernels"))
        yield
