"""A large operand times a small matrix: which plans are run so, the kernel on the host, its rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit.compile import compile_kernel
from gett.schedule.legality import can_implement
from gett.schedule.lower import lower_plan
from gett.schedule.search import stream_matrix
from gett.schedule.search.select import select_schedule
from gett.schedule.search.stream_matrix import matrix_schedules
from gett.schedule.search.tried import STREAMING
from gett.schedule.spec.mainloop import StreamMatrix
from gett.schedule.spec.schedule import Schedule
from tests.cpu.host_cuda import includes, run_host
from tests.sampling import slow_but

FACTS = arch_facts("sm_90a")
PROGRAM = (Path(__file__).parents[1] / "host" / "stream_matrix.cpp").read_text(encoding="utf-8")
BLOCK = "#define __shared__\n#define __align__(bytes)\n"
ALPHA, BETA = 2, 3


def contraction(subscripts: str, extents: dict[str, int], dtype: str, conj: tuple[bool, bool], with_c: bool) -> Any:
    """A contraction of dense operands, and the arrays of small integers that it is of."""
    inputs, output = subscripts.split("->")
    labels = list(dict.fromkeys(inputs.replace(",", "") + output))
    rng = np.random.default_rng(7)

    def make(names: str) -> Any:
        x = rng.integers(-3, 4, [extents[n] for n in names])
        return (x + 1j * rng.integers(-3, 4, x.shape) if dtype.startswith("complex") else x).astype(dtype)

    def operand(names: str, x: Any, conj: bool = False) -> Operand:
        return Operand(tuple(labels.index(n) for n in names), x.strides, dtype, 256, conj)

    a, b = inputs.split(",")
    arrays = [make(a), make(b), make(output)]
    operands = [operand(n, x, flag) for n, x, flag in zip((a, b), arrays, conj, strict=False)]
    d = operand(output, arrays[2])
    c = d if with_c else None
    made = Contraction(tuple(labels), tuple(extents[n] for n in labels), *operands, d, c, dtype)
    return made, arrays


def chosen(plan: GemmPlan) -> list[Schedule]:
    """The schedules of this kernel, best first."""
    return matrix_schedules(plan, FACTS)[:8]


def qubits(gate: str, state: str, new: str) -> tuple[str, dict[str, int]]:
    return f"{gate},{state}->{new}", dict.fromkeys(gate + state, 2)


STATE = "abcdefghijklmnop"
CASES: dict[str, tuple[str, dict[str, int], str]] = {
    "gate-far": (*qubits("XYbf", STATE, "aXcdeYghijklmnop"), "complex64"),
    "gate-last": (*qubits("XYop", STATE, "abcdefghijklmnXY"), "complex64"),
    "gate-mixed": (*qubits("XYcp", STATE, "abXdefghijklmnoY"), "float32"),
    "gate-next-to-last": (*qubits("Xo", STATE, "abcdefghijklmnXp"), "complex128"),
    "gate-first": (*qubits("Xa", STATE, "Xbcdefghijklmnop"), "float64"),
    "gate-before-last": (*qubits("XYno", STATE, "abcdefghijklmXYp"), "complex64"),
    "gate-exchanged": (*qubits("XYon", STATE, "abcdefghijklmYXp"), "float32"),
    "permuted": (*qubits("XYbp", STATE, "mnXcdaeYfghijklo"), "float32"),
    "kraus": ("kXb,abc->akXc", {"k": 3, "X": 2, "a": 300, "b": 2, "c": 66}, "complex64"),
    "basis": ("xk,akb->axb", {"x": 4, "k": 4, "a": 129, "b": 131}, "float32"),
    "ragged": ("kx,bka->xba", {"k": 5, "x": 7, "a": 133, "b": 127}, "float32"),
    "batches": ("lxk,lak->alx", {"l": 3, "x": 4, "k": 2, "a": 1025}, "complex64"),
    "widest": ("xk,ka->xa", {"x": 16, "k": 16, "a": 16384}, "float64"),
    "rows": ("xapr,awps->xrws", {"x": 40, "a": 5, "p": 2, "r": 33, "w": 5, "s": 2}, "float64"),
    "rows-of-elements": ("abc,dc->bad", {"a": 50, "b": 21, "c": 13, "d": 13}, "float32"),
    "integers": ("xk,ak->ax", {"x": 3, "k": 3, "a": 17000}, "int32"),
}
QUICK = (("gate-mixed", False), ("ragged", True), ("rows", False), ("rows-of-elements", True))


@pytest.mark.parametrize(("name", "with_c"), slow_but([(n, c) for n in CASES for c in (False, True)], QUICK))
def test_the_kernel_is_exact(name: str, with_c: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subscripts, extents, dtype = CASES[name]
    monkeypatch.setattr(stream_matrix, "STREAMING", replace(STREAMING, smallest=1, fewest=1))
    conj = (with_c, not with_c) if dtype.startswith("complex") else (False, False)
    made, (a, b, c) = contraction(subscripts, extents, dtype, conj, with_c)
    plan = make_gemm_plan(made)
    schedules = chosen(plan)
    assert schedules
    wide = np.complex128 if dtype.startswith("complex") else np.float64 if dtype[0] == "f" else np.int64
    x, y = ((v.conj() if flag else v).astype(wide) for v, flag in zip((a, b), conj, strict=True))
    wanted = ALPHA * np.einsum(subscripts, x, y) + (BETA * c.astype(wide) if with_c else 0)
    loops = {s.mainloop: s for s in schedules}
    for s in list(loops.values())[:3]:
        assert can_implement(s, plan, FACTS) is None
        kernel, real = render_kernel(plan, s), lower_plan(plan, s.tiling)
        text = kernel.source.text
        body = (
            BLOCK
            + includes("kernel/stream_matrix")
            + text[text.index("struct Params {") : text.index("\ntypedef gett::")]
        )
        body += PROGRAM.replace("ALPHA", str(ALPHA)).replace("BETA", str(BETA))
        first, second = (b, a) if real.swapped else (a, b)
        tensors = (first, second, c, np.full_like(c, 99))
        sent = kernel.launches[0].params + np.array([t.size for t in tensors], np.int32).tobytes()
        got = run_host(tmp_path, body, sent + b"".join(t.tobytes() for t in tensors))
        np.testing.assert_array_equal(np.frombuffer(got, dtype).reshape(c.shape), wanted.astype(dtype))


GATES = {
    "far": qubits("XYdr", "abcdefghijklmnopqrstuvwxyz", "abcXefghijklmnopqYstuvwxyz"),
    "last": qubits("XYyz", "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxXY"),
    "mixed": qubits("XYaz", "abcdefghijklmnopqrstuvwxyz", "XbcdefghijklmnopqrstuvwxyY"),
}


def plan_of(subscripts: str, extents: dict[str, int], dtype: str) -> GemmPlan:
    """The plan of dense operands of any size, without memory."""
    inputs, output = subscripts.split("->")
    labels = list(dict.fromkeys(inputs.replace(",", "") + output))

    def operand(names: str) -> Operand:
        strides, step = [], np.dtype(dtype).itemsize
        for n in reversed(names):
            strides.insert(0, step)
            step *= extents[n]
        return Operand(tuple(labels.index(n) for n in names), tuple(strides), dtype, 256)

    a, b = inputs.split(",")
    sizes = tuple(extents[n] for n in labels)
    return make_gemm_plan(Contraction(tuple(labels), sizes, operand(a), operand(b), operand(output), None, dtype))


@pytest.mark.parametrize("dtype", ["complex64", "float32", "complex128"])
@pytest.mark.parametrize("name", GATES)
def test_gates_stream_the_state_once_in_whole_vectors(name: str, dtype: str) -> None:
    schedule = select_schedule(plan_of(*GATES[name], dtype), "sm_90a")
    loop = schedule.mainloop
    assert isinstance(loop, StreamMatrix)
    size = np.dtype(dtype).itemsize
    narrow = name == "mixed" and dtype == "float32"  # two neighbours, one of each value of the last qubit
    assert loop.vector * loop.vector_k * size == (8 if narrow else 16)
    assert loop.vector * loop.vector_n * size == (8 if narrow else 16)


@pytest.mark.parametrize(("dtype", "vector", "lanes"), [("complex64", 2, 2), ("float32", 2, 2), ("float64", 2, 2)])
def test_lanes_share_vectors_that_are_parts_of_a_sector(dtype: str, vector: int, lanes: int) -> None:
    """The unit-stride qubit is not the gate's, its neighbours are: stores of 16 bytes would cut every sector."""
    state = "abcdefghijklmnopqrstuvwxyz"
    loop = select_schedule(plan_of(*qubits("XYyx", state, "abcdefghijklmnopqrstuvwYXz"), dtype), "sm_90a").mainloop
    assert isinstance(loop, StreamMatrix)
    assert (loop.vector, loop.lanes_n) == (vector, lanes)


