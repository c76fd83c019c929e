"""Kernels of grouped launches: their tables as C++ sees them, whole launches on the host, registers."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gett.arrays.kinds import NUMPY
from gett.codegen.grouped import MOST_LISTED, RECORDS, listed_kernel, render_grouped, smem_bytes
from gett.groups.ragged import ragged_modes
from gett.groups.ragged_launch import ragged_layout, ragged_schedule, ragged_tables
from gett.groups.reading import read
from gett.groups.table import group_outputs, make_tables
from gett.hw.dtypes import data_type
from gett.jit.compile import compile_uncached
from gett.jit.ptxas import read_usage
from gett.schedule.grouped import MULTIPLY_ADDS, TENSOR_CORES
from gett.schedule.spec.grouped import GroupedLoad, GroupedSchedule, GroupedTile, Ragged
from tests.cpu.groups.host_tables import Memory, run_ragged, run_table

OPTIN = 99 * 1024  # bytes of shared memory of a block where they are fewest (compute capability 8.6)


def schedule(
    dtype: str, tile: GroupedTile, cores: bool, majors: str = "kn", *, wide: bool = True, ragged: Ragged | None = None
) -> GroupedSchedule:
    width = max(data_type(dtype).vectors) if wide else 1
    a, b = (GroupedLoad(dtype, False, "k" if x == "k" else "mn", width) for x in majors)
    return GroupedSchedule("sm_90a", dtype, dtype, a, b, cores, tile, ragged)


def all_schedules() -> list[Any]:
    found = []
    for dtype in ("bfloat16", "float16", "float32", "float64", "complex64", "complex128", "int8", "int64", "bool"):
        kind = data_type(dtype)
        kinds = [(t, True) for t in TENSOR_CORES[kind.bytes]] if kind.tensor is not None else []
        kinds += [(t, False) for t in MULTIPLY_ADDS[kind.accumulator_bytes]] if not kind.exact else []
        for (tile, cores), (majors, wide) in itertools.product(kinds, (("kn", True), ("nk", True), ("kk", False))):
            name = f"{dtype}-{tile.shape[0]}-{'mma' if cores else 'simt'}-{majors}{'' if wide else '-narrow'}"
            found.append(pytest.param(schedule(dtype, tile, cores, majors, wide=wide), id=name))
    for group, ends in (("m", "int32"), ("n", "int64"), ("k", "int32")):
        ragged = Ragged(group, ends)  # type: ignore[arg-type]
        found.append(pytest.param(schedule("bfloat16", TENSOR_CORES[2][0], True, ragged=ragged), id=f"ragged-{group}"))
    return found


@pytest.mark.parametrize("name", RECORDS)
def test_the_tables_lie_as_the_kernels_read_them(name: str) -> None:
    record = RECORDS[name]
    cpp = f"gett::{name}"
    lines = [f'static_assert(sizeof({cpp}) == {record.itemsize}, "size");']
    for field, (_, offset) in record.fields.items():  # type: ignore[union-attr]
        lines.append(f'static_assert(__INTADDR__(&(({cpp}*)0)->{field}) == {offset}, "{field}");')
    text = '#include "gett/core/problems.cuh"\n' + "\n".join(lines) + '\nextern "C" __global__ void k() {}\n'
    compile_uncached(text, "sm_90a")


@pytest.mark.parametrize("ragged", [None, Ragged("m", "int32")], ids=["table", "ragged"])
def test_the_argument_lies_as_it_is_packed(ragged: Ragged | None) -> None:
    text = render_grouped(schedule("float32", MULTIPLY_ADDS[4][1], False, ragged=ragged)).text
    size = 40 if ragged is None else 112
    places = "" if ragged is None else 'static_assert(__INTADDR__(&((Params*)0)->ragged_step) == 48, "steps");\n'
    compile_uncached(f'{text}static_assert(sizeof(Params) == {size}, "size");\n{places}', "sm_90a", allow_spills=True)


def test_the_argument_of_listed_problems_lies_as_it_is_packed() -> None:
    one = replace(schedule("complex64", MULTIPLY_ADDS[8][1], False, wide=False), listed=True)
    source = render_grouped(one)
    (launch,) = listed_kernel(one, source, [(0, (1, 2, 3))] * MOST_LISTED).launches
    assert len(launch.params) <= 4096
    lines = [f'static_assert(sizeof(Params) == {len(launch.params)}, "size");']
    for role, at in launch.pointers:
        if not role[1:].isdigit():
            lines.append(f'static_assert(__INTADDR__(&((Params*)0)->{role}) == {at}, "{role}");')
        elif int(role[1:]) == MOST_LISTED - 1:
            place = f"problems[{role[1:]}].{role[0]}"
            lines.append(f'static_assert(__INTADDR__(&((Params*)0)->{place}) == {at}, "{role}");')
    assert len(lines) == 6
    compile_uncached(source.text + "\n".join(lines), "sm_90a")


@pytest.mark.slow
@pytest.mark.parametrize("one", all_schedules())
def test_kernels_compile_without_spills(one: GroupedSchedule) -> None:
    made = compile_uncached(render_grouped(one).text, "sm_90a")
    assert read_usage(made.log)["gett_grouped"].registers * one.tile.threads <= 65536
    assert smem_bytes(one) <= OPTIN


def test_a_kernel_of_each_arithmetic_compiles() -> None:
    for dtype, cores, bytes_ in (("bfloat16", True, 2), ("float64", True, 8)):
        compile_uncached(render_grouped(schedule(dtype, TENSOR_CORES[bytes_][0], cores)).text, "sm_90a")
    compile_uncached(render_grouped(schedule("complex64", MULTIPLY_ADDS[8][1], False)).text, "sm_80")


# --- whole launches on the host


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("grouped")


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    values = rng.integers(-3, 4, shape)
    return (values + 1j * rng.integers(-3, 4, shape) if dtype.startswith("c") else values).astype(dtype)


def extents_of(subscripts: str, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    left, _, d = subscripts.partition("->")
    return [tuple(sizes[x] for x in term) for term in (*left.split(","), d)]


def run_problems(folder: Path, problems: list[tuple[str, dict[str, int], int]], dtype: str, orders: int = 0) -> None:
    """Problems (subscripts, extents, number of the output), whose results are compared with exact ones."""
    rng = np.random.default_rng(len(problems) + orders)
    memory = Memory()
    listed, outs, exact = [], {}, {}
    for subscripts, sizes, output in problems:
        shapes = extents_of(subscripts, sizes)
        axes = [rng.permutation(len(s)) if orders else np.arange(len(s)) for s in shapes]
        a, b = (memory.put(integers(rng, s, dtype), o) for s, o in zip(shapes[:2], axes, strict=False))
        if output not in outs:
            outs[output] = memory.take(shapes[2], dtype, axes[2])
            exact[output] = 0
        exact[output] = exact[output] + np.einsum(subscripts, a.astype("c16"), b.astype("c16"))
        listed.append((subscripts, a, b))
    reading = read(listed, [outs[n] for _, _, n in problems], None)
    assert reading is not None
    for column in (reading.a, reading.b, reading.d):
        column -= np.uint64(memory.base)
    outputs = group_outputs(reading.which, reading.d, reading.layouts)
    assert len(outputs.count) == len(outs)
    tables, rest = make_tables(reading.layouts, reading.which, outputs, reading.a, reading.b, reading.d, "sm_90a")
    assert not len(rest)
    for table in tables:
        table.point(reading.a, reading.b, reading.d)
        run_table(folder, memory, reading.layouts, table)
    for output, d in outs.items():
        assert np.array_equal(d, exact[output]), output
        assert memory.gap_behind(d)


MATRICES = [
    ("ij,jk->ik", dict(i=5, j=7, k=3), 0),
    ("ij,jk->ik", dict(i=17, j=40, k=33), 1),
    ("ij,jk->ki", dict(i=70, j=9, k=66), 2),
    ("ij,jk->ik", dict(i=5, j=7, k=3), 3),
    ("ij,jk->ik", dict(i=0, j=7, k=3), 4),
    ("ij,jk->ik", dict(i=4, j=0, k=3), 5),
    ("ij,jk->ik", dict(i=1, j=1, k=1), 6),
    ("bij,bjk->bik", dict(b=3, i=4, j=8, k=6), 7),
    ("i,j->ij", dict(i=20, j=3), 8),
    ("ij,ij->", dict(i=20, j=3), 9),
]
TENSORS = [
    ("abcd,cdef->abef", dict(a=2, b=3, c=4, d=3, e=2, f=5), 0),
    ("abcd,becf->adfe", dict(a=3, b=4, c=2, d=3, e=2, f=5), 1),
    ("xabc,xcbd->dax", dict(x=2, a=5, b=3, c=2, d=4), 2),
    ("abcde,bdf->face", dict(a=2, b=2, c=3, d=2, e=3, f=4), 3),
]
SUMS = [
    ("ij,jk->ik", dict(i=20, j=7, k=9), 0),
    ("ij,jk->ik", dict(i=20, j=0, k=9), 0),
    ("ij,kj->ik", dict(i=20, j=40, k=9), 0),
    ("ij,jk->ik", dict(i=3, j=2, k=9), 1),
    ("axy,xyb->ab", dict(a=20, x=3, y=6, b=9), 0),
    ("ij,jk->ik", dict(i=3, j=20, k=9), 1),
]


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32", "complex128"])
def test_matrices_of_many_sizes(folder: Path, dtype: str) -> None:
    run_problems(folder, MATRICES, dtype)


@pytest.mark.parametrize("orders", [0, 1, 2])
def test_tensors_of_any_order(folder: Path, orders: int) -> None:
    run_problems(folder, TENSORS, "float32", orders)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_pairs_sum_into_one_block(folder: Path, dtype: str) -> None:
    run_problems(folder, SUMS, dtype)


@pytest.mark.parametrize("ends", [[3, 3, 40, 71], [0, 0, 0, 0], [71, 71, 71, 71], [10, 20, 30, 40]])
@pytest.mark.parametrize("subscripts", ["tk,ekn->tn", "tk,ekn->nt", "thk,enk->htn", "tk,tn->ekn"])
def test_ragged_contractions(folder: Path, subscripts: str, ends: list[int]) -> None:
    rng = np.random.default_rng(1)
    sizes = dict(t=71, e=4, k=20, n=24, h=2)
    memory = Memory()
    shapes = extents_of(subscripts, sizes)
    a, b = (memory.put(integers(rng, s, "float32")) for s in shapes[:2])
    d, where = memory.take(shapes[2], "float32"), memory.put(np.array(ends, np.int32))
    modes = ragged_modes(subscripts)
    specs = [NUMPY.describe(x) for x in (a, b, d)]
    layout, step = ragged_layout(modes, specs, "ieee")
    found, figures, blocks = ragged_schedule(layout, step, "sm_90a", specs, "int32", 4)
    x, y = (b, a) if layout.swapped else (a, b)
    run_ragged(folder, memory, found, figures, ragged_tables(layout), (x, y, d, where), blocks)
    exact = np.zeros(shapes[2])
    begin = 0
    for e, end in enumerate(ends):
        rows = slice(begin, end)
        if modes.sums:
            exact[e] = a[rows].T @ b[rows]
        else:
            one = np.einsum(modes.plain, a[rows], b[e])
            np.moveaxis(exact, modes.axes(2)[0], 0)[rows] = np.moveaxis(one, modes.axes(2)[0], 0)
        begin = end
    assert np.array_equal(d, exact)
