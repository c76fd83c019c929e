"""Epilogues in kernels: the function at every accumulator of every kind of fragment, run on the host; good kernels."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gett
from gett import ops
from gett.codegen.records import Kernel
from gett.codegen.render import render_kernel
from gett.codegen.traits import scheduler_class
from gett.hw.dtypes import is_complex
from gett.ir.gemm import EXTRA, GemmPlan, itemsize
from gett.jit import compile_uncached, resources
from gett.jit.ptxas import is_serialised
from gett.runtime.compiling import compile_best
from gett.schedule.lower import lower_plan
from gett.schedule.spec.mainloop import Multistage, Stream, StreamMatrix
from gett.schedule.spec.stream_views import output_modes
from layouts.box import Box
from tests.cpu.host_cuda import generated, includes, run_host
from tests.epilogues import TENSORS, buffer_of, clipped, most_of, with_epilogue
from tests.sampling import slow_but
from tests.specs import Spec, covering, first_kernels, kernel_specs, specs, tile_size

KINDS = (
    "dmma tma",
    "mma.sync",
    "simt",
    "stream map",
    "stream matrix",
    "stream sum",
    "wgmma rs",
    "wgmma split",
    "wgmma ss",
    "wgmma tf32",
)
READ = """
INSIDE
using namespace gett;
TRAITS
typedef Traits::Acc Acc;
static void* tensors[16];
static int read;
template <class T> const T* tensor() {
  int count, start;
  if (fread(&count, 4, 1, stdin) != 1 || fread(&start, 4, 1, stdin) != 1) exit(2);
  T* const x = new T[count];
  tensors[read++] = x;
  if (fread((void*)x, sizeof(T), count, stdin) != size_t(count)) exit(3);
  return x + start;
}
static Acc before(int m, int n) { return Acc((m * 3 + n * 5) % 7 - 3); }
static void found(int m, int n, Acc x) {
  const int at[2] = {m, n};
  fwrite(at, 4, 2, stdout);
  fwrite(&x, sizeof x, 1, stdout);
}
int main() {
  Params p;
  if (fread(&p, sizeof p, 1, stdin) != 1) return 4;
  TENSORS
  int job[3];
  while (fread(job, 4, 3, stdin) == 3) {
    const TileId id = {job[0], job[1], job[2], 0};
    BODY
  }
}
"""
WGMMA = """
    const int groups = Traits::kPingPong ? 1 : Traits::kConsumerWarpgroups;
    for (int tile = 0; tile < Traits::kMmaTilesPerStoreTile; ++tile)
      for (int thread = 0; thread < 128 * groups; ++thread) {
        const int block = thread / 128 * Traits::kMmaM, lane = thread % 128, rows = tile * Traits::kBoxM;
        Acc acc[Traits::kMmaM][Traits::kBlockN / 2];
        int at[Traits::kMmaM][Traits::kBlockN / 2];
        for (int i = 0; i < Traits::kMmaM; ++i)
          for (int j = 0; j < Traits::kBlockN / 2; ++j) {
            const int m = FragmentRows<Traits>::at(block, i, lane / 32 * 16 + lane % 32 / 4 + (j & 2) * 4);
            at[i][j] = m < Traits::kBoxM ? m + rows : -1;
            acc[i][j] = before(m + rows, j / 4 * 8 + lane % 4 * 2 + j % 2);
          }
        StagedEpilogue<Traits, Index, SCHEDULER<SchedulerTraits>>::finish_sums(p, id, acc, block, lane, rows);
        for (int i = 0; i < Traits::kMmaM; ++i)
          for (int j = 0; j < Traits::kBlockN / 2; ++j)
            if (at[i][j] >= 0) found(at[i][j], j / 4 * 8 + lane % 4 * 2 + j % 2, acc[i][j]);
      }
"""
MULTISTAGE = """
    const TileOp<Traits, Index> function(p, id);
    const int warps = MainloopTraits::kWarpsM * MainloopTraits::kWarpsN;
    for (int batch = 0; batch < Traits::kBatch; ++batch)
      for (int warp = 0; warp < warps; ++warp)
        for (int lane = 0; lane < 32; ++lane) {
          MMA<MainloopTraits> mma;
          mma.init(warp, lane, batch);
          VISIT;
          for (int i = 0; i < mma.kRows; ++i)
            for (int j = 0; j < mma.kColumns; ++j) mma.set(i, j, before(mma.row(i), mma.column(j)));
          function.apply(mma, [](Acc x) { return x; });
          for (int i = 0; i < mma.kRows; ++i)
            for (int j = 0; j < mma.kColumns; ++j) found(mma.row(i), mma.column(j), mma.get(i, j));
        }
