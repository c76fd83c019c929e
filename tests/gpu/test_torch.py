"""PyTorch's CUDA tensors through the public functions: exact values, streams, views, graphs, and who may meet whom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import opt_einsum
import pytest

import gett
from tests.cases import AWKWARD, by_name

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "int32")
SUBSCRIPTS = (
    ("ij,jk->ik", {"i": 72, "j": 96, "k": 64}),
    ("aebf,dfce->abcd", {"a": 9, "b": 16, "c": 8, "d": 24, "e": 12, "f": 10}),
    ("lij,ljk->kli", {"l": 5, "i": 40, "j": 33, "k": 17}),
    ("ki,kj->ij", {"k": 30_000, "i": 16, "j": 24}),  # split-K: takes a workspace
    ("ijk,kji->", {"i": 9, "j": 11, "k": 7}),
    ("ijk->kij", {"i": 33, "j": 20, "k": 40}),
    ("ai,bi->ba", {"a": 100, "b": 70, "i": 1}),
)


def integers(labels: str, extents: dict[str, int], dtype: str, seed: int, most: int = 2) -> Any:
    """A tensor of small integers on the current device."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    own = getattr(torch, dtype)
    shape = [extents[x] for x in labels]
    parts = [torch.randint(-most, most + 1, shape, generator=generator, device="cuda") for _ in range(2)]
    return torch.complex(parts[0].float(), parts[1].float()).to(own) if own.is_complex else parts[0].to(own)


def exact(subscripts: str, *tensors: Any, minus: Any = None) -> Any:
    """The contraction in double precision on the host, rounded once to the first tensor's dtype, on its device."""
    wide = torch.complex128 if tensors[0].dtype.is_complex else torch.float64
    host = [t.detach().cpu().to(wide).numpy() for t in tensors]
    value = torch.from_numpy(np.asarray(np.einsum(subscripts, *host, optimize=True), order="C"))
    if minus is not None:
        value = value - minus.cpu().to(wide)
    return value.to(tensors[0].dtype).to(tensors[0].device)


def operands(subscripts: str, extents: dict[str, int], dtype: str, seed: int = 0) -> list[Any]:
    """One tensor for each term."""
    deep = max(extents.values()) > 1000
    return [
        integers(t, extents, dtype, 2 * seed + i, 1 if deep else 2)
        for i, t in enumerate(subscripts.split("->")[0].split(","))
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("subscripts", "extents"), SUBSCRIPTS)
def test_tensors_in_tensors_out(subscripts: str, extents: dict[str, int], dtype: str) -> None:
    tensors = operands(subscripts, extents, dtype)
    wanted = exact(subscripts, *tensors)
    for _ in range(2):  # planned, then from the cache
        result = gett.einsum(subscripts, *tensors)
        assert type(result) is torch.Tensor
        assert result.dtype is tensors[0].dtype
        assert result.device == tensors[0].device
        assert torch.equal(result, wanted)
    out = torch.full_like(wanted, 77)
    plan = gett.plan(subscripts, *tensors)
    assert plan(*tensors, out=out) is out
    assert torch.equal(out, wanted)
    if len(tensors) == 2:
        c = integers("x", {"x": out.numel()}, dtype, 9).reshape(out.shape)
        wanted = exact(subscripts, *tensors, minus=c)
        assert gett.contract(subscripts, *tensors, c, alpha=1, beta=-1, out=c) is c
        assert torch.equal(c, wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", [c for c in AWKWARD if c.name != "twenty-modes-of-2"], ids=repr)
def test_awkward_layouts(case: Any, dtype: str) -> None:
    """The awkward cases as views of tensors, as far as PyTorch has such strides."""
    tensors = []
    for i, (labels, layout) in enumerate(zip(case.labels, (case.a, case.b), strict=False)):
        shape = layout.shape(case.shape(labels))
        strides, start, size = layout.place(case.shape(labels))
        if min(strides, default=0) < 0:  # no strides of a tensor: the same values in order
            strides, start, size = _dense(shape), 0, int(np.prod(shape))
        memory = integers("x", {"x": size}, dtype, i, 1 if case.depth > 1000 else 2)
        tensors.append(memory.as_strided(shape, strides, start))
    assert torch.equal(gett.einsum(case.subscripts, *tensors), exact(case.subscripts, *tensors))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_out_in_any_strides(dtype: str) -> None:
    a, b = operands("ijk,kl", {"i": 9, "j": 24, "k": 32, "l": 40}, dtype)
    memory = integers("jil", {"i": 9, "j": 24, "l": 80}, dtype, 5)
    before, out = memory.clone(), memory.permute(1, 2, 0)[:, ::2]
    assert gett.einsum("ijk,kl->ilj", a, b, out=out) is out
    assert torch.equal(out, exact("ijk,kl->ilj", a, b))
    assert torch.equal(memory[:, :, 1::2], before[:, :, 1::2])
    wanted = exact("ijk,kl->ijk", a, b)
    assert gett.einsum("ijk,kl->ijk", a, b, out=a) is a
    assert torch.equal(a, wanted)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "int32"])
