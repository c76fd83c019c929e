"""For all tests: a kernel cache of their own, a small, repeatable hypothesis profile, shares of the slow tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from datetime import date

import pytest
from hypothesis import HealthCheck, settings

from tests.sampling import in_turn
from tests.specs import SHARED

TURN = "GETT_TEST_TURN"
"""Environment variable with the number that says which cases of slow tests are those of a share."""

settings.register_profile(
    "gett", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("gett")

# A shell starts what it puts into the background with Ctrl-C ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        type=int,
        default=1,
        metavar="N",
        help="of each slow test run one case of N",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The first process of a run makes the folder that all of its processes share; workers have its environment.

    The catalogue stays, and to walk over it for garbage again and again takes a fifth of the time of planning.
    """
    gc.set_threshold(100_000, 50, 100)
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="gett-tests-")
        os.environ[SHARED] = folder
        os.environ.setdefault(TURN, str(date.today().toordinal() + sys.version_info.minor))
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--share N` a slow test runs one case of N. N days, or N neighbouring versions of Python, run them all."""
    share = config.getoption("share")
    slow = [item.nodeid for item in items if item.get_closest_marker("slow")]
    left = set(slow) - set(in_turn(slow, share, int(os.environ[TURN])))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A run of a share says so."""
    if (share := config.getoption("share")) > 1:
        turn = int(os.environ[TURN])
        terminalreporter.write_line(
            f"Of each slow test one case of {share} ran, those of turn {turn % share} ({TURN}={turn}: the day and the "
            f"version of Python). --share 1 runs all."
        )


def pytest_collection_finish() -> None:
    """What was collected stays, too: no search for garbage walks over it."""
    gc.freeze()


@pytest.fixture(autouse=True)
def own_kernels_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans wait for kernels of their own, so that these are what is tested; tests of shared kernels are apart."""
    monkeypatch.setenv("GETT_SHARED_FIRST", "0")


@pytest.fixture(scope="session", autouse=True)
def _own_kernel_cache() -> object:
    """No test reads or fills the user's kernel cache; within a run kernels are shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GETT_CACHE_DIR", os.path.join(os.environ[SHARED], "kernels"))
        yield