"""
# Accumulators are numbered through rows and columns, and the kernel's own visit must find the numbers there.
VISIT = """
          for (int i = 0; i < mma.kRows; ++i)
            for (int j = 0; j < mma.kColumns; ++j) mma.set(i, j, Acc(i * mma.kColumns + j));
          int visits = 0;
          mma.visit([&](int m, int n, const auto& neighbours) {
            for (Acc x : neighbours.x) {
              const int i = int(x) / mma.kColumns, j = int(x) % mma.kColumns;
              if (m != mma.row(i) || n++ != mma.column(j)) exit(5);
              ++visits;
            }
          });
          if (visits != mma.kRows * mma.kColumns) exit(6)"""
STREAM = """
    const auto t = Index::o_tile(p, id.m);
    const OutputOp<Traits, Index, decltype(t)> function{p, t};
    for (int o = 0; o < Traits::kBox; ++o)
      if (Index::o_ok(p, t, o)) found(o, 0, function(o, before(o, 0)));
"""


MATRIX = """
    const TileOp<Traits, Index> function(p, id);
    const auto t = Index::m_tile(p, id.m);
    for (int m = 0; m < Traits::kBox; ++m)
      for (int n = 0; n < Traits::kN; ++n)
        if (Index::m_ok(p, t, m)) found(m, n, function(m, n, before(m, n)));