@pytest.mark.parametrize("extent", [7, 1024])
def test_out_may_overlap_what_is_read(dtype: str, extent: int) -> None:
    """Element by element in place; through a tensor of its own where elements move; c in part."""
    a, b = operands("ij,ij", {"i": extent, "j": extent}, dtype)
    for subscripts, other in (("ij,ij->ij", b), ("ij,j->ij", b[0].clone()), ("ij,ij->ji", b)):
        wanted = exact(subscripts, a, other)
        for _ in range(2):  # planned, then from the cache
            x = a.clone()
            assert gett.einsum(subscripts, x, other, out=x) is x
            assert torch.equal(x, wanted)
    memory = integers("x", {"x": (extent + 1) * extent}, dtype, 5).view(extent + 1, extent)
    wanted = exact("ij,ij->ij", a, b, minus=-memory[1:].clone())
    gett.contract("ij,ij->ij", a, b, memory[1:], out=memory[:extent])
    assert torch.equal(memory[:extent], wanted)


@pytest.mark.parametrize("other", ["float16", "float32", "float64", "int8", "int64", "bool", "complex64"])
def test_promotion_of_bfloat16(other: str) -> None:
    a = integers("ij", {"i": 40, "j": 33}, "bfloat16", 1)
    b = integers("jk", {"j": 33, "k": 56}, other, 2)
    result = gett.einsum("ij,jk->ki", a, b)
    assert result.dtype is torch.promote_types(torch.bfloat16, b.dtype)
    wide = torch.complex128
    assert torch.equal(result, (a.to(wide) @ b.to(wide)).T.to(result.dtype))


def test_scalars_and_lazy_views() -> None:
    a = integers("ij", {"i": 40, "j": 40}, "bfloat16", 1)
    assert torch.equal(gett.einsum(",ij->ji", 2.0, a), 2 * a.T)
    z = integers("ij", {"i": 40, "j": 40}, "complex64", 1)
    assert torch.equal(gett.einsum("ij,jk", z.conj(), z), exact("ij,jk", z.conj().resolve_conj(), z))
    with pytest.raises(gett.OutputError, match="lazily"):
        gett.einsum("ij,jk", z, z, out=torch.empty_like(z).conj())


def test_work_is_queued_in_torchs_current_stream() -> None:
    """A long chain in a side stream: each product reads what the one before wrote, beside PyTorch's own kernels."""
    permutation = torch.eye(96, device="cuda", dtype=torch.bfloat16)[torch.randperm(96, device="cuda")]
    a = integers("ij", {"i": 64, "j": 96}, "bfloat16", 3)
    plan = gett.plan("ij,jk->ik", a, permutation)
    gett.einsum("ij,jk->ik", a, permutation)
    wanted = a
    for _ in range(40):
        wanted = wanted.float() @ permutation.float() + 1
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(400_000_000)  # whatever runs in another stream would overtake this
        x = a.clone()
        for i in range(40):
            x = plan(x, permutation) if i % 2 else gett.einsum("ij,jk->ik", x, permutation)
            x += 1
        event = torch.cuda.Event()
        event.record()
        assert not event.query()  # nobody waited on the host
    stream.synchronize()
    assert torch.equal(x.float(), wanted)


def test_results_belong_to_torchs_allocator() -> None:
    a, b = operands("ij,jk", {"i": 1024, "j": 512, "k": 1024}, "bfloat16")
    gett.einsum("ij,jk->ik", a, b)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    result = gett.einsum("ij,jk->ik", a, b)
    assert torch.cuda.memory_allocated() - before == result.nbytes
    del result
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ki,kj->ij"])
def test_a_captured_call_replays(subscripts: str) -> None:
    extents = dict(SUBSCRIPTS)[subscripts]
    a, b = operands(subscripts, extents, "bfloat16")
    out = torch.zeros_like(exact(subscripts, a, b))
    plan = gett.plan(subscripts, a, b)
    plan(a, b, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(a, b, out=out)
    for factor in (1, -1, 2):
        a *= factor
        out.fill_(9)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, exact(subscripts, a, b))


