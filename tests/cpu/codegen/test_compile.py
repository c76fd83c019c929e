"""Generated kernels of real plans, compiled without a GPU: no errors, no spills, no local memory, structs as packed.

`compile_kernel` raises on spills, and the resources of the cubin are checked besides. Equal texts are compiled once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from gett.codegen.index import ParamTable
from gett.codegen.params import ALPHA, BETA, NAMED, POINTERS, declare_params, pack_params
from gett.codegen.records import KernelSource
from gett.codegen.render import render_kernel
from gett.errors import CompileError
from gett.hw.archs import arch_facts
from gett.hw.dtypes import data_type
from gett.ir.gemm import make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.jit.compile import compile_uncached
from gett.schedule.mainloops.multistage import REGISTER_LIMIT, multistage_registers
from gett.schedule.spec.loader import RegisterStaged
from gett.schedule.spec.schedule import Schedule
from tests.cases import TILED, Case, Layout, by_name, reduced, tccg
from tests.schedules import multistage_candidates, spread

# K may be flattened in these.
TABLED = ("primes", "float32"), ("k-mismatch-primes", "float16"), ("k-mismatch-primes", "float32")
LONG = Case("long", "mk,nk->mn", {"m": 2000, "n": 1000, "k": 1000})  # of many k-tiles
QUARTERS = pytest.mark.parametrize("part", [pytest.param(i, marks=pytest.mark.slow) for i in range(4)])
REGISTERS = 255  # of a thread, on every architecture


@dataclass(frozen=True)
class Job:
    """A kernel to compile."""

    name: str
    arch: str
    schedule: Schedule
    source: KernelSource
    itemsize: int


def job(case: Case, dtype: str, arch: str, *, rank: int = 0, with_c: bool = False, precision: str = "ieee",
        table: bool = False) -> Job:  # fmt: skip
    plan = make_gemm_plan(case.contraction(dtype, with_c=Layout() if with_c else None, precision=precision))
    found = [s for s in multistage_candidates(plan, arch) if s.multistage.k_table >= table]
    schedule = spread(found, rank + 1)[min(rank, len(found) - 1)]
    name = f"{case.name} {dtype} {arch} {precision} #{rank}{' table' if table else ''}{' c' if with_c else ''}"
    return Job(name, arch, schedule, render_kernel(plan, schedule).source, data_type(dtype).bytes)


@cache
def jobs(every: bool) -> tuple[Job, ...]:
    """The first candidate of TCCG cases in float16, a selection of everything else; fewer cases unless `every`."""
    full = tccg()
    step = 5 if every else len(full)
    out = [job(c, "float16", "sm_90a" if i % 2 else "sm_80") for i, c in enumerate(full if every else full[:2])]
    for offset, dtype in enumerate(("float32", "float64", "complex64", "complex128", "int8", "int32", "int64", "bool")):
        for i, c in enumerate(full[offset % 5 :: step]):
            out.append(job(c, dtype, "sm_80" if i % 2 else "sm_90a", with_c=i == 1))
    out += [job(c, "float32", "sm_90a", precision="tf32") for c in full[2::step]]
    out += [job(c, "bfloat16", "sm_80") for c in full[4 :: 2 * step]]
    for i, c in enumerate(TILED if every else TILED[::5]):
        dtype = ("float16", "complex64", "float64", "int8")[i % 4]
        out.append(job(c, dtype, "sm_80" if i % 2 else "sm_90a", rank=i % 3, with_c=i % 5 == 0))
    # Every way of the kernels, whether or not the model would take it first.
    for arch in ("sm_80", "sm_90a"):
        for c in (reduced(full[13], 1 << 20), by_name("k-mismatch"), by_name("primes"), by_name("odd-box-along-k")):
            for dtype in ("float16", "float32"):
                out += [job(c, dtype, arch, rank=rank) for rank in range(3 if every else 1)]
        out += [job(by_name(n), d, arch, table=True) for n, d in TABLED]
        out += [job(LONG, dtype, arch) for dtype in ("float16", "float64", "complex128")]
    unique: dict[tuple[str, str], Job] = {}
    for j in out:
        unique.setdefault((j.arch, j.source.text), j)
    return tuple(unique.values())


WORDS = (
    "kKTable = true", "kSplit = true", "kSourceC = gett::kSourceVector", "kKRagged = true",
    "kCpAsync = false", "kMajorK = false", "kVecK = true", "kAhead = true", "kKTiles = 0", "WarpMma", "SimtMma",
)  # fmt: skip


def features(j: Job) -> set[tuple[str, str]]:
    """The ways through the kernels that a job takes, by architecture, and its type."""
    element = next(line for line in j.source.text.splitlines() if line.endswith(" Element;"))
    return {(j.arch, word) for word in WORDS if word in j.source.text} | {("", element)}


def tile_size(j: Job) -> int:
    """Sums of a tile; kernels of few are soon compiled."""
    m, n, _ = j.schedule.tiling.shape
    return m * n


def few() -> list[Job]:
    """Jobs that together have every feature; of those that add as many, one with a small tile."""
    some = jobs(every=False)
    missing = set().union(*map(features, some))
    out = []
    while missing:
        out.append(max(some, key=lambda j: (len(features(j) & missing), -tile_size(j))))
        missing -= features(out[-1])
    return out


def estimate(j: Job) -> int:
    """Registers of a thread, as the search counts them."""
    return multistage_registers(j.schedule.tiling, j.schedule.multistage, j.itemsize)


def quarter(part: int) -> list[Job]:
    """A quarter of all jobs, with light and heavy ones."""
    return sorted(jobs(every=True), key=estimate)[part::4]


def compile_jobs(chosen: Iterable[Job]) -> dict[str, bytes | CompileError]:
    """The cubin, or the error, of each job."""

    def run(j: Job) -> tuple[str, bytes | CompileError]:
        try:
            return j.name, compile_kernel(j.source, j.arch)
        except CompileError as error:
            return j.name, error

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(run, chosen))


def check(j: Job, cubin: bytes | CompileError) -> None:
    assert isinstance(cubin, bytes), f"{j.name}: {cubin}"
    found = resources(cubin)
    assert set(found) == set(j.source.entries), j.name
    facts = arch_facts(j.arch)
    for entry in found.values():
        assert entry.local_bytes == 0, j.name
        assert 0 < entry.registers <= REGISTERS, j.name
    main = found["gett_tiled"]
    # What the register file is handed out in; a block that does not fit could not be launched.
    assert -(-main.registers // 8) * 8 * j.schedule.threads <= facts.regs_per_sm, j.name
    assert main.shared_bytes + j.schedule.smem.size <= facts.smem_per_block, j.name


@pytest.mark.slow
def test_a_kernel_with_most_features_compiles_without_spills() -> None:
    chosen = few()[:1]
    found = compile_jobs(chosen)
    for j in chosen:
        check(j, found[j.name])


@QUARTERS
def test_kernels_compile_without_spills(part: int) -> None:
    chosen = quarter(part)
    found = compile_jobs(chosen)
    for j in chosen:
        check(j, found[j.name])


@pytest.mark.slow
def test_few_kernels_have_every_feature_of_all() -> None:
    assert set().union(*map(features, few())) == set().union(*map(features, jobs(every=True)))


@pytest.mark.slow
def test_the_selection_meets_every_kind_of_kernel() -> None:
    some = jobs(every=False)
    met = set().union(*map(features, some))
    assert {(arch, word) for arch in ("sm_80", "sm_90a") for word in WORDS} <= met
    loaders = [x for j in some for x in (j.schedule.multistage.a, j.schedule.multistage.b)]
    staged = [x for x in loaders if isinstance(x, RegisterStaged)]
    assert any(x.walk and x.vector > 1 for x in staged)
    assert any(x.vector == 1 for x in staged)
    elements = {name.removeprefix("  typedef ").removesuffix(" Element;") for arch, name in met if not arch}
    dtypes = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int8", "int32", "int64", "bool")
    assert elements == {data_type(d).cpp for d in dtypes}


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("wide", [False, True])
def test_the_compiler_lays_the_argument_out_as_it_is_packed(dtype: str, wide: bool) -> None:
    table = ParamTable()
    for s in (7, 2**40 if wide else 9, -3):
        table.stride(s)
    for d in (3, 5):
        table.divisor(d)
    table.count(17)
    names = {"one": 1, "two": 2, "three": 3}
    size = len(pack_params(names, table))
    first = NAMED + 4 * 4
    after = first + 3 * (8 if wide else 4)
    offsets = {**dict(POINTERS), "alpha": ALPHA, "beta": BETA, "one": NAMED, "two": NAMED + 4, "s": first, "f": after,
               "i": after + 24}  # fmt: skip
    checks = "".join(f'static_assert(__INTADDR__(&((Params*)0)->{m}) == {at}, "{m}");\n' for m, at in offsets.items())
    text = (
        f'#include "gett/core/index.cuh"\n{declare_params(tccg()[0].contraction(dtype), names, table)}'
        f'static_assert(sizeof(Params) == {size}, "size");\n{checks}'
        'extern "C" __global__ void k(const __grid_constant__ Params p) {}\n'
    )
    assert resources(compile_kernel(KernelSource(text, ("k",)), "sm_80"))["k"].local_bytes == 0
    with pytest.raises(CompileError, match="size"):
        compile_kernel(KernelSource(text.replace(f"== {size}", f"== {size + 16}"), ("k",)), "sm_80")


def test_shared_memory_is_what_the_schedule_reserves() -> None:
    """The template's own account equals the schedule's, to the byte, where K is not split."""
    sources = {}
    for i, case in enumerate(TILED[::2]):
        plan = make_gemm_plan(case.contraction(("float16", "complex64", "int8")[i % 3], with_c=Layout()))
        whole = [s for s in multistage_candidates(plan, "sm_80") if s.split_k == 1]
        for s in whole[:1]:
            text = render_kernel(plan, s).source.text
            account = "Smem::kOffsets + Epilogue::kOffsetsBytes == Smem::kSize"
            declarations = text.partition('\nextern "C"')[0]
            sources[f'{declarations}\nstatic_assert({account}, "shared memory");\n'] = s
    assert len(sources) > 5
    for text in sources:
        compile_uncached(f'{text}extern "C" __global__ void k() {{}}\n', "sm_80")


@QUARTERS
def test_the_estimate_of_registers_is_not_blind(part: int) -> None:
    """Where much is estimated much is used: the estimate is what keeps spilling tiles away from the compiler."""
    pairs = []
    chosen = quarter(part)
    cubins = compile_jobs(chosen)
    for j in chosen:
        cubin = cubins[j.name]
        if isinstance(cubin, bytes):
            pairs.append((estimate(j), resources(cubin)["gett_tiled"].registers))
    heavy = [used for expected, used in pairs if expected > 0.8 * REGISTER_LIMIT]
    light = [used for expected, used in pairs if expected < 0.5 * REGISTER_LIMIT]
    assert len(heavy) > 2
    assert len(light) > 2
    assert sum(heavy) / len(heavy) > 1.5 * sum(light) / len(light)


def test_data_of_the_cases_is_in_the_tree() -> None:
    path = Path(__file__).parents[3] / "benchmarks" / "data" / "tccg.json"
    assert [c.name for c in tccg()] == [c["name"] for c in json.loads(path.read_text(encoding="utf-8"))["cases"]]
    assert len(tccg()) == 25
