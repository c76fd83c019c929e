"""Kernels that the compiler gives too few registers at first: they are compiled again, sparing, and compile well then.

Each contraction here had a poor first candidate: it spilled, or its wgmma were serialised. What a sparing kernel finds
anew must be what the other keeps: the walk through registers is run on the host both ways.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import gett
import gett.jit.compile
from gett.codegen.render import render_kernel
from gett.errors import PoorKernelError, SpillError
from gett.ir.gemm import make_gemm_plan
from gett.jit import resources
from gett.jit.compile import FEWER_BLOCKS, KEEP_PACKED, OPTIONS, SPARING, compile_uncached
from gett.jit.nvrtc import Outcome
from gett.jit.ptxas import find_faults
from gett.schedule.search.select import candidates
from gett.schedule.spec.loader import RegisterStaged
from gett.schedule.spec.schedule import Schedule
from tests.cases import TILED, Case, Layout, tccg
from tests.cpu.host_cuda import generated, includes, run_host
from tests.schedules import multistage_candidates


def of(subscripts: str, **extents: int) -> Case:
    return Case(subscripts, subscripts, extents)


# Case, type, whether C is added.
POOR = (
    # Gathered, 128 accumulators a thread.
    (of("jlwte,ftrpl->rfewpj", j=16, l=11, w=11, t=29, e=70, f=38, r=3, p=39), "float16", False),
    (of("ligr,ialh->argh", l=36, i=14, g=18, r=94, a=8, h=180), "bfloat16", False),
    # Gathered and turned, one stage: serialised; both; spilling.
    (of("pjwe,ewvj->vp", p=41, j=31, w=11, e=131, v=215), "float16", False),
    (of("tor,rdyo->tyd", t=209, o=257, r=27, d=91, y=9), "float16", True),
    (of("zcbq,jtqb->ctzj", z=39, c=25, b=5, q=67, j=23, t=235), "float16", False),
    # By tensor map, with C and without.
    (of("lwy,xkyzi->ikzwlx", l=112, w=8, y=240, x=56, k=4, z=4, i=8), "bfloat16", True),
    (of("pewr,mqehkr->hkpmwq", p=111, e=3, w=9, r=232, m=2, q=71, h=4, k=5), "bfloat16", False),
    # Through registers.
    (of("gojqr,hrxj->ghqox", g=36, o=2, j=128, q=5, r=110, h=38, x=9), "float16", False),
    (of("gojqr,hrxj->ghqox", g=82, o=6, j=24, q=6, r=22, h=14, x=62), "float16", False),
)


# A map whose operands are single bytes of shared memory.
POOR_MAPS = (("dgf,dfebc->gdebfc", ((31, 31, 8), (31, 8, 8, 31, 8))),)


def first(case: Case, dtype: str, with_c: bool) -> str:
    """Text of the model's first choice."""
    plan = make_gemm_plan(case.contraction(dtype, with_c=Layout() if with_c else None))
    return render_kernel(plan, candidates(plan, "sm_90a")[0]).source.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "dtype", "with_c"),
    POOR,
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_what_was_poor_compiles_well(case: Case, dtype: str, with_c: bool) -> None:
    made = compile_uncached(first(case, dtype, with_c), "sm_90a")
    assert not find_faults(made.log)
    assert all(needs.local_bytes == 0 for needs in resources(made.cubin).values())