def test_lanes_share_vectors_whose_rows_in_d_are_one_sector() -> None:
    """Qubits 22 and 23: what is stored of M alone is 32 bytes of every 128."""
    gate = qubits("XYwx", "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvXYyz")
    loop = select_schedule(plan_of(*gate, "complex64"), "sm_90a").mainloop
    assert isinstance(loop, StreamMatrix)
    assert (loop.vector, loop.lanes_n) == (2, 2)


@pytest.mark.parametrize("dtype", ["complex64", "float32", "float16"])
def test_a_gate_compiles_without_spills(dtype: str) -> None:
    plan = plan_of(*GATES["far"], dtype)
    kernel = render_kernel(plan, select_schedule(plan, "sm_90a"))
    compile_kernel(kernel.source, kernel.arch)


@pytest.mark.parametrize(
    "wrong", [{"vector": 8}, {"vector_k": 2}, {"vector_n": 4}, {"unroll": 0}, {"threads": 100}, {"lanes_n": 3}], ids=str
)
def test_what_the_kernel_cannot_do_is_illegal(wrong: dict[str, int]) -> None:
    plan = plan_of(*GATES["far"], "complex64")
    s = chosen(plan)[0]
    assert isinstance(s.mainloop, StreamMatrix)
    assert can_implement(s, plan, FACTS) is None
    assert can_implement(replace(s, mainloop=replace(s.mainloop, **wrong)), plan, FACTS) is not None


