"""`devices=` and `shard=` of the public functions: plans that several GPUs share, kept with all others.

Owns how sharded tensors are planned for. How the GPUs share a contraction is `gett.slices.devices`'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gett.arrays.kinds import CPU
from gett.errors import OptionError
from gett.plans.call import Call
from gett.plans.contraction_plan import ContractionPlan
from gett.slices.devices import DevicesPlan, check_numbers, library, share_out
from gett.slices.finder import kept
from gett.slices.sharded import Sharded, numpys

Plan = Callable[[Call, str | None], ContractionPlan]
"""Plans a call for one device, of an architecture where that is given."""


def plan_over(call: Call, plan: Plan, devices: Any, shard: str | None, arch: str | None = None) -> DevicesPlan:
    """The plan of a call that several devices share.

    Args:
        call: What is asked for; operands may be sharded.
        plan: Plans for one device.
        devices: Numbers of GPUs.
        shard: The label along which the result is sharded, or None.
        arch: As for `gett.plan`.

    Raises:
        GettError: As `gett.plan`; OptionError and DeviceError for bad devices.
    """
    if devices is None:
        raise OptionError(f"shard={shard!r} shards the result over devices=, which are not given")
    check_numbers(devices)
    operands: Sequence[Any] = call.operands
    sharded = [x for x in operands if isinstance(x, Sharded)]
    if sharded:
        if any(isinstance(x, Sharded) for x in (call.out, call.c, *call.extras)):
            raise OptionError("out=, c= and epilogue_args= are arrays of the first GPU; shard= shards a new result")
        made = [(x.shape, x.dtype) if isinstance(x, Sharded) else numpys(x) for x in operands]
        first = sharded[0]
        if arch is None and first.devices[0] != CPU and len(sharded) == len(operands):
            arch = first.kind.arch(first.devices[0])
        call = call.changed(operands=made)
    base = plan(call, arch)
    layout = tuple((library(x), x.axis if isinstance(x, Sharded) else None) for x in operands)
    key = "devices", base.request, tuple(devices), shard, layout
    return kept(key, lambda: share_out(base, devices, operands, shard))


def compute_over(call: Call, plan: Plan, devices: Any, shard: str | None) -> Any:
    """What a call asks for, by several devices."""
    made = plan_over(call, plan, devices, shard)
    options: dict[str, Any] = {"c": call.c, "out": call.out, "checkpoint": call.checkpoint}
    if call.alpha != 1:
        options["alpha"] = call.alpha
    if call.c is not None or call.beta != 0:
        options["beta"] = call.beta
    if len(call.extras):
        options["epilogue_args"] = call.extras
    return made(*call.operands, **options)