@pytest.mark.slow
@pytest.mark.parametrize(("subscripts", "shapes"), POOR_MAPS)
def test_a_map_that_spilled_compiles_well_sparing(subscripts: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    (step,) = gett.plan(subscripts, *((shape, "int8") for shape in shapes), arch="sm_90a").steps
    assert step.schedule is not None
    text = render_kernel(step.gemm, step.schedule).source.text
    with pytest.raises(SpillError, match="spills registers"):
        compile_uncached(text, "sm_90a", sparing=False)
    spared = compile_uncached(text, "sm_90a", sparing=True)
    assert all(needs.local_bytes == 0 for needs in resources(spared.cubin).values())
    assert compile_uncached(text, "sm_90a").cubin == spared.cubin


@pytest.mark.slow
def test_good_kernels_are_compiled_once_and_spare_nothing() -> None:
    text = first(tccg()[0], "float16", False)
    once = compile_uncached(text, "sm_90a", allow_spills=True).cubin
    assert compile_uncached(text, "sm_90a").cubin == once
    assert compile_uncached(text, "sm_90a", options=(*OPTIONS, SPARING)).cubin != once


PROGRAM = r"""
KERNEL
template <bool kIsA> void run(const Params& p) {
  using namespace gett;
  typedef BatchedIndex<EpilogueTraits, Index, (TileShape::kBatch > 1)> Where;
  typedef RegisterLoader<BatchedOperands<MainloopTraits>, Where, kIsA> Load;
  static char stage[Load::kBytes];
  for (int t = 0; t < 2; ++t) {
    const auto lt = Index::l_tile(p, 0);
    const auto rows = Where::rows(lt, Index::m_tile(p, t % p.tiles_m));
    const auto columns = Where::columns(lt, Index::n_tile(p, t % p.tiles_n));
    for (int thread = 0; thread < MainloopTraits::kThreads; ++thread) {
      Load load;
      if constexpr (kIsA) load.init(p, p.a + rows.a, rows, thread); else load.init(p, p.b + columns.b, columns, thread);
      for (int kt = 0; kt < p.k_tiles; ++kt) {  // what a k-tile lacks keeps what was there before
        load.fetch(p, Index::k_tile(p, kt), 0, thread);
        load.store(p, stage, thread);
      }
    }
    fwrite(stage, 1, sizeof(stage), stdout);
  }
}
int main() {
  static Params p;
  fread(&p, 1, sizeof(p), stdin);
  static unsigned short memory[1 << 20];
  for (int i = 0; i < 1 << 20; ++i) memory[i] = i * 40503u >> 3;
  p.a = p.b = (const ProblemTraits::Element*)memory;
  CALLS
}
"""


def walks(schedule: Schedule) -> str:
    """The operands that go through registers."""
    loaders = {"a": schedule.multistage.a, "b": schedule.multistage.b}
    return "".join(name for name, x in loaders.items() if isinstance(x, RegisterStaged))


def walked() -> list[tuple[Case, Schedule]]:
    """Of schedules that walk operands without a table, one of each kind."""
    found: dict[tuple[object, ...], tuple[Case, Schedule]] = {}
    for case in TILED:
        plan = make_gemm_plan(case.contraction("float16"))
        if any(s.strides[t] < 0 for g in (plan.l, plan.m, plan.n, plan.k) for s in g for t in (0, 1)):
            continue
        for s in multistage_candidates(plan, "sm_80"):
            if not s.multistage.tensor_cores or s.multistage.k_table or not walks(s) or plan.bytes > 1 << 20:
                continue
            ragged = any(d.box > 1 and not s.tiling.k.divides(i) for i, d in enumerate(s.tiling.k.dims))
            loader = next(x for x in (s.multistage.a, s.multistage.b) if isinstance(x, RegisterStaged))
            kind = (ragged, s.tiling.batches > 1, loader.vector > 1, loader.major == loader.vector_group)
            found.setdefault(kind, (case, s))
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 99])
def test_a_sparing_walk_stores_what_the_other_stores(most: int, tmp_path: Path) -> None:
    headers = includes("core/batched", "loader/register")
    cases = sorted(walked(), key=lambda x: x[1].tiling.batches == 1)
    assert len(cases) >= 4
    assert cases[0][1].tiling.batches > 1
    for number, (case, schedule) in enumerate(cases[:most]):
        kernel = render_kernel(make_gemm_plan(case.contraction("float16")), schedule)
        calls = "".join(f"run<{str(name == 'a').lower()}>(p);" for name in walks(schedule))
        body = headers + PROGRAM.replace("KERNEL", generated(kernel)).replace("CALLS", calls)
        images = []
        for sparing in (False, True):
            folder = tmp_path / f"{number}{sparing}"
            folder.mkdir()
            images.append(run_host(folder, body, kernel.launches[0].params, sparing=sparing))
        assert any(images[0]), case.name
        assert images[0] == images[1], case.name