@pytest.mark.parametrize(
    ("subscripts", "extents"),
    [
        ("ik,kj->ij", {"i": 4096, "k": 64, "j": 4096}),  # no small matrix
        ("xk,ka->xa", {"x": 4, "k": 4, "a": 1000}),  # nothing large
        ("lxk,lka->lxa", {"l": 4096, "x": 4, "k": 4, "a": 64}),  # a matrix for few
    ],
)
def test_other_products_are_not_run_so(subscripts: str, extents: dict[str, int]) -> None:
    assert not chosen(plan_of(subscripts, extents, "float32"))


def test_rows_that_each_lane_stores_in_parts_are_forecast_by_what_l2_takes() -> None:
    """Stores of 16 bytes, each of a line of its own, took five times as long as the bytes: requests bound them."""
    extents = {"a": 3, "b": 2, "c": 2, "d": 4, "e": 4, "f": 16, "g": 7, "h": 2048}
    found = matrix_schedules(plan_of("abcde,fcaghb->hgfed", extents, "float64"), FACTS)
    alone = [s for s in found if s.loop(StreamMatrix).lanes_n == 1]
    assert {s.forecast.bound for s in alone} == {"stores"}
    # Eight lanes store a row of 128 bytes together.
    together = [s for s in found if s.loop(StreamMatrix).lanes_n == 8]
    assert "stores" not in {s.forecast.bound for s in together}
    assert found[0] in together
    few = matrix_schedules(plan_of(*CASES["gate-last"]), FACTS)  # stored one after the other
    assert "stores" not in {s.forecast.bound for s in few}


@pytest.mark.parametrize(("name", "lanes"), [("rows", {1, 5}), ("rows-of-elements", {1, 13}), ("gate-last", {1})])
def test_as_many_lanes_share_an_element_as_a_line_of_d_goes_on(
    name: str, lanes: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_matrix, "STREAMING", replace(STREAMING, smallest=1, fewest=1))
    found = {s.loop(StreamMatrix).lanes_n for s in matrix_schedules(plan_of(*CASES[name]), FACTS)}
    assert found == lanes


@pytest.mark.parametrize(("dtype", "k", "n"), [("float16", 3, 13), ("float16", 3, 16), ("float16", 5, 13)])
def test_many_lanes_may_share_an_element_of_few_bytes(dtype: str, k: int, n: int) -> None:
    """All of K of an element are fewer bytes than lanes."""
    found = matrix_schedules(plan_of("abc,dc->bad", {"a": 1000, "b": 84, "c": k, "d": n}, dtype), FACTS)
    assert {s.loop(StreamMatrix).lanes_n for s in found} > {1}
