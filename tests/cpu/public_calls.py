"""The public functions and a plan, each called with a second operand of one's choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gett


def calls_with(a: Any, second: Any) -> tuple[Callable[[], Any], ...]:
    """Calls that multiply the matrix `a` by `second`; the plan was made for `a` and `a`."""
    return (
        lambda: gett.einsum("ij,jk->ik", a, second),
        lambda: gett.contract("ij,jk->ik", a, second),
        lambda: gett.plan("ij,jk->ik", a, second),
        lambda: gett.plan("ij,jk->ik", a, a)(a, second),
        lambda: gett.tensordot(a, second, 1),
    )
