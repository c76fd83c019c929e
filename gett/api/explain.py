"""Plans as text: what was grouped, fused and swapped, which kernel runs, and what limits it.

Owns all wording and the text tables. Reads plans and schedules; decides nothing and measures nothing.
"""

# ruff: noqa: D102 - `ContractionPlan` documents the properties of `Plan`

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Protocol

from gett.console.formatting import format_bytes, format_quantity, format_seconds, format_table, printable
from gett.ir.gemm import GemmPlan, itemsize
from gett.ir.tensors import accumulator
from gett.network.steps import Step
from gett.schedule.realize import realize
from gett.schedule.records import Access, BulkMove, Gather, Schedule
from gett.schedule.stream_records import output_modes
from layouts.box import Box
from layouts.modes import Strided
from layouts.tma import TmaMap

# Flops a byte above which a CPU's BLAS takes longer than its memory: present cores do 30 to 100 fp32 GFLOP/s and
# move 5 to 15 GB/s each.
CPU_RIDGE = 8.0
LISTED = 10  # of a network's steps, the costliest
NAME, TITLE = 44, 100  # characters of subscripts in the table of steps, and above it
SHOWN = 3  # steps of a network that are told in full without being asked for

_ONCE = {
    "": ", whole and once a block",
    "own": ", once for the block's one line of tiles",
    "each": ", once for a line of tiles",
}


