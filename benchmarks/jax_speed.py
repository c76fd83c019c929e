"""Products in JAX: `gett.jax.einsum` beside `jnp.einsum`, under `jax.jit`, on the same arrays, in the same run.

Owns the choice of workloads, how calls are queued, and how far the two results may be apart. JAX is imported late.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import environment
from benchmarks.cases import Case
from benchmarks.records import write_text
from benchmarks.report import geometric_mean
from benchmarks.timing import failure, host_time_us
from benchmarks.workloads import FIELDS, Workload, choose_workloads, load_workloads
from gett.console.formatting import format_table
from gett.measure.verify import make_tolerance

Einsum = Callable[..., Any]

DTYPES = ("float32", "bfloat16")
EACH = 6  # workloads of a field
SIDES = ("gett", "jnp")
MEASURES = {"queued": "us", "one call": "call_us"}


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is run.

    Attributes:
        elements: Most elements of the tensors of a case, None for all.
        volume: Most elementary products of a case.
        copies: Most products of one program, each of tensors of its own. XLA records five or more in a CUDA graph.
        bytes: Most bytes of their tensors; two products are run in any case.
        batch_us: About how long the queue of programs is.
        batches: How often it is timed; the sides take turns.
        calls: How often one call is timed.
        compile_s: Seconds that a side may take to compile a program; XLA takes minutes for tensors of 26 modes.
    """

    elements: int | None
    volume: int
    copies: int
    bytes: float
    batch_us: float
    batches: int
    calls: int
    compile_s: float


ON_GPU = Effort(None, 0, 8, 24e9, 20_000.0, 5, 20, 60.0)
ON_CPU = Effort(1 << 12, 1 << 16, 2, 24e9, 1_000.0, 3, 3, 60.0)