AGAIN = (KEEP_PACKED, FEWER_BLOCKS, SPARING)
MULTISTAGE = '#include "gett/kernel/multistage_gemm.cuh"\n'
BLOCKS = 'extern "C" __global__ void __launch_bounds__(256 GETT_MIN_BLOCKS) {}(int* p) {{ *p = 1; }}\n'
OF = 'extern "C" __global__ void __launch_bounds__(256 GETT_MIN_BLOCKS_OF({})) main_one(int* p) {{ *p = 1; }}\n'
FIXED = 'extern "C" __global__ void __launch_bounds__(512, 1) main_one(int* p) { *p = 1; }\n'

SPILLING = """ptxas info    : Compiling entry function 'main_one' for 'sm_90a'
ptxas info    : Function properties for main_one
    16 bytes stack frame, 20 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 128 registers
"""


@pytest.mark.parametrize(
    ("kernels", "turns"),
    [
        (FIXED, [[SPARING]]),
        (BLOCKS.format("main_one"), [[FEWER_BLOCKS], [SPARING]]),
        (BLOCKS.format("main_one") + BLOCKS.format("reduce"), [[FEWER_BLOCKS], [SPARING]]),
        (FIXED + BLOCKS.format("reduce"), [[FEWER_BLOCKS, SPARING]]),  # the first alone would give the same main kernel
        (MULTISTAGE + OF.format(3), [[KEEP_PACKED], [FEWER_BLOCKS], [SPARING]]),
        (MULTISTAGE + OF.format(1), [[KEEP_PACKED], [SPARING]]),  # no fewer than one
        (MULTISTAGE + OF.format(1) + BLOCKS.format("reduce"), [[KEEP_PACKED], [FEWER_BLOCKS, SPARING]]),
    ],
    ids=["fixed", "blocks", "both", "the sum of slices alone", "three blocks", "one block", "one block and a sum"],
)
def test_a_poor_kernel_is_compiled_again_where_that_can_change_it(
    kernels: str, turns: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[str]] = []

    class Poor:
        version, architectures = (13, 0), (90,)

        def compile(self, text: str, name: str, headers: object, options: list[str]) -> Outcome:
            given.append([x for x in options if x in AGAIN])
            return Outcome("", SPILLING, b"", "")

    monkeypatch.setattr(gett.jit.compile, "load_nvrtc", lambda toolkit: Poor())
    monkeypatch.setattr(gett.jit.compile, "resources", lambda cubin: {})
    text = '#include "gett/core/types.cuh"\n' + kernels
    with pytest.raises(SpillError):
        compile_uncached(text, "sm_90a")
    assert given == [[x for turn in turns[:i] for x in turn] for i in range(len(turns) + 1)]
    given.clear()
    with pytest.raises(SpillError):
        compile_uncached(text, "sm_90a", sparing=True)
    assert given == [[x for turn in turns[:i] for x in turn] for i in range(1, len(turns) + 1)]


def test_launch_bounds_ask_for_fewer_blocks_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def touched(ptx: str) -> list[str]:
        asked.extend(line.split()[1] for line in ptx.splitlines() if line.startswith(".minnctapersm"))
        return ["a fault"]

    monkeypatch.setattr(gett.jit.compile, "touched_in_flight", touched)
    with pytest.raises(PoorKernelError):
        compile_uncached(MULTISTAGE + OF.format(3), "sm_90a")
    assert asked == ["3", "3", "2", "1"]