def test_who_may_meet_whom(cupy: Any) -> None:
    a = integers("ij", {"i": 8, "j": 8}, "float32", 1)
    for other in (cupy.ones((8, 8), "f4"), np.ones((8, 8), "f4"), a.cpu()):
        for pair in ((a, other), (other, a)):
            with pytest.raises(gett.MixedArraysError, match=r"operand [01]"):
                gett.einsum("ij,jk", *pair)
        with pytest.raises(gett.MixedArraysError, match="out"):
            gett.einsum("ij,jk", a, a, out=other)
    weight = torch.nn.Parameter(a.clone())
    assert gett.einsum("ij,jk", a, weight).requires_grad
    with torch.no_grad():
        assert torch.equal(gett.einsum("ij,jk", a, weight), exact("ij,jk", a, a))


def test_plans_are_shared_with_cupy(cupy: Any) -> None:
    a, b = operands("ij,jk", {"i": 64, "j": 48, "k": 80}, "float16")
    x, y = cupy.from_dlpack(a), cupy.from_dlpack(b)
    wanted = exact("ij,jk", a, b)
    for plan in (gett.plan("ij,jk", a, b), gett.plan("ij,jk", x, y)):
        assert torch.equal(plan(a, b), wanted)
        result = plan(x, y)
        assert isinstance(result, cupy.ndarray)
        cupy.cuda.Device().synchronize()
        assert torch.equal(torch.from_dlpack(result), wanted)


def test_other_exporters_become_cupy_arrays(cupy: Any) -> None:
    class Exporter:
        """Anything with the CUDA array interface, with work pending in a stream of its own."""

        def __init__(self, array: Any, stream: Any) -> None:
            self.array = array
            self.__cuda_array_interface__ = array.__cuda_array_interface__ | {"stream": stream.ptr, "version": 3}

    stream = cupy.cuda.Stream(non_blocking=True)
    a = cupy.ones((256, 256), "f4")
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(200):
            a *= 2
            a *= 0.5
        a *= 3
        out = cupy.empty((256, 256), "f4")
    target = Exporter(out, stream)
    assert gett.einsum("ij,jk", Exporter(a, stream), Exporter(a, stream), out=target) is target
    with stream:
        out += 1  # behind the product
    result = gett.einsum("ij,jk", Exporter(a, stream), Exporter(a, stream))
    assert isinstance(result, cupy.ndarray)
    cupy.cuda.Device().synchronize()
    assert bool((out == 9 * 256 + 1).all())
    assert bool((result == 9 * 256).all())


@pytest.mark.parametrize("seed", range(24))
def test_random_cases_as_torch_has_them(seed: int) -> None:
    """Random modes, extents, orders and dtypes against `torch.einsum` in double precision."""
    rng = np.random.default_rng(seed)
    labels = "abcdefgh"[: rng.integers(3, 8)]
    extents = {x: int(rng.choice([1, 2, 3, 5, 7, 8, 16, 24, 31])) for x in labels}
    kinds = rng.choice(["m", "n", "k", "l"], len(labels), p=[0.35, 0.3, 0.25, 0.1])
    terms = [
        "".join(rng.permutation([x for x, t in zip(labels, kinds, strict=True) if t in wanted]))
        for wanted in ("mkl", "nkl", "mnl")
    ]
    subscripts = f"{terms[0]},{terms[1]}->{terms[2]}"
    dtype = ("float16", "bfloat16", "float32", "complex64")[seed % 4]
    a, b = operands(subscripts, extents, dtype, seed)
    wide = torch.complex128 if dtype == "complex64" else torch.float64
    wanted = torch.einsum(subscripts, a.to(wide), b.to(wide))
    assert torch.equal(gett.einsum(subscripts, a, b), wanted.to(a.dtype))
    # Random values: half a unit in the last place of the result, and sums in single precision.
    x, y = (torch.randn(t.shape, device="cuda", dtype=torch.float32).to(t.dtype) for t in (a, b))
    result = gett.einsum(subscripts, x, y).to(wide)
    reference = torch.einsum(subscripts, x.to(wide), y.to(wide))
    magnitude = torch.einsum(subscripts, x.to(wide).abs(), y.to(wide).abs()).abs()
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype, 2.0**-24)
    depth = int(np.prod([extents[v] for v, t in zip(labels, kinds, strict=True) if t == "k"]))
    tiny = 2.0**-24 if dtype == "float16" else 0.0
    bound = eps * reference.abs() + 4 * (depth + 2) * 2.0**-23 * magnitude + tiny
    assert bool(((result - reference).abs() <= bound).all())


