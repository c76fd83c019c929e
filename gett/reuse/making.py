"""Plans that hold something between calls, made while the device of their arrays is current.

Owns nothing but the choice among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from gett.arrays.kinds import ArrayKind
from gett.network.request import PlanRequest
from gett.plans.contraction_plan import ContractionPlan
from gett.reuse.constant_plan import ConstantPlan
from gett.reuse.remembering_plan import RememberingPlan


def plan_holding(kind: ArrayKind, request: PlanRequest, constants: Mapping[int, Any] | None) -> ContractionPlan:
    """The plan of a request that holds constants, or where there are None, intermediates.

    Raises:
        GettError: As `gett.plan`.
    """
    context = None if request.device is None else kind.on(request.device)
    with nullcontext() if context is None else context:
        return RememberingPlan(request) if constants is None else ConstantPlan(request, constants)
