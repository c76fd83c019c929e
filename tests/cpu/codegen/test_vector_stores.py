"""Neighbours that a thread has are stored as one: partial tiles of split-K, and their sums."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import benchmarks
from benchmarks.schedule_times import Problem, read
from gett.codec import decode
from gett.codegen.render import render_kernel
from gett.ir.gemm import GemmPlan
from gett.jit import compile as compile_module
from gett.jit.nvrtc import load_nvrtc
from gett.jit.toolkit import find_toolkit
from gett.schedule.search.select import select_schedule
from gett.schedule.spec.mainloop import StreamMap
from gett.schedule.spec.schedule import Schedule

TIMED = Path(benchmarks.__file__).parent / "data" / "h200-times.json.gz"


@cache
def slices() -> dict[str, tuple[GemmPlan, Schedule]]:
    """Of each main loop with pairs of sums in a thread, a schedule that has slices and stores vectors along N."""
    found: dict[str, tuple[GemmPlan, Schedule]] = {}
    for case in read(TIMED)["cases"]:
        for timed in case["schedules"]:
            s = decode(Schedule, timed["schedule"])
            if s.split_k == 1 or s.packing is not None or s.epilogue.store.vector == 1 or s.kind in ("simt", *found):
                continue
            plan = Problem.of(case).gemm("sm_90a")
            if "kPartialsAlongM = false" in render_kernel(plan, s).source.text:
                found[s.kind] = plan, s
    return found


def stores(text: str) -> dict[str, list[str]]:
    """The stores to global memory by kernel, as PTX has them."""
    toolkit = find_toolkit()
    options = [*compile_module.OPTIONS, "--gpu-architecture=sm_90a"]
    options += [f"--include-path={toolkit.include}"] if toolkit.include is not None else []
    ptx = load_nvrtc(toolkit).compile(text, "kernel.cu", compile_module.kernel_headers(), options).ptx
    parts = [part.partition("(") for part in ptx.split(".entry ")[1:]]
    return {name: re.findall(r"\bst\.global[\w.]*", body) for name, _, body in parts}


@pytest.mark.parametrize("kind", ["wgmma ss", "wgmma tf32", "wgmma split", "dmma tma", "mma.sync"])
def test_partial_tiles_and_sums_are_stored_as_vectors(kind: str) -> None:
    plan, schedule = slices()[kind]
    for name, made in stores(render_kernel(plan, schedule).source.text).items():
        assert made, name
        assert all(".v2." in x or ".v4." in x for x in made), (name, made[:4])


@pytest.mark.parametrize(
    ("subscripts", "extents", "dtype"),
    [
        ("a,bcd->bcda", {"a": 512, "b": 61, "c": 13, "d": 9}, "float32"),
        ("abc,def->afcdbe", {"a": 5, "b": 8, "c": 13, "d": 24, "e": 16, "f": 7}, "complex64"),
        ("a,bc->acb", {"a": 61, "b": 128, "c": 96}, "float16"),
    ],
)
def test_vectors_of_a_map_are_stored_as_one(subscripts: str, extents: dict[str, int], dtype: str) -> None:
    plan = Problem("map", subscripts, tuple(extents.items()), dtype).gemm("sm_90a")
    schedule = select_schedule(plan, "sm_90a")
    assert isinstance(schedule.mainloop, StreamMap)
    assert schedule.mainloop.vector > 1
    (made,) = stores(render_kernel(plan, schedule).source.text).values()
    assert made
    assert all(".v2." in x or ".v4." in x for x in made), made