def chosen(workloads: Sequence[Workload]) -> tuple[Workload, ...]:
    """Of each field as many of the workloads with float32 that are not large, evenly spread over their order."""
    found: list[Workload] = []
    for field in FIELDS:
        having = [w for w in workloads if w.field == field and "float32" in w.dtypes and not w.large]
        found += [having[i * (len(having) - 1) // (EACH - 1)] for i in range(EACH)]
    return tuple(found)


def sides() -> dict[str, Einsum]:
    """Both einsums. gett's usual float32 keeps the bound of float32, as JAX's "highest" does."""
    import jax.numpy as jnp

    import gett.jax

    return {"gett": gett.jax.einsum, "jnp": partial(jnp.einsum, precision="highest")}


def in_turn(einsum: Einsum, subscripts: str) -> Callable[[Any], list[Any]]:
    """Products of several pairs of arrays, one after the other: none is joined with another one or left out."""
    from jax import lax

    def run(pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
        results: list[Any] = []
        for a, b in pairs:
            if results:
                a, results[-1] = lax.optimization_barrier((a, results[-1]))
            results.append(einsum(subscripts, a, b))
        return results

    return run


def drawn(case: Case, dtype: str, copies: int) -> list[tuple[Any, Any]]:
    """Pairs of random arrays."""
    import jax

    keys = jax.random.split(jax.random.key(7), 2 * copies)
    arrays = [jax.random.normal(key, case.shapes[i % 2], "float32").astype(dtype) for i, key in enumerate(keys)]
    return list(zip(arrays[::2], arrays[1::2], strict=True))


def off_by(case: Case, dtype: str, pair: tuple[Any, Any], found: dict[str, Any]) -> dict[str, float]:
    """How far each result is from JAX's in float32, as a share of the bound, twice the tolerance of its dtype."""
    import jax.numpy as jnp

    exact = partial(jnp.einsum, case.einsum, precision="highest")
    wanted, size = (exact(*(f(x.astype("float32")) for x in pair)) for f in (jnp.asarray, abs))
    own = make_tolerance([case.bmnk[3]], dtype)
    allowed = 2 * (own.output * abs(wanted) + own.product * size + own.tiny)

    def share(d: Any) -> float:
        by = abs(d.astype("float32") - wanted) / allowed
        return float(jnp.where(jnp.isnan(by), jnp.inf, by).max())

    return {name: share(d) for name, d in found.items()}


def queued_us(programs: dict[str, Callable[[], Any]], products: int, effort: Effort) -> dict[str, float]:
    """Microseconds of one product where the device always has the next one: the median of several queues."""
    import jax

    repeats: dict[str, int] = {}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for name, program in programs.items():
        start = time.perf_counter()
        jax.block_until_ready(program())
        first = (time.perf_counter() - start) * 1e6
        repeats[name] = max(2, min(1000, round(effort.batch_us / max(first, 1.0))))
    for _ in range(effort.batches):
        for name, program in programs.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                found = program()
            jax.block_until_ready(found)
            times[name].append((time.perf_counter() - start) * 1e6 / (repeats[name] * products))
            del found
    return {name: statistics.median(x) for name, x in times.items()}


def call_us(programs: dict[str, Callable[[], Any]], effort: Effort) -> dict[str, float]:
    """Microseconds of one call until its result is there, by the host's clock: the median."""
    import jax

    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(effort.calls + 1):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program())
            times[name].append((time.perf_counter() - start) * 1e6)
    return {name: statistics.median(x[1:]) for name, x in times.items()}


def compiled(function: Callable[..., Any], arguments: tuple[Any, ...], limit_s: float) -> Callable[..., Any]:
    """A function under `jax.jit`, which has run once. A compiler that is late goes on in a thread of its own.

    The function stays with `jax.jit`, as in users' programs: JAX calls what `lower().compile()` gives by slower code
    where there are callbacks.

    Raises:
        TimeoutError: There is no program after `limit_s` seconds.
    """
    import jax

    program: Callable[..., Any] = jax.jit(function)
    failed: list[Exception] = []
    done = threading.Event()

    def work() -> None:
        try:
            jax.block_until_ready(program(*arguments))
        except Exception as error:
            failed.append(error)
        done.set()

    threading.Thread(target=work, daemon=True).start()
    if not done.wait(limit_s):
        raise TimeoutError(f"no program after {limit_s:.0f} s")
    if failed:
        raise failed[0]
    return program


def row(workload: Workload, dtype: str, effort: Effort) -> dict[str, Any]:
    """What one workload gave, or the error of a side."""
    import jax

    case = workload.case if effort.elements is None else workload.case.reduced(effort.elements, effort.volume)
    size = case.elements * (2 if dtype == "bfloat16" else 4)
    copies = max(2, min(effort.copies, int(effort.bytes // size)))
    found: dict[str, Any] = {
        "name": case.name, "field": workload.field, "dtype": dtype, "subscripts": case.einsum,
        "extents": dict(case.extents), "products": copies, "errors": {},
    }  # fmt: skip
    pairs = drawn(case, dtype, copies)
    many, one, results = {}, {}, {}
    for name, einsum in sides().items():
        try:
            single = compiled(partial(einsum, case.einsum), pairs[0], effort.compile_s)
            program = compiled(in_turn(einsum, case.einsum), (pairs,), effort.compile_s)
            many[name], one[name] = partial(program, pairs), partial(single, *pairs[0])
            results[name] = one[name]()
            jax.block_until_ready(many[name]())
        except Exception as error:  # a side that fails must not end the run
            found["errors"][name] = failure(error).error
    if not found["errors"]:
        found["off_by"] = off_by(case, dtype, pairs[0], results)
        results.clear()
        found["us"] = queued_us(many, copies, effort)
        found["call_us"] = call_us(one, effort)
    return found


def host_rows() -> dict[str, dict[str, float]]:
    """Host microseconds of small calls: compiled and as written, of one product and of a chain of three."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones((64, 64))
    chain = "ij,jk,kl,lm->im"
    rows: dict[str, dict[str, float]] = {}
    for name, einsum in sides().items():
        compiled = jax.jit(partial(einsum, "ij,jk->ik"))
        calls: dict[str, Callable[[], Any]] = {
            "64 x 64, jit": partial(compiled, x, x),
            "64 x 64, as written": partial(einsum, "ij,jk->ik", x, x),
            "chain of three, as written": partial(einsum, chain, x, x, x, x),
        }
        for text, call in calls.items():
            finish = partial(jax.block_until_ready, call())
            rows.setdefault(text, {})[name] = host_time_us(call, finish, calls=50)
    return rows


def ratios(rows: Sequence[dict[str, Any]], dtype: str, key: str) -> dict[str, float]:
    """JAX's time over gett's, by workload."""
    return {x["name"]: x[key]["jnp"] / x[key]["gett"] for x in rows if x["dtype"] == dtype and key in x}


def table(record: dict[str, Any]) -> list[str]:
    """The figures as text: all of them, and then their means."""
    cells = []
    for x in record["rows"]:
        for name, text in x["errors"].items():
            cells.append([x["name"], x["dtype"], f"{name}: {text[:60]}", "", "", "", "", "", ""])
        if "us" not in x:
            continue
        figures = [f"{x[key][side]:.1f}" for key in MEASURES.values() for side in SIDES]
        by = [f"{x[key]['jnp'] / x[key]['gett']:.2f}" for key in MEASURES.values()]
        cells.append(
            [
                x["name"],
                x["dtype"],
                *figures[:2],
                by[0],
                *figures[2:],
                by[1],
                "; ".join(f"{x['off_by'][side]:.2g}" for side in SIDES),
            ]
        )
    head = ["us", "dtype", "gett", "jnp", "jnp/gett", "one call: gett", "jnp", "jnp/gett", "off by"]
    lines = [*format_table(head, cells), ""]
    host = [[name, *(f"{us[side]:.1f}" for side in SIDES), f"{us['jnp'] / us['gett']:.2f}"]
            for name, us in record["host"].items()]  # fmt: skip
    lines += [*format_table(["host us", *SIDES, "jnp/gett"], host), ""]
    means = []
    for dtype in DTYPES:
        for text, key in MEASURES.items():
            found = ratios(record["rows"], dtype, key)
            if found:
                least = min(found, key=lambda name, found=found: found[name])
                mean = geometric_mean(found.values())
                means.append([f"{dtype}, {text}", str(len(found)), f"{mean:.2f}", f"{found[least]:.2f}", least])
    return lines + format_table(["jnp/gett", "cases", "geometric mean", "least", "of"], means)


def main(
    *, on_gpu: bool, json_path: str | None = None, only: Sequence[str] = (), dtypes: Sequence[str] = DTYPES
) -> int:
    """Measure, print, and write JSON where asked; 1 when a result of gett is wrong, or a side fails.

    Args:
        on_gpu: Whether there is a GPU; JAX may have none all the same.
        json_path: Where every figure goes.
        only: Names of workloads to run in place of those that `chosen` gives.
        dtypes: Of the operands.

    Raises:
        ValueError: A name is unknown.
    """
    cases = load_workloads()
    cases = choose_workloads(cases, names=only) if only else chosen(cases)
    import jax

    if not on_gpu:
        jax.config.update("jax_platforms", "cpu")
    device = jax.devices()[0]
    on_gpu = on_gpu and device.platform == "gpu"
    effort = ON_GPU if on_gpu else ON_CPU
    record: dict[str, Any] = {
        "environment": environment.describe() | ({"clocks": environment.clocks()} if on_gpu else {}),
        "device": device.device_kind,
        "host": host_rows(),
        "rows": [],
    }
    for dtype in dtypes:
        for workload in cases:
            record["rows"].append(row(workload, dtype, effort))
            if json_path:  # a run that is cut short keeps what it has
                write_text(json.dumps(record, indent=1) + "\n", json_path)
    print("\n".join(table(record)))
    wrong = [f"{x['name']} ({x['dtype']})" for x in record["rows"] if x["errors"] or not x["off_by"]["gett"] <= 1]
    if wrong:
        print("wrong, or failed:", ", ".join(wrong))
    return 1 if wrong else 0
