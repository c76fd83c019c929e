"""What schedules reach on one GPU: rates of the tensor cores, and factors of the cost model by pairs of schedules.

A pair are two schedules of one plan; how the ratio of their times differs from the ratio of their estimates says what
a factor of the model should be. Owns which schedules are compared; schedules, compiling and timing are gett's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.cases import Case

GEMM = (8192, 8192, 4096)  # m, n (rounded to the tile's width), k of the tensor-rate measurement
LISTED = 400  # schedules of which those of a width, and pairs, are taken
PER_WIDTH = 3  # schedules measured for each width
PER_KIND = 2  # schedules of each main loop measured for each case
PAIRS = 4  # pairs of schedules for each shape of cluster and product
REPEAT = 10
CLUSTER_GEMMS = (
    ("mk,nk->mn", (8192, 8192, 1024)),
    ("km,kn->mn", (8192, 8192, 1024)),
    ("mk,kn->mn", (4096, 4096, 2048)),
)

Step = Callable[[str], object]


def kind_of(s: Any) -> str:
    """The main loop of a schedule, by the names of `MainloopFactors`.

    `"wgmma"` is the one that is their measure; `"stream"` has no factor.
    """
    from gett.schedule.spec.loader import Gather
    from gett.schedule.spec.mainloop import Multistage, WgmmaRS, WgmmaSS

    loop = s.mainloop
    if isinstance(loop, Multistage):
        return "multistage_elements" if loop.a.vector == loop.b.vector == 1 else "multistage"
    if isinstance(loop, WgmmaRS):
        return "wgmma_rs"
    if not isinstance(loop, WgmmaSS):
        return "stream"
    return "gather" if isinstance(loop.a, Gather) or isinstance(loop.b, Gather) else "wgmma"


def wgmma_schedules(plan: Any, facts: Any) -> list[Any]:
    """Many schedules with both operands in shared memory, the most promising first."""
    from gett.schedule.search.base import best_schedules
    from gett.schedule.search.hopper import both_roles
    from gett.schedule.search.wgmma_ss import WgmmaSSSearch

    return best_schedules(both_roles(WgmmaSSSearch, plan, facts.planning), LISTED)


def times(cupy: Any, plan: Any, schedules: Sequence[Any], l2_bytes: int) -> list[tuple[Any, float]]:
    """Median microseconds of those schedules that compile well."""
    from gett.runtime.build import load_executable
    from gett.tune.measure import Bench
    from gett.tune.tuner import compile_all

    built = [(s, b) for s, b in compile_all(plan, schedules, lambda text: None) if not isinstance(b, Exception)]
    if not built:
        return []
    bench = Bench(cupy, plan, l2_bytes)
    bench.shuffle()
    found = []
    for s, b in built:
        found.append((s, bench.time(load_executable(plan, b), REPEAT)))
    del bench
    cupy.get_default_memory_pool().free_all_blocks()
    return found


def product(subscripts: str, sizes: tuple[int, int, int], dtype: str, facts: Any) -> Any:
    """The plan of a matrix product of sizes m, n, k."""
    import gett

    extents = dict(zip("mnk", sizes, strict=True))
    inputs = subscripts.split("->")[0].split(",")
    pairs = [(tuple(extents[x] for x in labels), dtype) for labels in inputs]
    return gett.plan(subscripts, *pairs, arch=facts.arch).steps[0].gemm


def measure_tensor_rates(cupy: Any, dtype: str, facts: Any) -> dict[int, dict[str, float]]:
    """By width of the tile: TFLOP/s of the best of a few wgmma schedules for a large matrix product, and its rows."""
    found: dict[int, dict[str, float]] = {}
    m, n, k = GEMM
    for width in (256, 192, 128, 96, 64, 32):
        plan = product("mk,nk->mn", (m, n // width * width, k), dtype, facts)
        listed = [s for s in wgmma_schedules(plan, facts) if s.tiling.shape[1] == width][:PER_WIDTH]
        measured = times(cupy, plan, listed, 0)
        if measured:
            s, us = min(measured, key=lambda x: x[1])
            found[width] = {"tflops": plan.flops / us * 1e-6, "rows": s.tiling.shape[0], "us": us}
    return found


def measure_mma_sync(cupy: Any, dtype: str, facts: Any) -> float | None:
    """TFLOP/s of the best of a few mma.sync schedules for a large matrix product; None where none compiles."""
    from gett.schedule.search.select import candidates

    plan = product("mk,nk->mn", GEMM, dtype, facts)
    listed = [s for s in candidates(plan, facts.arch, facts.planning) if kind_of(s) == "multistage"][:PER_WIDTH]
    measured = times(cupy, plan, listed, 0)
    return plan.flops / min(us for _, us in measured) * 1e-6 if measured else None


def cluster_pairs(schedules: Iterable[Any]) -> list[tuple[Any, Any]]:
    """(with a cluster, without) of schedules that differ in nothing else that is chosen."""
    from gett.schedule.spec.loader import Tma

    plain: dict[Any, Any] = {}
    clustered = []
    for s in schedules:
        loop = s.mainloop
        if not (isinstance(loop.a, Tma) and isinstance(loop.b, Tma)) or s.tiling.mma_tiles > 1:
            continue
        key = s.tiling, loop.warpgroups, loop.mma_m, loop.ping_pong
        if s.cluster == (1, 1):
            plain.setdefault(key, s)
        else:
            clustered.append((key, s))
    return [(s, plain[key]) for key, s in clustered if key in plain]


def measure_clusters(cupy: Any, dtype: str, facts: Any, step: Step = lambda text: None) -> dict[str, list[float]]:
    """How much longer clusters take than estimated, against the same tile without: by axis, a ratio a pair."""
    found: dict[str, list[float]] = {"cluster_m": [], "cluster_n": []}
    for subscripts, sizes in CLUSTER_GEMMS:
        plan = product(subscripts, sizes, dtype, facts)
        pairs = cluster_pairs(wgmma_schedules(plan, facts))
        for axis, cluster in (("cluster_m", (2, 1)), ("cluster_n", (1, 2))):
            chosen = [p for p in pairs if p[0].cluster == cluster][:PAIRS]
            wanted = list(dict.fromkeys(s for p in chosen for s in p))
            us = dict(times(cupy, plan, wanted, 0))
            for one, other in chosen:
                if one in us and other in us:
                    found[axis].append(us[one] / us[other] / (one.forecast.us / other.forecast.us))
        step(subscripts)
    return found


def measure_mainloops(
    cupy: Any, cases: Sequence[Case], dtype: str, facts: Any, step: Step = lambda text: None
) -> list[dict[str, Any]]:
    """Of each case the best few schedules of each main loop: kind, estimate and time; a case that fails gives none."""
    import gett
    from gett.schedule.search.select import candidates

    rows: list[dict[str, Any]] = []
    for case in cases:
        step(case.name)
        try:
            pairs = [(shape, dtype) for shape in case.shapes[:2]]
            plan = gett.plan(case.einsum, *pairs, arch=facts.arch).steps[0].gemm
            listed = candidates(plan, facts.arch, facts.planning)
            kinds = {kind_of(s) for s in listed}
            if len(kinds) < 2:
                continue
            chosen = [s for kind in sorted(kinds) for s in [s for s in listed if kind_of(s) == kind][:PER_KIND]]
            measured = times(cupy, plan, chosen, facts.l2_bytes)
        except Exception as error:  # e.g. out of memory: the next case may fit
            rows.append({"case": case.name, "error": f"{type(error).__name__}: {error}"[:300]})
            continue
        rows += [
            {"case": case.name, "kind": kind_of(s), "estimate_us": s.forecast.us, "measured_us": us}
            for s, us in measured
        ]
    return rows


def fit_mainloops(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By how much each main loop's times exceed its estimates, `"wgmma"` being 1.

    log(time / estimate) is taken as a sum of what a case and what a main loop adds; least squares. Main loops that no
    case links with wgmma are left out.
    """
    good = [r for r in rows if "error" not in r]
    linked = {"wgmma"}
    by_case: dict[str, set[str]] = {}
    for r in good:
        by_case.setdefault(r["case"], set()).add(r["kind"])
    for _ in by_case:
        for kinds in by_case.values():
            if kinds & linked:
                linked |= kinds
    used = [r for r in good if r["kind"] in linked]
    others, names = sorted(linked - {"wgmma"}), sorted({r["case"] for r in used})
    if not used or not others:
        return {}
    matrix = np.zeros((len(used), len(others) + len(names)))
    for i, r in enumerate(used):
        if r["kind"] in others:
            matrix[i, others.index(r["kind"])] = 1.0
        matrix[i, len(others) + names.index(r["case"])] = 1.0
    logs = np.log([r["measured_us"] / r["estimate_us"] for r in used])
    solution = np.linalg.lstsq(matrix, logs, rcond=None)[0]
    return {kind: float(math.exp(solution[i])) for i, kind in enumerate(others)}
