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
    """The main loop of a schedule, by the names of `FamilyFactors`; `"wgmma"` for the one that is their measure."""
    if s.family == "sm90":
        gathered = s.roles.gather_a is not None or s.roles.gather_b is not None
        return "gather" if gathered else "wgmma_rs" if s.roles.crossed is not None else "wgmma"
    return "multistage_elements" if s.a.vector == s.b.vector == 1 else "multistage"


def times(cupy: Any, plan: Any, schedules: Sequence[Any], l2_bytes: int) -> list[tuple[Any, float]]:
    """Median microseconds of those schedules that compile well."""
    from gett.runtime.executable import load_executable
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
    from gett.schedule.sm90 import sm90_candidates

    found: dict[int, dict[str, float]] = {}
    m, n, k = GEMM
    for width in (256, 192, 128, 96, 64, 32):
        plan = product("mk,nk->mn", (m, n // width * width, k), dtype, facts)
        listed = [s for s in sm90_candidates(plan, facts.planning, 400) if s.block[1] == width][:PER_WIDTH]
        measured = times(cupy, plan, listed, 0)
        if measured:
            s, us = min(measured, key=lambda x: x[1])
            found[width] = {"tflops": plan.flops / us * 1e-6, "rows": s.block[0], "us": us}
    return found


def measure_mma_sync(cupy: Any, dtype: str, facts: Any) -> float | None:
    """TFLOP/s of the best of a few mma.sync schedules for a large matrix product; None where none compiles."""
    from gett.schedule.select import candidates

    plan = product("mk,nk->mn", GEMM, dtype, facts)
    listed = [s for s in candidates(plan, facts.arch, facts.planning) if s.family == "sm80"][:PER_WIDTH]
    measured = times(cupy, plan, listed, 0)
    return plan.flops / min(us for _, us in measured) * 1e-6 if measured else None


def cluster_pairs(schedules: Iterable[Any]) -> list[tuple[Any, Any]]:
    """(with a cluster, without) of schedules that differ in nothing else that is chosen."""
    plain: dict[Any, Any] = {}
    clustered = []
    for s in schedules:
        r = s.roles
        if r is None or r.crossed is not None or r.trade is not None or r.resident or r.parts > 1:
            continue
        key = (s.block, s.box_m, s.box_n, s.box_k, s.exchanged, s.splits, r.consumers, r.m_blocks, r.ping_pong)
        if r.cluster == (1, 1):
            plain.setdefault(key, s)
        else:
            clustered.append((key, s))
    return [(s, plain[key]) for key, s in clustered if key in plain]


def measure_clusters(cupy: Any, dtype: str, facts: Any, step: Step = lambda text: None) -> dict[str, list[float]]:
    """How much longer clusters take than estimated, against the same tile without: by axis, a ratio a pair."""
    from gett.schedule.sm90 import sm90_candidates

    found: dict[str, list[float]] = {"cluster_m": [], "cluster_n": []}
    for subscripts, sizes in CLUSTER_GEMMS:
        plan = product(subscripts, sizes, dtype, facts)
        pairs = cluster_pairs(sm90_candidates(plan, facts.planning, 400))
        for axis, cluster in (("cluster_m", (2, 1)), ("cluster_n", (1, 2))):
            chosen = [p for p in pairs if p[0].roles.cluster == cluster][:PAIRS]
            wanted = list(dict.fromkeys(s for p in chosen for s in p))
            us = dict(times(cupy, plan, wanted, 0))
            for one, other in chosen:
                if one in us and other in us:
                    found[axis].append(us[one] / us[other] / (one.estimate_us / other.estimate_us))
        step(subscripts)
    return found


def measure_families(
    cupy: Any, cases: Sequence[Case], dtype: str, facts: Any, step: Step = lambda text: None
) -> list[dict[str, Any]]:
    """Of each case the best few schedules of each main loop: kind, estimate and time; a case that fails gives none."""
    import gett
    from gett.schedule.select import candidates

    rows: list[dict[str, Any]] = []
    for case in cases:
        step(case.name)
        try:
            pairs = [(shape, dtype) for shape in case.shapes[:2]]
            plan = gett.plan(case.einsum, *pairs, arch=facts.arch).steps[0].gemm
            listed = [s for s in candidates(plan, facts.arch, facts.planning) if s.family in ("sm80", "sm90")]
            kinds = {kind_of(s) for s in listed}
            if len(kinds) < 2:
                continue
            chosen = [s for kind in sorted(kinds) for s in [s for s in listed if kind_of(s) == kind][:PER_KIND]]
            measured = times(cupy, plan, chosen, facts.l2_bytes)
        except Exception as error:  # e.g. out of memory: the next case may fit
            rows.append({"case": case.name, "error": f"{type(error).__name__}: {error}"[:300]})
            continue
        rows += [
            {"case": case.name, "kind": kind_of(s), "estimate_us": s.estimate_us, "measured_us": us}
            for s, us in measured
        ]
    return rows


def fit_families(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
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
