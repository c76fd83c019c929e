"""The run on a GPU: every case, every rival, on the same random data, with gett's results checked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks import environment, verify
from benchmarks.ahead import compile_ahead
from benchmarks.cases import ELEMENT_TYPES, Case, ElementType
from benchmarks.records import Row, Run
from benchmarks.rivals.table import KNOWN, ON_GPU, Call, Libraries, Setting, math_mode
from benchmarks.timing import GpuTimer, failure
from gett.codec import encode
from gett.console.progress import Step, progress
from gett.measure.timer import sets_to_rotate
from gett.measure.verify import poison
from gett.runtime.device import device_facts

# A hash of the index instead of a generator library: any dtype in place, no temporaries, the same data in every run.
_HASH = """
    unsigned long long z = (unsigned long long)i + seed * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
"""
_UNIFORM = _HASH + "double value = (double)(z >> 11) * (2.0 / 9007199254740992.0) - 1.0;"
_INTEGER = _HASH + "double value = (double)((int)(z % 5) - 2);"
_STORE = "y = T(value);"
# CuPy has no bfloat16: its bits, rounded to nearest, go into 16-bit integers.
_STORE_BFLOAT16 = """
    unsigned int bits = __float_as_uint((float)value);
    y = (unsigned short)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
"""


class Filler:
    """Fills CuPy arrays of one element type in place."""

    def __init__(self, element: ElementType) -> None:
        import cupy

        store = _STORE_BFLOAT16 if element.name == "bfloat16" else _STORE
        self._uniform, self._integer = (
            cupy.ElementwiseKernel("uint64 seed", "T y", text + store, f"gett_bench_{name}_{element.name}")
            for name, text in (("uniform", _UNIFORM), ("integer", _INTEGER))
        )

    def uniform(self, x: Any, seed: int) -> None:
        """Random values in [-1, 1), real and imaginary parts alike."""
        self._uniform(seed, _real(x))

    def integer(self, x: Any, seed: int) -> None:
        """Random integers from -2 to 2, real and imaginary parts alike."""
        self._integer(seed, _real(x))


def _real(x: Any) -> Any:
    """A C-contiguous array as real numbers: a complex one becomes twice as long."""
    flat = x.reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def copy_bandwidth(timer: GpuTimer) -> float:
    """Bytes/s of a device-to-device copy, reads and writes counted."""
    import cupy

    free, _ = cupy.cuda.Device().mem_info
    size = min(1 << 31, free // 8)
    source, target = cupy.zeros(size, "uint8"), cupy.empty(size, "uint8")
    stream = cupy.cuda.get_current_stream()
    best = timer.measure(lambda _: target.data.copy_from_device_async(source.data, size, stream))
    if best.median_us is None:
        raise RuntimeError(f"the device-to-device copy failed: {best.error}")
    return float(2 * size / (best.median_us * 1e-6))


def gemm_peak(timer: GpuTimer, element: ElementType, filler: Filler, libraries: Libraries, size: int = 8192) -> float:
    """FLOP/s of a large square matrix product of random data by cuBLAS."""
    import cupy

    a, b, d = (cupy.empty((size, size), element.storage) for _ in range(3))
    filler.uniform(a, 1)
    filler.uniform(b, 2)
    square = Case("peak", "mk,kn->mn", (("k", size), ("m", size), ("n", size)), "peak")
    found = timer.measure(Setting(square.einsum, element.name, None, [(a, b, d)], libraries).cublas())
    if found.median_us is None:
        raise RuntimeError(f"the matrix product that gives the peak failed: {found.error}")
    return square.flops(element) / (found.median_us * 1e-6)


def run(
    cases: Sequence[Case],
    dtype: str,
    *,
    precision: str | None = None,
    rivals: Sequence[str] = (),
    scale: float = 1.0,
    check: bool = True,
    label: str | None = None,
    budget_us: float = 150_000.0,
    ahead: bool = False,
) -> Run:
    """Time all rivals on all cases.

    Args:
        cases: What to compute, at full size; `scale` shrinks them.
        dtype: A key of `ELEMENT_TYPES`.
        precision: Passed to gett and, as far as they have it, to the rivals (`"tf32"`).
        rivals: Names of `KNOWN` to run, gett always; empty runs all of `ON_GPU`.
        scale: Share of each case's elements to keep.
        check: Whether gett's results are compared with a reference.
        label: The user's remark, for the record.
        budget_us: GPU time for one rival on one case.
        ahead: Whether gett's kernels are compiled before, on all cores; first calls then find them in the cache.
    """
    import cupy

    element = ELEMENT_TYPES[dtype]
    start = time.perf_counter()
    compiled = 0
    if ahead:
        small = [case.scaled(scale) for case in cases]
        compiled = compile_ahead(small, dtype, precision, device_facts().planning)
    compiled_s = time.perf_counter() - start
    libraries, filler = Libraries(), Filler(element)
    names = ["gett", *[r for r in (rivals or ON_GPU) if r != "gett"]]
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    with math_mode(precision, libraries), progress(len(cases) * len(names), dtype) as step:
        single = GpuTimer(budget_us=budget_us)
        result = Run(
            "gpu", dtype, precision, properties["name"].decode(), copy_bandwidth(single), 0.0, scale,
            environment=environment.describe(label),
        )  # fmt: skip
        _free()
        result.peak = gemm_peak(single, element, filler, libraries)
        _free()
        result.environment |= {
            "cuda_driver": cupy.cuda.runtime.driverGetVersion(),
            "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
            "l2_bytes": properties["l2CacheSize"],
            "clocks_before": environment.clocks(),
        }
        if ahead:
            result.environment |= {"compiled_ahead": compiled, "compiled_ahead_s": compiled_s}
        for case in cases:
            row = _row(case.scaled(scale), element, result)
            try:
                _time_case(row, case.scaled(scale), names, result, filler, libraries, step, check, budget_us)
            except Exception as error:  # e.g. out of memory: the next case may fit
                row.times.setdefault("gett", failure(error))
            result.rows.append(row)
            _free()
        result.environment["clocks_after"] = environment.clocks()
    if "cutensor" in vars(libraries):
        result.environment["cutensor"] = libraries.cutensor.version
    result.seconds = time.perf_counter() - start
    return result


def _row(case: Case, element: ElementType, run_: Run) -> Row:
    flops, moved = case.flops(element), case.bytes(element)
    roofline = max(moved / run_.bandwidth, flops / run_.peak) * 1e6
    return Row(case.name, case.einsum, dict(case.extents), case.bmnk, flops, moved, roofline, group=case.group)


def _time_case(
    row: Row,
    case: Case,
    names: Sequence[str],
    run_: Run,
    filler: Filler,
    libraries: Libraries,
    step: Step,
    check: bool,
    budget_us: float,
) -> None:
    import cupy

    element = ELEMENT_TYPES[run_.dtype]
    count = sets_to_rotate(row.bytes, int(run_.environment["l2_bytes"]))
    sets = [tuple(cupy.empty(s, element.storage) for s in case.shapes) for _ in range(count)]
    for i, (a, b, d) in enumerate(sets):
        filler.uniform(a, 3 * i + 1)
        filler.uniform(b, 3 * i + 2)
        poison(d.reshape(-1))
    setting = Setting(case.einsum, element.name, run_.precision, sets, libraries)
    timer = GpuTimer(count, budget_us=budget_us)
    for name in names:
        call: Call | None = None
        try:
            begin = time.perf_counter()
            call = KNOWN[name](setting)
            if name == "gett":
                call(0)
                cupy.cuda.get_current_stream().synchronize()
                row.plan = {"first_call_s": time.perf_counter() - begin, **_describe_plan(setting.plan)}
                if check:
                    _check(row, case, element, setting, call, filler)
            row.times[name] = timer.measure(call)
        except Exception as error:  # a rival that is missing or fails must not end the run
            row.times[name] = failure(error)
        del call  # frees its workspace before the next rival allocates
        _free()
        step(f"{case.name} {name}")


def _check(row: Row, case: Case, element: ElementType, setting: Setting, call: Any, filler: Filler) -> None:
    """The exact check on integers, then the bound on the random data, both on set 0, which keeps the random data."""
    import cupy

    a, b, d = setting.sets[0]

    def engine(x: Any, y: Any, out: Any) -> object:
        return call(0)

    try:
        filler.integer(a, 1)
        filler.integer(b, 2)
        differing = verify.check_exact(case, element, engine, a, b, d, cupy)
        filler.uniform(a, 1)
        filler.uniform(b, 2)
        worst = verify.check_bound(case, element, engine, a, b, d, cupy, tf32=setting.precision == "tf32")
    except Exception as error:  # of the reference, which needs room and what the array library has; gett ran before
        filler.uniform(a, 1)
        filler.uniform(b, 2)
        row.check_detail = f"unchecked: {type(error).__name__}: {error}"[:200]
        return
    row.check = "right" if differing == 0 and worst <= 1 else "WRONG"
    row.check_detail = f"{differing} elements differ on integers; largest error {worst:.3g} of its bound"


def _describe_plan(plan: Any) -> dict[str, Any]:
    """What gett chose, as plain data; an unknown plan object gives less."""
    found: dict[str, Any] = {"workspace_bytes": getattr(plan, "workspace_bytes", None)}
    steps = list(getattr(plan, "steps", None) or [])
    schedule = getattr(steps[0], "schedule", None) if steps else None
    if schedule is not None:
        found["schedule"] = encode(schedule)
    return found


def _free() -> None:
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
