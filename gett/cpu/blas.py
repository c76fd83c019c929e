"""Keeps BLAS to one thread while tiles run on threads of the executor's own, where threadpoolctl is installed.

A BLAS that spreads each of many middling products over the cores waits for its threads after every one. On a busy
machine a single late thread delays the batch. Knows nothing of plans or arrays.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_users = 0
_limit: Any = None


@functools.cache
def can_limit() -> bool:
    """Whether BLAS's threads can be limited at all."""
    return importlib.util.find_spec("threadpoolctl") is not None


@functools.cache
def _controller() -> Any:
    import threadpoolctl

    return threadpoolctl.ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS uses one thread a call within; overlapping uses share one limit, lifted by the last to leave."""
    global _users, _limit
    with _lock:
        _users += 1
        if _users == 1:
            _limit = _controller().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()