def test_networks_through_opt_einsum() -> None:
    extents = {"a": 12, "b": 16, "c": 20, "d": 8, "e": 24}
    tensors = operands("abc,cbd,de->ae", extents, "float32")
    wanted = exact("abc,cbd,de->ae", *tensors)
    expression = opt_einsum.contract_expression("abc,cbd,de->ae", *(t.shape for t in tensors))
    for result in (
        gett.einsum("abc,cbd,de->ae", *tensors),
        opt_einsum.contract("abc,cbd,de->ae", *tensors, backend="gett"),
        expression(*tensors, backend="gett"),
    ):
        assert type(result) is torch.Tensor
        assert torch.equal(result, wanted)


def test_a_case_with_gaps_keeps_them() -> None:
    case = by_name("result-with-gaps")
    a, b = (integers(x, dict(case.extents), "bfloat16", i) for i, x in enumerate(case.labels[:2]))
    memory = torch.full((2 * 9 * 31 * 26 + 5,), 7.0, dtype=torch.bfloat16, device="cuda")
    out = memory[5:].view(9, 31, 26, 2)[..., 0].permute(0, 2, 1)
    assert gett.einsum("ijk,kl->ilj", a, b, out=out) is out
    assert torch.equal(out, exact("ijk,kl->ilj", a, b))
    assert bool((memory[5:].view(-1, 2)[:, 1] == 7).all())
    assert bool((memory[:5] == 7).all())


@pytest.mark.parametrize(
    "program",
    [
        "from tests.cpu.arrays.torch_compiled import check; check(torch, 'cuda', ('eager',))",
        "from tests.cpu.arrays.torch_compiled import check; check(torch, 'cuda', ('inductor',))",
        "from tests.cpu.arrays.torch_transforms import check; check(torch, 'cuda')",
    ],
    ids=["compile-eager", "compile-inductor", "transforms"],
)
def test_what_pytorch_puts_around_calls(program: str) -> None:
    """`torch.compile`, autocast, transformations: in a process where TorchDynamo meets this package first."""
    text = f"import torch\n{program}\nprint('all', 'right')"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["all", "right"], done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "check"),
    [
        ("torch_gradients", "check_gradients"),
        ("torch_gradients", "check_dtypes"),
        ("torch_derivatives", "check_transforms"),
        ("torch_derivatives", "check_operator"),
        ("torch_derivatives", "check_compiled"),
        ("torch_epilogues", "check_epilogues"),
        ("torch_epilogues", "check_epilogue_transforms"),
    ],
)
def test_derivatives_on_the_gpu(module: str, check: str) -> None:
    """What `tests/cpu/arrays` says of tensors on the CPU, of those on the GPU."""
    text = f"import torch\nfrom tests.cpu.arrays.{module} import {check}\ntorch.set_default_device('cuda')\n"
    text += f"{check}(torch)\nprint('all', 'right')"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["all", "right"], done.stdout + done.stderr


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "complex64"])
def test_networks_are_differentiated_by_bound_plans(dtype: str) -> None:
    """A call of which derivatives are recorded: bound, then as it is bound, with gradients that lie otherwise."""
    extents = {"i": 24, "j": 40, "k": 16, "l": 32}
    tensors = [x.requires_grad_() for x in operands("ij,jk,kl->il", extents, dtype)]
    wide = [
        x.detach().to(torch.complex128 if dtype == "complex64" else torch.float64).requires_grad_() for x in tensors
    ]
    seed = integers("il", extents, dtype, 9)
    for weight in (seed, integers("li", extents, dtype, 10).mT, seed[0, 0].expand(24, 32)):
        wanted = torch.autograd.grad(wide[0] @ wide[1] @ wide[2], wide, weight.to(wide[0].dtype))
        for _ in range(3):
            found = torch.autograd.grad(gett.einsum("ij,jk,kl->il", *tensors), tensors, weight)
            for one, other in zip(found, wanted, strict=True):
                assert (one.to(other.dtype) - other).norm() <= (2e-2 if dtype == "bfloat16" else 1e-5) * other.norm()


def test_compiled_code_replays_as_cuda_graphs() -> None:
    """Launchers in Inductor's code are recorded, and nothing is skipped."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    weight = torch.randn(64, 48, device="cuda", requires_grad=True)
    compiled = torch.compile(
        lambda x: gett.einsum("ij,jk->ik", x, weight).sin(), mode="reduce-overhead", fullgraph=True
    )
    for _ in range(5):
        x = torch.randn(32, 64, device="cuda")
        found = torch.autograd.grad(compiled(x).sum(), weight)[0].clone()
        wanted = torch.autograd.grad((x.double() @ weight.double()).sin().sum(), weight)[0]
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    assert not counters["inductor"]["cudagraph_skips"]