class Plan(Protocol):
    """What this module reads of a `ContractionPlan`, which stands above it and imports it for its text."""

    subscripts: str
    arch: str
    steps: tuple[Step, ...]
    path_info: Any

    @property
    def flops(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def workspace_bytes(self) -> int: ...
    @property
    def intermediate_bytes(self) -> int: ...


def explain(plan: Plan, *, detail: bool = False) -> str:
    """A whole plan as text.

    One contraction is told in full. Of a network come the totals, opt_einsum's path and the costliest steps.

    Args:
        plan: What to tell.
        detail: Whether every step of a network is told in full; up to three are in any case.
    """
    steps = plan.steps
    whole = detail or len(steps) <= SHOWN
    title = f"{plan.subscripts if whole else _cut(plan.subscripts, TITLE)} on {plan.arch}"
    if len(steps) == 1:
        return _explain_step(steps[0], title)
    if not steps:
        return printable(f"{title}\n  nothing to compute: the result has no elements")
    head = [
        f"{title}   {len(steps)} steps",
        f"  {format_quantity(plan.flops)}FLOP, {format_quantity(plan.bytes)}B moved at least; "
        f"intermediates {format_bytes(plan.intermediate_bytes)}, workspace {format_bytes(plan.workspace_bytes)}",
    ]
    estimates = [s.schedule.estimate_us for s in steps if s.schedule is not None]
    if estimates:
        head.append(f"  estimate {format_seconds(1e-6 * sum(estimates))}, all steps together")
    head += explain_path(plan.path_info, whole=whole)
    sections = [printable("\n".join(head)), "\n".join(_costliest(steps))]
    if whole:
        sections += [_explain_step(step, _title(steps, number)) for number, step in enumerate(steps)]
    else:
        sections.append("  every step in full: gett.api.explain.explain(plan, detail=True), gett explain --detail")
    return "\n\n".join(sections)


def _title(steps: Sequence[Step], number: int) -> str:
    """How the section of a step begins; what is too large for one launch says which share of its result it writes."""
    step = steps[number]
    title = f"step {number + 1} of {len(steps)}: {step.name}"
    shares = [i for i, other in enumerate(steps) if other.output == step.output]
    return title if len(shares) == 1 else f"{title}, launch {shares.index(number) + 1} of {len(shares)}"


def _explain_step(step: Step, title: str) -> str:
    """One step in full: what its executor says of itself, and how its schedule was found."""
    route = getattr(step.executable, "route", None)
    measured = getattr(step.executable, "measured", None)
    return explain_gemm(step.gemm, step.schedule, route=route, measured=measured, title=title)


def _costliest(steps: Sequence[Step]) -> list[str]:
    """A table of the steps that take longest, by the cost model, without one by arithmetic or memory."""

    def cost(step: Step) -> float:
        if step.schedule is not None:
            return step.schedule.estimate_us
        return max(step.gemm.flops / CPU_RIDGE, step.gemm.bytes)

    costs = [cost(s) for s in steps]
    total = sum(costs)
    order = sorted(range(len(steps)), key=lambda i: -costs[i])[:LISTED]
    rows = []
    for i in order:
        g, schedule = steps[i].gemm, steps[i].schedule
        rows.append(
            [
                str(i + 1),
                _cut(steps[i].name, NAME),
                f"{g.extent_l} x {g.extent_m} x {g.extent_n} x {g.extent_k}",
                format_quantity(g.flops) + "FLOP",
                format_quantity(g.bytes) + "B",
                "-" if schedule is None else format_seconds(1e-6 * schedule.estimate_us),
                f"{100 * costs[i] / total:.1f} %" if total else "-",
            ]
        )
    header = ["step", "subscripts", "L x M x N x K", "work", "moved", "estimate", "share"]
    lines = ["  " + line for line in format_table(header, rows, left=2)]
    rest = len(steps) - len(order)
    return lines if not rest else [*lines, f"  and {_count(rest, 'step')} more"]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def explain_path(info: Any, *, whole: bool = True) -> list[str]:
    """Lines that sum up an `opt_einsum` `PathInfo`; none for None.

    Args:
        info: The record.
        whole: Whether the path itself is told.
    """
    if info is None:
        return []
    naive, best = Decimal(info.naive_cost), Decimal(info.opt_cost)
    return [
        *([f"  path {list(info.path)}"] if whole else []),
        f"  {format_quantity(best)}op along the path, {format_quantity(naive)}op without one "
        f"({format_quantity(naive / best if best else 1).rstrip()} times as many); largest intermediate "
        f"{format_quantity(info.largest_intermediate)}elements",
    ]


def explain_gemm(
    gemm: GemmPlan,
    schedule: Schedule | None = None,
    *,
    route: str | None = None,
    measured: tuple[float, int] | None = None,
    title: str | None = None,
) -> str:
    """One contraction as text.

    Args:
        gemm: The plan. Its groups are listed fastest mode first; fused modes are spelled slowest first, as in
            subscripts; strides are in elements of each tensor ("12 B" where a stride is no whole number of them).
        schedule: The kernel's schedule, or None where NumPy runs the plan.
        route: What the NumPy executor makes of it, in words.
        measured: Microseconds of the schedule, and among how many it was found; None if the model chose it.
        title: How the first line begins; default: the subscripts.
    """
    c = gemm.contraction
    spelled = ",".join(c.spell(o) for o in (c.a, c.b) if o is not None) + "->" + c.spell(c.d)
    lines = [
        f"{title or spelled}   {gemm.shape_class()} in {c.dtype}, precision {c.precision}",
        f"  L {gemm.extent_l} x M {gemm.extent_m} x N {gemm.extent_n} x K {gemm.extent_k}",
        *_explain_roles(gemm),
        "",
        *_group_table(gemm),
        "",
    ]
    facts: list[tuple[str, str]] = []
    if schedule is not None:
        facts += _schedule_facts(gemm, schedule)
    else:
        facts.append(("executor", "NumPy" if route is None else f"NumPy: {route}"))
    if c.epilogue is not None:
        facts.append(("epilogue", f"{c.epilogue}, in {accumulator(c.dtype)}, before D is stored"))
    intensity = gemm.flops / gemm.bytes if gemm.bytes else 0.0
    moved = f"{format_quantity(gemm.bytes)}B"
    if gemm.flops:
        density = f"{intensity:.3g}" if intensity < 1000 else f"{intensity:.0f}"
        facts.append(("work", f"{format_quantity(gemm.flops)}FLOP, {moved}, {density} FLOP/B"))
    else:
        facts.append(("work", f"{moved}, no arithmetic"))
    facts += _bound_facts(schedule, intensity, measured)
    lines += [f"  {name:<9} {text}" for name, text in facts]
    return printable("\n".join(lines))


def _explain_roles(gemm: GemmPlan) -> list[str]:
    c = gemm.contraction
    if gemm.b is None:
        return [f'  A is "{c.spell(gemm.a)}", the only operand']
    first, second = ("second", "first") if gemm.swapped else ("first", "second")
    roles = f'  A is the {first} operand "{c.spell(gemm.a)}", B the {second} "{c.spell(gemm.b)}"'
    return [roles + (": swapped, so that D's unit-stride mode is in N" if gemm.swapped else "")]


def _group_table(gemm: GemmPlan) -> list[str]:
    columns = gemm.tensors
    rows: list[list[str]] = []
    for name, modes in (("L", gemm.l), ("M", gemm.m), ("N", gemm.n), ("K", gemm.k)):
        if not modes:
            rows.append([name, "-", "1", *("" for _ in columns)])
        for i, mode in enumerate(modes):
            strides = [_stride(mode.strides[t], itemsize(operand.dtype)) for _, t, operand in columns]
            rows.append([name if i == 0 else "", _spell(gemm, mode), str(mode.extent), *strides])
    header = ["group", "modes", "extent", *(f"stride {n.upper() if len(n) == 1 else n}" for n, _, _ in columns)]
    return ["  " + line for line in format_table(header, rows, left=2)]


def _schedule_facts(gemm: GemmPlan, schedule: Schedule) -> list[tuple[str, str]]:
    shared = f"{format_bytes(schedule.smem_bytes)} shared memory"
    kernel = f"{schedule.family} for {schedule.arch}: "
    if schedule.stream is not None:
        return [("kernel", f"{kernel}{schedule.stream.threads} threads, {shared}"), *_stream_facts(gemm, schedule)]
    m, n, k = schedule.block
    real = realize(gemm, schedule)
    pipeline = f"{_describe_warps(schedule)}, {_count(schedule.num_stages, 'stage')}"
    facts = [("kernel", f"{kernel}tile {m} x {n} x {k}, {pipeline}, {shared}")]
    if schedule.exchanged:
        facts.append(("", "A and B change roles once more for this kernel; its M is the table's N"))
    for split in schedule.splits:
        facts.append(("", f"a mode of {split.group.upper()} is cut in two, the inner part {split.inner} long"))
    parts = schedule.roles.parts if schedule.roles is not None else 1
    if parts > 1:
        facts.append(("", f"a tile of D is made in {parts} parts of {m} x {n}, staged one after the other"))
    if schedule.roles is not None and schedule.roles.alone:
        facts.append(("", "a block makes one tile of D, staged where the stages were"))
    for name, modes, box, block in (
        ("M", real.m, schedule.box_m, m * parts),
        ("N", real.n, schedule.box_n, n),
        ("K", real.k, schedule.box_k, k),
    ):
        facts.append((f"box {name}", _describe_box(gemm, modes, box, block)))
    if schedule.batch is not None:
        facts.append(("box L", _describe_box(gemm, real.l, schedule.batch.box, schedule.batches)))
    if schedule.k_table:
        facts.append(("", "offsets along K come from a table"))
    roles = schedule.roles
    for name, operand, access, move in (
        ("A", real.a, schedule.a, roles.way("a") if roles else None),
        ("B", real.b, schedule.b, roles.way("b") if roles else None),
    ):
        if isinstance(move, Gather):
            turned = f", {move.wide} of them side by side turned" if move.wide else ""
            facts.append((f"load {name}", f"gathered in pieces of {move.run} elements, {move.major}-major{turned}"))
        elif move is not None:
            shared = f", shared by {move.shared} blocks" if move.shared > 1 else ""
            if roles is not None and roles.resident == name.lower():
                shared += _ONCE[roles.line]
            facts.append(
                (f"load {name}", f"by tensor map, {move.major}-major, {_describe_map(move.map, move)}{shared}")
            )
        elif access is not None and operand is not None:
            facts.append((f"load {name}", _describe_access(access, itemsize(operand.dtype))))
    if roles is not None and roles.c is not None:
        facts.append(("load C", f"by tensor map to where D is staged, {_describe_map(roles.c)}"))
    if roles is not None and roles.d is not None:
        facts.append(("store D", f"by tensor map, {_describe_map(roles.d)}"))
    elif roles is not None and roles.rows:
        facts.append(("store D", f"rows of {roles.rows} elements, in aligned chunks of 16 bytes and single elements"))
    else:
        facts.append(("store D", _at_a_time(schedule.vector_d, itemsize(gemm.contraction.d.dtype))))
    return [*facts, _split_fact(schedule)]


def _stream_facts(gemm: GemmPlan, schedule: Schedule) -> list[tuple[str, str]]:
    """The family that tells apart only outputs (L, M and N together) and K."""
    stream = schedule.stream
    assert stream is not None
    facts = [("box LMN", _describe_box(gemm, output_modes(gemm), schedule.box_m, schedule.box_m.size))]
    if stream.sums:
        facts.append(("box K", _describe_box(gemm, gemm.k, schedule.box_k, schedule.box_k.size)))
        facts.append(("", f"{_count(stream.lanes_k, 'lane')} share each sum"))
    tensors = (("A", gemm.a, stream.a), ("B", gemm.b, stream.b), ("C", gemm.contraction.c, stream.c))
    for name, operand, way in tensors:
        if operand is not None and way is not None:
            through = "through shared memory" if way.staged else "straight into registers"
            facts.append((f"load {name}", f"{_at_a_time(way.width, itemsize(operand.dtype))}, {through}"))
    facts.append(("store D", _at_a_time(schedule.vector_d, itemsize(gemm.contraction.d.dtype))))
    return [*facts, _split_fact(schedule)]


def _split_fact(schedule: Schedule) -> tuple[str, str]:
    slices = "none" if schedule.split_k == 1 else f"{schedule.split_k} slices, summed in a fixed order"
    return "split-K", f"{slices}; workspace {format_bytes(schedule.workspace_bytes)}"


def _describe_warps(schedule: Schedule) -> str:
    if schedule.roles is None:
        rows, columns = schedule.warps
        groups = f" for each of {schedule.batch.warps} groups of batches" if schedule.batch is not None else ""
        return f"{rows} x {columns} warps{groups}"
    kind = " in ping-pong" if schedule.roles.ping_pong else ""
    roles = schedule.roles
    gathers = roles.gather_a is not None or roles.gather_b is not None
    fetch = _count(roles.producers, "gathering warpgroup") if gathers else "1 producer"
    m, n = roles.cluster
    shared = f", clusters of {m} x {n} blocks" if m * n > 1 else ""
    return f"{fetch} and {_count(roles.consumers, 'consumer warpgroup')}{kind}{shared}"


def _describe_box(gemm: GemmPlan, modes: Sequence[Strided], box: Box, block: int) -> str:
    if not box.dims:
        return f"empty group: 1 of {block}"
    parts = [
        f"{'.'.join(_spell(gemm, modes[p]) for p in reversed(dim.modes))} {dim.box} of {box.dim_extent(i)}"
        for i, dim in enumerate(box.dims)
    ]
    return (
        f"{', '.join(parts)}: {box.size} of {block} in the tile, {_count(box.tiles, 'tile')}, "
        f"{100 * box.efficiency(max(block, box.size)):.0f} % useful"
    )


def _describe_access(access: Access, size: int) -> str:
    how = "cp.async" if access.asynchronous else "through registers"
    turned = "" if access.vector_group == access.major else ", transposed on the way"
    return f"{_at_a_time(access.vector, size)}, {how}, {access.major}-major in shared memory{turned}"


def _describe_map(tensor_map: TmaMap, move: BulkMove | None = None) -> str:
    box = " x ".join(map(str, tensor_map.box))
    copies = tensor_map.slabs if move is None else move.copies
    return f"box {box}, {_count(copies, 'copy', 'copies')} a tile, swizzle over {tensor_map.span} bytes"


def _at_a_time(elements: int, size: int) -> str:
    return f"{_count(elements, 'element')} ({elements * size} B) at a time"


def _bound_facts(
    schedule: Schedule | None, intensity: float, measured: tuple[float, int] | None
) -> list[tuple[str, str]]:
    if schedule is None:
        return [("bound", "arithmetic" if intensity > CPU_RIDGE else "memory")]
    facts = []
    estimate = f"estimate {format_seconds(1e-6 * schedule.estimate_us)}"
    if schedule.bound or schedule.estimate_us:
        facts.append(("bound", f"{schedule.bound or 'unknown'}; {estimate}"))
    if measured is not None:
        time = format_seconds(1e-6 * measured[0])
        facts.append(("choice", f"tuned: measured {time} among {_count(measured[1], 'candidate')}"))
    elif schedule.estimate_us:
        facts.append(("choice", f"chosen by the model ({estimate})"))
    if schedule.reason:
        facts.append(("why", schedule.reason))
    return facts


def _spell(gemm: GemmPlan, mode: Strided) -> str:
    """The modes that are fused into one, slowest first."""
    names = gemm.contraction.names
    return "".join(names[label] for label in reversed(mode.labels) if isinstance(label, int)) or "-"


def _stride(byte_stride: int, size: int) -> str:
    return str(byte_stride // size) if byte_stride % size == 0 else f"{byte_stride} B"


def _count(n: int, noun: str, plural: str | None = None) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"
