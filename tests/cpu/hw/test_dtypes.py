"""The table of data types: against NumPy, against the kernels' own headers, and its instructions against ptxas."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gett
from gett.errors import CompileError, DTypeError
from gett.hw.archs import ARCHS
from gett.hw.dtypes import DTYPES, data_type, wgmma_atom
from gett.hw.tensor_types import TENSOR_TYPES, MmaAtom, TensorType
from gett.ir.gemm import make_gemm_plan
from gett.ir.tensors import result_type
from gett.jit.compile import compile_uncached
from gett.schedule.spec.hopper_needs import wgmma_takes
from tests.cases import Case
from tests.sampling import slow_but

WGMMA = [t for t in TENSOR_TYPES.values() if t.wgmma is not None]
MMA = [t for t in TENSOR_TYPES.values() if t.mma is not None]


def compile_text(body: str, arch: str) -> None:
    text = f'extern "C" __global__ void probe(float* out) {{\n{body}\n}}\n'
    compile_uncached(text, arch, allow_spills=True)


def operands(first: int, count: int) -> str:
    """Placeholders of inline assembly."""
    return ", ".join(f"%{i}" for i in range(first, first + count))


def mma_text(t: TensorType, atom: MmaAtom) -> str:
    """`mma.sync` of one atom, fragments in as many registers as the table says."""
    wide = t.bytes == 8
    c_type, letter, words = ("double", "d", 2) if wide else ("float", "f", 1)
    a_type, in_letter = ("double", "d") if wide else ("unsigned", "r")
    counts = [atom.m * atom.n // 32, *(r // words for r in atom.registers)]
    names = [operands(sum(counts[:i]), n) for i, n in enumerate(counts)]
    acc = "f64" if wide else "f32"
    outs = ", ".join(f'"+{letter}"(c[{i}])' for i in range(counts[0]))
    ins = ", ".join(f'"{in_letter}"({x}[{i}])' for x, n in zip("ab", counts[1:], strict=True) for i in range(n))
    return (
        f"{c_type} c[{counts[0]}] = {{}}; {a_type} a[{counts[1]}] = {{}}, b[{counts[2]}] = {{}};\n"
        f'asm volatile("mma.sync.aligned.m{atom.m}n{atom.n}k{atom.k}.row.col.{acc}.{t.kind}.{t.kind}.{acc} '
        f'{{{names[0]}}}, {{{names[1]}}}, {{{names[2]}}}, {{{names[0]}}};" : {outs} : {ins});\n'
        "out[threadIdx.x] = c[0];"
    )


def wgmma_text(t: TensorType, atom: MmaAtom, n: int, source: str, transposed: bool) -> str:
    """`wgmma.mma_async` of one atom, A by descriptor or in registers; with transposing immediates on request."""
    count = n // 2
    registers = operands(0, count)
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    a = f"%{count}" if source == "ss" else "{" + operands(count, atom.registers[0]) + "}"
    after = count + (1 if source == "ss" else atom.registers[0])
    ins = '"l"(x)' if source == "ss" else ", ".join(f'"r"(w[{i}])' for i in range(atom.registers[0]))
    turn = {"ss": ", 0, 1", "rs": ", 1"}[source] if transposed else ""
    return (
        f"float d[{count}] = {{}}; unsigned w[4] = {{}}; unsigned long long x = clock(), y = clock();\n"
        "for (int i = 0; i < 4; ++i) w[i] = clock();\n"
        'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
        f'asm volatile("wgmma.mma_async.sync.aligned.m{atom.m}n{n}k{atom.k}.f32.{t.kind}.{t.kind} {{{registers}}}, '
        f'{a}, %{after}, 1, 1, 1{turn};" : {outs} : {ins}, "l"(y));\n'
        'asm volatile("wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;" ::: "memory");\n'
        f"for (int i = 0; i < {count}; ++i) out[threadIdx.x * {count} + i] = d[i];"
    )


@pytest.mark.parametrize("name", DTYPES)
def test_bytes_and_accumulators(name: str) -> None:
    row = DTYPES[name]
    if name != "bfloat16":
        assert row.bytes == np.dtype(name).itemsize
        assert (row.real_products == 4) == (np.dtype(name).kind == "c")
    acc = DTYPES[row.accumulator]
    assert acc.accumulator == acc.name  # sums of sums stay
    assert acc.bytes >= row.bytes
    assert all(v * row.bytes <= 16 for v in row.vectors)
    assert row.vectors[0] * row.bytes == 16
    assert row.vectors[-1] == 1
    for facts in ARCHS.values():
        assert name in facts.fma_lanes
        if row.tensor is not None:
            assert row.tensor.name in facts.tensor_lanes


def test_precision_decides_what_is_multiplied() -> None:
    float32 = data_type("float32")
    tf32 = float32.multiplied("tf32")
    assert float32.multiplied() is None
    assert tf32 is TENSOR_TYPES["tf32"]
    for name in ("float16", "bfloat16", "float64"):
        assert data_type(name).multiplied() is data_type(name).multiplied("tf32") is TENSOR_TYPES[name]
    assert data_type("complex64").multiplied("tf32") is None


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(DTypeError, match="dtype float128 is not supported on a GPU; supported: float16, bfloat16"):
        data_type("float128")


@pytest.mark.parametrize("t", MMA, ids=lambda t: t.name)
def test_mma_sync_atoms_are_instructions(t: TensorType) -> None:
    assert t.mma is not None
    compile_text(mma_text(t, t.mma), "sm_90a")


def test_what_a_warp_multiplies_of_each_type() -> None:
    """Of complex numbers their parts, where these are multiplied as they are: both fill the rows of an instruction."""
    found = {x.name: atom for x in DTYPES.values() if (atom := x.by_warp()) is not None}
    assert sorted(found) == ["bfloat16", "complex128", "float16", "float64"]
    assert [(found[x].m, found[x].n, found[x].k) for x in ("float64", "complex128")] == [(16, 8, 4), (8, 8, 4)]
    assert data_type("float32").by_warp("tf32") == TENSOR_TYPES["tf32"].mma
    assert data_type("complex64").by_warp("tf32") is None


@pytest.mark.parametrize("t", slow_but(WGMMA, WGMMA[:1]), ids=lambda t: t.name)
def test_wgmma_atoms_are_instructions(t: TensorType) -> None:
    atom = t.wgmma
    assert atom is not None
    for source in atom.sources:
        for n in (atom.n, atom.most_n):
            compile_text(wgmma_text(t, atom, n, source, atom.either_major), "sm_90a")


@pytest.mark.parametrize("t", [t for t in WGMMA if t.wgmma and not t.wgmma.either_major], ids=lambda t: t.name)
def test_types_that_must_be_k_major_have_no_transposing_form(t: TensorType) -> None:
    assert t.wgmma is not None
    with pytest.raises(CompileError):
        compile_text(wgmma_text(t, t.wgmma, 64, "ss", True), "sm_90a")


def test_one_instruction_sums_32_bytes_of_k() -> None:
    for t in TENSOR_TYPES.values():
        for atom in filter(None, (t.wgmma, t.mma)):
            assert atom.k * t.bytes == 32


def test_searches_and_cost_models_name_no_type() -> None:
    """What they ask of a type is in its row."""
    root = Path(__file__).parents[3] / "gett/schedule"
    for path in (p for part in ("search", "cost", "spec") for p in sorted((root / part).rglob("*.py"))):
        texts = (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
        assert not set(texts) & (set(DTYPES) | set(TENSOR_TYPES)), path.name


def test_wgmma_takes_what_its_atom_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = ARCHS["sm_90a"]
    extents = {"m": 256, "n": 256, "k": 256}
    rows = make_gemm_plan(Case("", "mk,nk->mn", extents).contraction("float16"))
    columns = make_gemm_plan(Case("", "km,nk->mn", extents).contraction("float16"))
    single = make_gemm_plan(Case("", "mk,nk->mn", extents).contraction("float32", precision="tf32"))
    assert wgmma_takes(rows, facts.arch)
    assert wgmma_takes(columns, facts.arch)
    assert not wgmma_takes(rows, "sm_80")
    assert wgmma_takes(single, facts.arch)  # tensor maps round it
    half = data_type("float16")
    assert half.tensor is not None
    k_major = replace(half.tensor, wgmma=replace(wgmma_atom("float16"), majors=("k",)))
    monkeypatch.setattr("gett.hw.dtypes.DTYPES", {**DTYPES, "float16": replace(half, tensor=k_major)})
    assert wgmma_takes(rows, facts.arch)
    assert not wgmma_takes(columns, facts.arch)


def test_types_that_wgmma_does_not_multiply_are_named() -> None:
    for name in ("float64", "int8"):
        with pytest.raises(DTypeError, match=name):
            wgmma_atom(name)
    assert wgmma_atom("float16").k == 16


def test_bytes_of_sums() -> None:
    found = {name: data_type(name).accumulator_bytes for name in ("float16", "int8", "float64", "complex64", "bool")}
    assert found == {"float16": 4, "int8": 4, "float64": 8, "complex64": 8, "bool": 1}


def test_dtypes_that_nothing_holds_together_are_named() -> None:
    records = np.zeros((2, 2), "V4")
    for call in (gett.plan, gett.einsum):
        with pytest.raises(gett.DTypeError, match="V4"):
            call("ij,jk->ik", records, np.zeros((2, 2)), dtype="float32")
    with pytest.raises(gett.DTypeError, match=r"holds all of \|V4, int64, float64"):
        result_type([np.dtype("V4"), np.dtype("i8"), np.dtype("f8")])
