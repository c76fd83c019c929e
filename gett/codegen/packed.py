"""From plan and schedule to kernels with packed copies: the copies' launches around those of the product.

Each copy's text stands in a namespace of its own in the product's translation unit; copies of equal text share one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from gett.codegen.params import ALPHA
from gett.codegen.records import Kernel, KernelSource, Launch
from gett.codegen.stream import render_stream
from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan
from gett.ir.packing import piece_starts
from gett.schedule.packed import copy_schedule, plans_of, product_of, scheduled_plan
from gett.schedule.spec.schedule import Schedule

ENTRY = "gett_stream"
WORKSPACE = "workspace"
WAIT = '#include "gett/ptx/warpgroup.cuh"'


def render_packed(plan: GemmPlan, schedule: Schedule, render: Callable[[GemmPlan, Schedule], Kernel]) -> Kernel:
    """The launches of all pieces: copies of A and B, the product, the copy of D.

    Args:
        plan: As it was made.
        schedule: With packed copies.
        render: Of a plan and a schedule without any, `gett.codegen.render.render_kernel`.
    """
    packing = schedule.packing
    assert packing is not None
    made = plans_of(plan, packing)
    swapped = scheduled_plan(plan, schedule).swapped
    roles = {"a": "b", "b": "a", "d": "d"} if swapped else {"a": "a", "b": "b", "d": "d"}
    product = render(made.product, product_of(schedule))
    overlaps = int(schedule.arch.removeprefix("sm_").rstrip("af")) >= 90
    texts, entries = [product.source.text], [*product.source.entries]
    namespaces: dict[str, str] = {}
    copies: dict[str, Launch] = {}
    for tensor in made.tensors:
        kernel = render_stream(tensor.plan, copy_schedule(schedule.arch, getattr(packing, tensor.name)))
        (launch,) = kernel.launches
        space = namespaces.setdefault(kernel.source.text, f"gett_copy_{tensor.name}")
        if space not in entries:
            texts.append(_in_namespace(kernel.source.text, space))
            entries.append(space)
        params = _with_alpha(launch.params, tensor.plan.contraction.dtype)
        copies[tensor.name] = replace(launch, entry=space, params=params, scalars=(), overlaps=overlaps)

    c = plan.contraction
    assert c.b is not None
    starts = zip(*(piece_starts(c, packing.cuts, x) for x in (c.a, c.b, c.d)), strict=True)
    launches: list[Launch] = []
    held: dict[str, int] = {}
    for start in starts:
        begins = dict(zip("abd", start, strict=True))
        at = {roles[name]: (roles[name], begin) for name, begin in begins.items()}
        inside = at | {roles[t.name]: (WORKSPACE, t.offset) for t in made.tensors}
        own = [_moved(x, inside) for x in product.launches]
        for t in reversed(made.tensors):
            here, there = at[roles[t.name]], (WORKSPACE, t.offset)
            ends = (there, here) if t.name == "d" else (here, there)
            copy = _moved(copies[t.name], dict(zip("ad", ends, strict=True)))
            if t.name == "d":
                own = [*own, copy]
            elif held.get(t.name) != begins[t.name]:  # else the copy of the piece before is the same
                own, held[t.name] = [copy, *own], begins[t.name]
        launches += own
    # Behind work of others a launch waits for all of that; its successors know what they wait for.
    launches[0] = replace(launches[0], overlaps=False)
    source = KernelSource("\n".join(texts), tuple(entries))
    return Kernel(source, schedule.arch, tuple(launches), schedule.workspace_bytes)


def _in_namespace(text: str, name: str) -> str:
    """A stream kernel's text with its records in a namespace, and an entry that waits for the launch before it."""
    lines = text.splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    body = "\n".join(line for line in lines if not line.startswith("#include"))
    body = body.replace("typedef ::Params", f"typedef {name}_space::Params").replace(f"{ENTRY}(", f"{name}(")
    body = body.replace("Kernel::run(p);", "gett::griddepcontrol_wait();\n  Kernel::run(p);")
    return "\n".join([WAIT, *includes, f"namespace {name}_space {{", body, "}", ""])


def _with_alpha(params: bytes, dtype: str) -> bytes:
    """An argument in which alpha is 1 once and for all."""
    one = np.array(1, data_type(dtype).accumulator).tobytes()
    return params[:ALPHA] + one + params[ALPHA + len(one) :]


def _moved(launch: Launch, places: Mapping[str, tuple[str, int]]) -> Launch:
    """A launch whose tensors lie elsewhere; roles that stand for their own address stay as they are."""
    used = {role for role, _ in launch.pointers} | {role for role, _, _ in launch.maps}
    moved = tuple((role, *place) for role, place in places.items() if role in used and place != (role, 0))
    return replace(launch, moved=moved)