"""


def program(kernel: Kernel, spec: Spec) -> str:
    loop = spec.schedule.mainloop
    if isinstance(loop, Stream):
        headers, body = includes("core/index", "epilogue/epilogue_op"), STREAM
    elif isinstance(loop, StreamMatrix):
        headers, body = includes("core/index", "epilogue/epilogue_op"), MATRIX
    elif isinstance(loop, Multistage):
        mma, header = ("WarpMma", "mma_sync") if loop.tensor_cores else ("SimtMma", "simt")
        headers, body = includes("core/index", "core/swizzle", "epilogue/epilogue_op", f"mainloop/{header}"), MULTISTAGE
        body = body.replace("MMA", mma).replace("VISIT", VISIT)
    else:
        headers, body = (
            includes("core/index", "ptx/tma", "epilogue/tma_store"),
            WGMMA.replace("SCHEDULER", scheduler_class(spec.schedule)),
        )
    inside = generated(kernel)
    count = len({role for role, _ in kernel.launches[0].pointers if role.startswith("x")})
    reads = "".join(f"p.x{i} = tensor<std::remove_const_t<std::remove_pointer_t<decltype(p.x{i})>>>();\n"
                    for i in range(count))  # fmt: skip
    traits = "" if isinstance(loop, Stream | StreamMatrix) else "typedef EpilogueTraits Traits;"
    text = READ.replace("INSIDE", inside).replace("TRAITS", traits).replace("TENSORS", reads).replace("BODY", body)
    return f"#include <type_traits>\n{headers}{text}"


def coordinates(box: Box, tile: int, count: int) -> list[tuple[int, ...] | None]:
    """Of the indices of a tile, None for padding."""
    return [box.coordinates(tile, i) if i < box.size else None for i in range(count)]


def offset(modes: Any, at: tuple[int, ...], tensor: int, size: int) -> int:
    return sum(x * s.strides[tensor] for x, s in zip(at, modes, strict=True)) // size


def expected(spec: Spec, plan: GemmPlan, job: tuple[int, int, int], buffers: list[tuple[Any, int]]) -> dict[Any, float]:
    """The value at each place of a tile that is no padding."""
    s, lowered = spec.schedule, lower_plan(plan, spec.schedule.tiling)
    t, extras = s.tiling, plan.contraction.extras
    function = clipped(most_of(spec.dtype))
    if isinstance(s.mainloop, Stream):
        rows = [(i, 0, x) for i, x in enumerate(coordinates(t.m, job[0], t.m.size)) if x is not None]
        columns: list[tuple[int, tuple[int, ...]]] = [(0, ())]
        groups: tuple[Any, Any, Any] = (output_modes(lowered), (), ())
        batches: list[tuple[int, ...]] = [()]
    else:
        batches = [_digits(job[2], [x.extent for x in lowered.l])]
        if t.l is not None:
            batches = [x for x in coordinates(t.l, job[2], t.batches) if x is not None]
        inside = coordinates(t.m, job[0], t.m.size)
        rows = [(b * t.shape[0] + i, b, x) for b in range(len(batches)) for i, x in enumerate(inside) if x is not None]
        columns = [(i, x) for i, x in enumerate(coordinates(t.n, job[1], t.n.size)) if x is not None]
        groups = (lowered.m, lowered.n, lowered.l)
    out = {}
    m = np.array([[i] for i, _, _ in rows])
    n = np.array([i for i, _ in columns])
    values: list[Any] = [((m * 3 + n * 5) % 7 - 3).astype(np.float64)]
    for i, (operand, (buffer, start)) in enumerate(zip(extras, buffers, strict=True)):
        size = itemsize(operand.dtype)
        row = [
            offset(groups[0], x, EXTRA + i, size) + offset(groups[2], batches[b], EXTRA + i, size) for _, b, x in rows
        ]
        column = [offset(groups[1], x, EXTRA + i, size) for _, x in columns]
        values.append(buffer[start + np.add.outer(row, column)].astype(np.float64))
    found = function(*values)
    for i, (row_at, _, _) in enumerate(rows):
        for j, (column_at, _) in enumerate(columns):
            out[row_at, column_at] = found[i, j]
    return out


def _digits(number: int, extents: list[int]) -> tuple[int, ...]:
    out = []
    for e in extents:
        out.append(number % e)
        number //= e
    return tuple(out)


@cache
def covered() -> dict[str, list[Spec]]:
    """Kernels of the catalogue on real numbers with every part of them, by what multiplies."""
    out: dict[str, list[Spec]] = {}
    for spec in covering([x for x in kernel_specs() if not is_complex(x.dtype)], pairs=False):
        out.setdefault(spec.schedule.kind, []).append(spec)
    return out


@pytest.mark.parametrize("kind", slow_but(KINDS, KINDS[::3]))
def test_the_function_is_applied_where_the_accumulators_belong(kind: str, tmp_path: Path) -> None:
    found = (*first_kernels(), *specs("stream"))
    real = (spec for spec in found if spec.schedule.kind == kind and not is_complex(spec.dtype))
    check(min(real, key=tile_size), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_fragment_is_known(kind: str, tmp_path: Path) -> None:
    for i, spec in enumerate(covered()[kind]):
        (tmp_path / str(i)).mkdir()
        check(spec, tmp_path / str(i))


@pytest.mark.slow
def test_kinds_are_those_of_the_catalogue() -> None:
    assert sorted(covered()) == sorted(KINDS)


def check(spec: Spec, tmp_path: Path) -> None:
    """First and last tiles, with edges that hang over and padded rows; tensors of every kind.

    Tiles that a cluster makes beyond the last read nothing, which the sanitizer would see.
    """
    plan = with_epilogue(spec.plan, clipped(most_of(spec.dtype)), TENSORS)
    kernel = render_kernel(plan, spec.schedule)
    buffers = [buffer_of(x, plan.contraction.extents, 3 + i) for i, x in enumerate(plan.contraction.extras)]
    t = spec.schedule.tiling
    last_l = (t.l.tiles if t.l is not None else lower_plan(plan, t).extent_l) - 1
    jobs = sorted({(0, 0, 0), (t.m.tiles - 1, t.n.tiles - 1, last_l)})
    cluster = getattr(spec.schedule, "cluster", (1, 1))
    surplus = [(t.m.tiles, 0, 0)] * (cluster[0] > 1) + [(0, t.n.tiles, 0)] * (cluster[1] > 1)
    data = kernel.launches[0].params
    for buffer, start in buffers:
        data += struct.pack("<2i", buffer.size, start) + buffer.tobytes()
    data += b"".join(struct.pack("<3i", *job) for job in [*jobs, *surplus])
    output = run_host(tmp_path, program(kernel, spec), data)
    found = np.frombuffer(output, [("m", "<i4"), ("n", "<i4"), ("x", "<f8" if spec.dtype == "float64" else "<f4")])
    checked = 0
    wanted = [expected(spec, plan, job, buffers) for job in jobs]
    # Places of one tile are all different, so the tiles are told apart by their first place.
    count = len(found) // (len(jobs) + len(surplus))
    for number, job_wanted in enumerate(wanted):
        got = {(int(m), int(n)): float(x) for m, n, x in found[number * count : (number + 1) * count]}
        if isinstance(spec.schedule.mainloop, Stream | StreamMatrix):
            got = {(int(m), int(n)): float(x) for m, n, x in _split(found, [len(w) for w in wanted])[number]}
        for place, value in job_wanted.items():
            assert got[place] == value, (place, jobs[number])
            checked += 1
    assert checked == sum(map(len, wanted)) > 0


def _split(found: Any, counts: list[int]) -> list[Any]:
    ends = np.cumsum(counts)
    return [found[e - c : e] for e, c in zip(ends, counts, strict=True)]


def gelu_of_sum(d: Any, bias: Any) -> Any:
    return ops.gelu(d + bias)


def over(d: Any, energies: Any) -> Any:
    return d / energies


# Operands, the type, the function, the tensor that it reads; one for each family.
COMPILED = {
    "wgmma": ("bsd,df->bsf", [(8, 2048, 1024), (1024, 4096)], "float16", gelu_of_sum, (4096,)),
    "wgmma-full": ("abef,ijef->ijab", [(64,) * 4, (32, 32, 64, 64)], "float16", over, (32, 32, 64, 64)),
    "split-k": ("ij,jk->ik", [(64, 100_000), (100_000, 64)], "float16", gelu_of_sum, (64,)),
    "tf32": ("ij,jk->ik", [(512, 512), (512, 512)], "float32", gelu_of_sum, (512,)),
    "float64": ("abef,ijef->ijab", [(32,) * 4, (16, 16, 32, 32)], "float64", over, (16, 16, 32, 32)),
    "simt": ("abef,ijef->ijab", [(32,) * 4, (16, 16, 32, 32)], "float32", over, (16, 16, 32, 32)),
    "complex64": ("ij,jk->ik", [(256, 128), (128, 256)], "complex64", over, (256,)),
    "complex128": ("abef,ijef->ijab", [(32,) * 4, (16, 16, 32, 32)], "complex128", over, (16, 16, 32, 32)),
    "map": ("ij->ji", [(4096, 4096)], "float32", gelu_of_sum, (4096,)),
    "sum": ("ij->j", [(4096, 4096)], "float32", gelu_of_sum, (4096,)),
}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", COMPILED)
def test_kernels_compile_without_spills(name: str, arch: str) -> None:
    subscripts, shapes, dtype, function, extra = COMPILED[name]
    arrays = [np.broadcast_to(np.ones((), dtype), shape).copy() for shape in shapes]
    real = np.zeros((), dtype).real.dtype
    precision = "tf32" if name == "tf32" else None
    plan = gett.plan(
        subscripts, *arrays, arch=arch, precision=precision, epilogue=function, epilogue_args=(np.ones(extra, real),)
    )
    (step,) = plan.steps
    made = compile_best(step.gemm, arch)
    assert not made.spills
    assert "EpilogueOp" in made.kernel.source.text
    assert ("x0" in dict(made.kernel.launches[-1].pointers)) is True
    assert resources(made.cubin)[made.kernel.launches[0].entry].local_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("wgmma")])
def test_functions_leave_the_products_of_wgmma_alone(kind: str) -> None:
    """Results of a tile must not stay where the next tile's accumulators are: products would wait, or sums be lost."""
    for spec in covered()[kind]:
        plan = with_epilogue(spec.plan, clipped(most_of(spec.dtype)), TENSORS)
        text, arch = render_kernel(plan, spec.schedule).source.text, spec.schedule.arch
        logs = (compile_uncached(text, arch, allow_spills=True, sparing=x).log for x in (None, True))
        assert any(not is_serialised(log) for log in logs), spec  # as it is, or sparing registers, as a call has it
