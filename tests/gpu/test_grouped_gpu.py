"""Grouped and ragged contractions on the GPU: small integers, every element exact, results poisoned before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gett
from gett.arrays.kinds import cupy_kind
from gett.codegen.render import render_kernel
from gett.groups.layouts import arithmetic_of
from gett.groups.ragged import ragged_modes
from gett.groups.ragged_launch import persistent_kernel
from gett.groups.ragged_plans import ragged_plans
from gett.groups.ragged_tiles import ragged_schedules
from gett.jit.compile import compile_kernel
from gett.runtime.device import CupyHost
from gett.runtime.driver import load_driver
from gett.runtime.grouped import GroupedExecutable
from gett.schedule.search.hopper.tma import multicast
from gett.schedule.spec.schedule import Schedule
from tests.gpu.guarded import guarded

cupy = pytest.importorskip("cupy")

DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "int8", "int32", "int64", "bool")
CASES = (
    ("ij,jk->ik", dict(i=5, j=7, k=3)),
    ("ij,jk->ik", dict(i=130, j=64, k=136)),
    ("ij,jk->ik", dict(i=257, j=333, k=129)),
    ("ji,kj->ik", dict(i=64, j=48, k=80)),
    ("ij,jk->ki", dict(i=70, j=9, k=66)),
    ("ij,jk->ik", dict(i=0, j=7, k=3)),
    ("ij,jk->ik", dict(i=4, j=0, k=3)),
    ("ij,jk->ik", dict(i=1, j=1, k=1)),
    ("bij,bjk->bik", dict(b=9, i=20, j=24, k=16)),
    ("i,j->ij", dict(i=20, j=300)),
    ("ij,ij->", dict(i=20, j=30)),
    ("abcd,cdef->abef", dict(a=4, b=6, c=5, d=8, e=7, f=9)),
    ("abcd,becf->adfe", dict(a=6, b=7, c=4, d=9, e=3, f=16)),
    ("xabc,xcbd->dax", dict(x=4, a=15, b=3, c=8, d=12)),
)


def integers(shape: tuple[int, ...], dtype: str, seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    values = rng.integers(-2, 3, shape)
    return (values + 1j * rng.integers(-2, 3, shape) if dtype.startswith("c") else values).astype(dtype)


def shapes(subscripts: str, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    left, _, d = subscripts.partition("->")
    return [tuple(sizes[x] for x in term) for term in (*left.split(","), d)]


def problems(dtype: str, orders: bool) -> Iterator[tuple[str, Any, Any, Any]]:
    """Subscripts, operands and a poisoned result, whose axes lie in memory in their own order or in another one."""
    rng = np.random.default_rng(7)
    for seed, (subscripts, sizes) in enumerate(CASES):
        arrays = []
        for i, shape in enumerate(shapes(subscripts, sizes)):
            order = rng.permutation(len(shape)) if orders else np.arange(len(shape))
            values = integers(shape, dtype, 3 * seed + i) if i < 2 else np.full(shape, 77).astype(dtype)
            arrays.append(cupy.asarray(values.transpose(order).copy()).transpose(np.argsort(order)))
        yield (subscripts, *arrays)


def exact(subscripts: str, a: Any, b: Any) -> NDArray[Any]:
    return np.asarray(np.einsum(subscripts, cupy.asnumpy(a).astype("c16"), cupy.asnumpy(b).astype("c16")))


def equal(d: Any, wanted: NDArray[Any]) -> bool:
    """Whether a result is exact: integers wrap around, and of truths any makes one."""
    host = cupy.asnumpy(d)
    with np.errstate(invalid="ignore"):
        wanted = wanted if host.dtype.kind == "c" else wanted.real
        wanted = wanted.astype(np.int64).astype(host.dtype) if host.dtype.kind in "iu" else wanted.astype(host.dtype)
    return bool(np.array_equal(host, wanted))


@pytest.mark.parametrize("orders", [False, True], ids=["C", "orders"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_problems_of_all_kinds_are_exact(dtype: str, orders: bool) -> None:
    found = list(problems(dtype, orders))
    plan = gett.plan_grouped([x[:3] for x in found], out=[x[3] for x in found])
    assert plan.apart == 0
    first = [cupy.asnumpy(d) for d in plan()]
    for subscripts, a, b, d in found:
        assert equal(d, exact(subscripts, a, b)), subscripts
    for _ in range(3):
        assert all(np.array_equal(cupy.asnumpy(d), x) for d, x in zip(plan(), first, strict=True))


def test_tf32_and_mixed_operands() -> None:
    found = list(problems("float32", False))
    for (subscripts, a, b, _), d in zip(found, gett.grouped([x[:3] for x in found], precision="tf32"), strict=True):
        assert equal(d, exact(subscripts, a, b)), subscripts
    mixed = [(s, a, b.astype("complex64")) for s, a, b, _ in found]
    for problem, d in zip(mixed, gett.grouped(mixed), strict=True):
        assert equal(d, exact(*problem)), problem[0]


@pytest.mark.parametrize("dtype", ["float64", "float16", "complex64"])
def test_sums_are_in_order_and_have_the_same_bits(dtype: str) -> None:
    rng = np.random.default_rng(0)
    listed, outs, wanted = [], [], []
    for _ in range(50):
        m, n = (int(x) for x in rng.integers(1, 150, 2))
        d, total = cupy.full((m, n), 77, dtype), 0
        for _ in range(int(rng.integers(1, 6))):
            k = int(rng.integers(0, 40))
            a, b = (cupy.asarray(integers(s, dtype, int(rng.integers(1 << 30)))) for s in ((m, k), (k, n)))
            listed.append(("ij,jk->ik", a, b))
            outs.append(d)
            total = total + exact(*listed[-1])
        wanted.append((d, total))
    plan = gett.plan_grouped(listed, out=outs)
    assert plan.apart == 0
    plan()
    assert all(equal(d, total) for d, total in wanted)
    noise = [(cupy.random.standard_normal(a.shape).astype(dtype), b) for _, a, b in listed]
    plan(noise)
    first = [cupy.asnumpy(d) for d, _ in wanted]
    for _ in range(5):
        plan()
        assert all(np.array_equal(cupy.asnumpy(d), x) for (d, _), x in zip(wanted, first, strict=True))


def test_100_000_problems() -> None:
    count = 100_000
    a, b = (cupy.asarray(integers(s, "float64", i)) for i, s in enumerate(((count, 20, 10), (count, 10, 10))))
    d = cupy.full((count, 20, 10), 77.0)
    plan = gett.plan_grouped([("ij,jk->ik", x, y) for x, y in zip(a, b, strict=True)], out=list(d))
    assert (plan.launches, plan.apart) == (1, 0)
    plan()
    assert bool((d == a @ b).all())


def test_one_problem_and_none() -> None:
    a = cupy.asarray(integers((300, 200), "float64", 0))
    (d,) = gett.grouped([("ij,kj->ik", a, a)])
    assert equal(d, exact("ij,kj->ik", a, a))
    assert gett.grouped([]) == []


def test_misaligned_operands() -> None:
    raw = cupy.asarray(integers((70 * 64 + 1,), "float16", 0))
    a = raw[1:].reshape(70, 64)
    aligned = raw[:-1].reshape(70, 64)
    for problem, d in zip(
        listed := [("ij,kj->ik", a, aligned), ("ij,ik->jk", a, a)], gett.grouped(listed), strict=True
    ):
        assert equal(d, exact(*problem))


# --- ragged


def ends_of(kind: str, count: int, rows: int) -> NDArray[Any]:
    rng = np.random.default_rng(3)
    return {
        "random": np.sort(rng.integers(0, rows + 1, count)),
        "one": np.array([0] * (count // 2) + [rows] * (count - count // 2)),
        "none": np.zeros(count, np.int64),
        "even": (np.arange(count) + 1) * rows // count,
    }[kind]


@pytest.mark.parametrize("kind", ["random", "one", "none", "even"])
@pytest.mark.parametrize("ends_dtype", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("subscripts", ["tk,ekn->tn", "tk,enk->tn", "tk,ekn->nt", "thk,ekn->thn", "tk,tn->ekn"])
def test_ragged_contractions_are_exact(subscripts: str, dtype: str, ends_dtype: str, kind: str) -> None:
    sizes = dict(t=700, e=40, k=64, n=136, h=3)
    at = ends_of(kind, sizes["e"], sizes["t"])
    a, b = (integers(s, dtype, i) for i, s in enumerate(shapes(subscripts, sizes)[:2]))
    out = cupy.full(shapes(subscripts, sizes)[2], 77, dtype)
    gett.ragged(subscripts, cupy.asarray(a), cupy.asarray(b), cupy.asarray(at.astype(ends_dtype)), out=out)
    assert np.array_equal(cupy.asnumpy(out), gett.ragged(subscripts, a, b, at))


PERSISTENT = (  # subscripts, extents, axes of the operands in memory from the slowest on
    ("tk,ekn->tn", dict(t=700, e=40, k=64, n=136), None),
    ("tk,ekn->tn", dict(t=3000, e=5, k=520, n=1000), None),
    ("tk,enk->tn", dict(t=3000, e=5, k=520, n=1000), None),
    ("ekn,tk->tn", dict(t=1000, e=3, k=64, n=256), None),
    ("tk,ekn->tn", dict(t=1000, e=1, k=200, n=72), None),
    ("tk,ekn->tn", dict(t=64, e=64, k=256, n=512), None),
    ("tk,ekn->tn", dict(t=1024, e=4, k=128, n=256), ("kt", "ekn")),
    ("tk,enk->tn", dict(t=1024, e=4, k=128, n=256), ("kt", "ekn")),
    ("thk,ekn->thn", dict(t=333, e=7, k=64, n=128, h=3), None),
    ("thk,ekn->htn", dict(t=333, e=7, k=64, n=128, h=3), None),
    ("tbk,ebkn->tbn", dict(t=333, e=7, k=64, n=128, b=2), None),
    ("tk,ekn->tn", dict(t=5000, e=300, k=128, n=16), None),
    ("tk,tn->ekn", dict(t=3000, e=5, k=136, n=264), None),
    ("tn,tk->enk", dict(t=700, e=40, k=64, n=256), None),
    ("tbk,tbn->ekn", dict(t=333, e=7, k=64, n=128, b=3), None),
    ("tbk,tbn->ebkn", dict(t=333, e=7, k=64, n=128, b=3), None),
    ("tk,tn->ekn", dict(t=2000, e=300, k=64, n=64), None),
)


def laid(values: NDArray[Any], term: str, order: str | None, put: Callable[[NDArray[Any]], Any] | None = None) -> Any:
    """An array on the device whose axes lie in memory in an order."""
    at = [term.index(x) for x in order or term]
    return (put or cupy.asarray)(values.transpose(at).copy()).transpose(np.argsort(at))


@pytest.mark.parametrize("at_end", [False, True], ids=["begin", "end"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("number", range(len(PERSISTENT)))
def test_persistent_kernels_touch_nothing_beside_the_tensors(number: int, dtype: str, at_end: bool) -> None:
    """Clipped maps have addresses before their tensors."""
    subscripts, sizes, orders = PERSISTENT[number]
    modes = ragged_modes(subscripts)
    a, b = (integers(s, dtype, i) for i, s in enumerate(shapes(subscripts, sizes)[:2]))
    put = partial(guarded, at_end=at_end)
    x, y = (laid(v, t, o, put) for v, t, o in zip((a, b), modes.terms, orders or (None, None), strict=False))
    for kind in ("random", "one"):
        at = ends_of(kind, sizes["e"], sizes["t"])
        out = put(np.full(shapes(subscripts, sizes)[2], 77, dtype))
        gett.ragged(subscripts, x, y, put(at), out=out, precision="tf32" if dtype == "float32" else None)
        assert np.array_equal(cupy.asnumpy(out), gett.ragged(subscripts, a, b, at))


@pytest.mark.parametrize("kind", ["random", "one", "none", "even"])
@pytest.mark.parametrize("ends_dtype", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("number", range(len(PERSISTENT)))
def test_persistent_kernels_write_each_problem_and_nothing_else(
    number: int, dtype: str, ends_dtype: str, kind: str
) -> None:
    """Rows of D have gaps behind them, which stay as they were, as do the rows before and behind it."""
    subscripts, sizes, orders = PERSISTENT[number]
    modes = ragged_modes(subscripts)
    at = ends_of(kind, sizes["e"], sizes["t"])
    a, b = (integers(s, dtype, i) for i, s in enumerate(shapes(subscripts, sizes)[:2]))
    x, y = (laid(v, t, o) for v, t, o in zip((a, b), modes.terms, orders or (None, None), strict=False))
    ends = cupy.asarray(at.astype(ends_dtype))
    *outer, n = shapes(subscripts, sizes)[2]
    memory = cupy.full((outer[0] + 300, *outer[1:], n + 8), 77, dtype)
    out = memory[150:-150, ..., :n]
    precision = "tf32" if dtype == "float32" else None
    kind_of_array = cupy_kind()
    assert kind_of_array is not None
    tensors = [kind_of_array.describe(v) for v in (x, y, out)]
    arch = kind_of_array.arch(0)
    if arch == "sm_90a":
        made = persistent_kernel(modes, tensors, arch, ends_dtype, sizes["e"], precision)
        assert (made is None) is (orders is not None)  # rows of A run along the ragged mode there
    gett.ragged(subscripts, x, y, ends, out=out, precision=precision)
    assert np.array_equal(cupy.asnumpy(out), gett.ragged(subscripts, a, b, at))
    memory[150:-150, ..., :n] = 77
    assert bool((memory == 77).all())


def test_numbers_that_are_none_stay_in_the_sums_of_their_problem() -> None:
    sizes, at = dict(t=400, e=4, k=128, n=256), np.array([100, 101, 230, 300])
    a, b = (integers(s, "float16", i) for i, s in enumerate(shapes("tk,tn->ekn", sizes)[:2]))
    wanted = gett.ragged("tk,tn->ekn", a, b, at)
    a[100] = a[300:] = np.nan
    b[300:] = np.inf
    found = cupy.asnumpy(gett.ragged("tk,tn->ekn", cupy.asarray(a), cupy.asarray(b), cupy.asarray(at)))
    assert np.isnan(found[1]).all()
    assert np.array_equal(np.delete(found, 1, 0), np.delete(wanted, 1, 0))


@pytest.mark.parametrize("subscripts", ["tk,ekn->tn", "tk,enk->tn"])
def test_numbers_that_are_none_stay_in_their_problem(subscripts: str) -> None:
    """A tile reads rows of the next problem; neither they nor the rows behind the last end reach its results."""
    sizes, at = dict(t=400, e=4, k=128, n=256), np.array([100, 101, 230, 300])
    a, b = (integers(s, "float16", i) for i, s in enumerate(shapes(subscripts, sizes)[:2]))
    wanted = gett.ragged(subscripts, a, b, at)
    a[100] = a[300:] = np.nan
    b[1] = np.inf
    found = cupy.asnumpy(gett.ragged(subscripts, cupy.asarray(a), cupy.asarray(b), cupy.asarray(at)))
    assert np.isnan(found[100]).all()
    assert np.array_equal(np.delete(found, 100, 0), np.delete(wanted, 100, 0))
    assert not found[300:].any()


@pytest.mark.parametrize("subscripts", ["tk,ekn->tn", "tk,tn->ekn"])
def test_clusters_make_tiles_of_one_problem(subscripts: str) -> None:
    """Schedules in clusters, and all others of a product, one after the other."""
    sizes, at = dict(t=3000, e=6, k=1024, n=1024), np.array([300, 300, 301, 1500, 2900, 2990])
    modes = ragged_modes(subscripts)
    a, b = (integers(s, "float16", i) for i, s in enumerate(shapes(subscripts, sizes)[:2]))
    x, y, ends = cupy.asarray(a), cupy.asarray(b), cupy.asarray(at)
    kind = cupy_kind()
    assert kind is not None
    if kind.arch(0) != "sm_90a":
        pytest.skip("tensor maps and wgmma are Hopper's")
    wanted, out = gett.ragged(subscripts, a, b, at), cupy.empty(shapes(subscripts, sizes)[2], "float16")
    tensors = [kind.describe(v) for v in (x, y, out)]
    plans = ragged_plans(modes, tensors, arithmetic_of(*tensors, None), 6)
    assert plans is not None
    found = ragged_schedules(plans, "sm_90a", "int64")
    assert {s.scheduler.ragged for s in found} == ({"k"} if modes.sums else {"m", "n"})
    paired = [replace(s, scheduler=replace(s.scheduler, cluster=c)) for s in found[:2] for c in ((2, 1), (1, 2))]
    for schedule in [*found, *(in_cluster(s) for s in paired)]:
        kernel = render_kernel(plans.whole, schedule)
        cubin = compile_kernel(kernel.source, "sm_90a", allow_spills=True)
        out[...] = 77
        executable = GroupedExecutable(kernel, cubin, CupyHost(), load_driver())
        roles = (x, y) if plans.whole.swapped == schedule.tiling.swap_ab else (y, x)
        addresses = dict(zip("abd", (v.data.ptr for v in (*roles, out)), strict=True))
        executable.run_at({**addresses, "ends": ends.data.ptr}, cupy.cuda.get_current_stream().ptr)
        assert np.array_equal(cupy.asnumpy(out), wanted), schedule


def in_cluster(schedule: Schedule) -> Schedule:
    """The schedule with operands that blocks of its cluster share."""
    loop, (m, n) = schedule.hopper, schedule.cluster
    a, b = loop.a.tma, loop.b.tma
    assert a is not None
    assert b is not None
    return replace(schedule, mainloop=replace(schedule.mainloop, a=multicast(a, n), b=multicast(b, m)))


def test_sizes_change_between_calls_and_in_a_graph() -> None:
    a, b = integers((500, 40), "float64", 0), integers((8, 40, 30), "float64", 1)
    x, w, out = cupy.asarray(a), cupy.asarray(b), cupy.empty((500, 30))
    ends = cupy.asarray(ends_of("even", 8, 500).astype(np.int32))
    gett.ragged("tk,ekn->tn", x, w, ends, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        gett.ragged("tk,ekn->tn", x, w, ends, out=out)
        graph = stream.end_capture()
    for kind in ("random", "one", "none"):
        at = ends_of(kind, 8, 500)
        ends[...] = cupy.asarray(at.astype(np.int32))
        cupy.cuda.runtime.deviceSynchronize()
        graph.launch(stream)
        stream.synchronize()
        assert np.array_equal(cupy.asnumpy(out), gett.ragged("tk,ekn->tn", a, b, at))


def test_bad_offsets_stay_within_the_tensors() -> None:
    x, w = cupy.ones((64, 32)), cupy.ones((4, 32, 16))
    memory = cupy.full((96, 16), 77.0)
    gett.ragged("tk,ekn->tn", x, w, cupy.asarray(np.array([-5, 90, 3, 1 << 30], np.int32)), out=memory[16:80])
    assert bool((memory[:16] == 77).all())
    assert bool((memory[80:] == 77).all())


def test_torch_bfloat16_is_what_grouped_mm_gives() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randint(-2, 3, (1000, 256), device="cuda").to(torch.bfloat16)
    w = torch.randint(-2, 3, (16, 256, 384), device="cuda").to(torch.bfloat16)
    at = ends_of("random", 16, 1000)
    ends = torch.as_tensor(at.astype(np.int32), device="cuda")
    found = gett.ragged("tk,ekn->tn", x, w, ends)
    wanted = torch.zeros((1000, 384), dtype=torch.bfloat16, device="cuda")
    begin = 0
    for e, end in enumerate(at.tolist()):
        wanted[begin:end] = (x[begin:end].float() @ w[e].float()).to(torch.bfloat16)
        begin = end
    assert torch.equal(found, wanted)
    listed = [("ij,jk->ik", x[:90], w[0]), ("ij,jk->ik", x[90:400], w[1])]
    for (_, a, b), d in zip(listed, gett.grouped(listed), strict=True):
        assert torch.equal(d, (a.float() @ b.float()).to(torch.bfloat16))
    with pytest.raises(gett.GradientError, match="no derivatives"):
        gett.ragged("tk,ekn->tn", x.requires_grad_(), w, ends)


def test_arguments_on_a_gpu_are_checked() -> None:
    x, w = cupy.ones((64, 32)), cupy.ones((4, 32, 16))
    with pytest.raises(gett.MixedArraysError, match="offsets must be a CuPy array"):
        gett.ragged("tk,ekn->tn", x, w, np.array([1, 2, 3, 4], np.int32))
    with pytest.raises(gett.DTypeError, match="offsets have dtype float64"):
        gett.ragged("tk,ekn->tn", x, w, cupy.ones(4))
    with pytest.raises(gett.DTypeError, match="convert one of them"):
        gett.ragged("tk,ekn->tn", x.astype("float32"), w, cupy.ones(4, "int32"))
    with pytest.raises(gett.OutputError, match="problem 1: out overlaps operand 0 of problem 0"):
        gett.grouped([("ij,jk->ik", x, w[0]), ("ij,jk->ik", x, w[1])], out=[cupy.empty((64, 16)), x[:, :16]])
