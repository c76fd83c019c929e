"""Contractions that users reported of other libraries: the thread, the shapes, the rivals, the exact result.

Operands are small integers, so that every result has to be exact. Owns the cases, of the threads' own extents on a GPU
and of small ones on the processor; times nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.thread_machine import Call, Case, Machine, equal_to


def strided_view(m: Machine) -> Case:
    """A slice of a tensor, which has gaps: cuTENSOR 2.7 crashed, 2.6 refused."""
    import gett

    aux, ao, half, occ = m.size(159, 13), m.size(937, 22), m.size(116, 6), m.size(108, 7)
    cderi = m.integers(aux, ao, ao, seed=1)
    mo1 = m.integers(2, half + 1, ao, occ, seed=2)[:, :half]
    out = m.torch.empty(2, half, ao, occ, aux, dtype=m.torch.float64, device=m.device)

    def compare(result: Any) -> float:
        worst = 0.0
        for s, n in ((0, 0), (1, half // 2), (1, half - 1)):
            exact = m.torch.tensordot(cderi, mo1[s, n], dims=([2], [0])).permute(1, 2, 0)
            worst = max(worst, float((result[s, n] - exact).abs().max()))
        return worst

    text = "Lpq,snqi->snpiL"
    calls: dict[str, Call] = {
        "gett.contract(out=)": lambda: gett.contract(text, cderi, mo1, out=out),
        "torch.einsum": lambda: m.torch.einsum(text, cderi, mo1),
    }
    flop = 2.0 * aux * ao * ao * 2 * half * occ
    moved = 8.0 * (cderi.numel() + mo1.numel() + out.numel())
    return Case("strided-view", ("pyscf/gpu4pyscf#850",), f"{text}, a slice with gaps, into out, float64", calls,
                compare, flop, moved)  # fmt: skip


def stride_zero(m: Machine) -> Case:
    """An axis of stride 0: cuTENSOR refuses the descriptor."""
    import gett

    rows, k, n = m.size(4096, 33), m.size(4096, 40), m.size(4096, 24)
    a = m.integers(k, seed=3).expand(rows, k)
    b = m.integers(n, k, seed=4)
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum("mn,ln->ml", a, b),
        "torch.einsum": lambda: m.torch.einsum("mn,ln->ml", a, b),
    }
    if m.on_gpu:
        ca, cb = m.cupy.broadcast_to(m.to_cupy(a[0]), (rows, k)), m.to_cupy(b)
        calls["cupy.einsum"] = lambda: m.cupy.einsum("mn,ln->ml", ca, cb)
    small_a, small_b = m.integers(100)[None, :], m.integers(4, 100)
    exact = m.torch.matmul(small_b, small_a[0])
    small = gett.einsum("mn,ln->ml", small_a, small_b)
    return Case(
        "stride-zero", ("pyscf/gpu4pyscf#614",), "mn,ln->ml, m of stride 0, float64", calls,
        equal_to(lambda: (b @ a[0])[None].expand(rows, n)), 2.0 * rows * k * n, 8.0 * (k + b.numel() + rows * n),
        notes={"the thread's own shapes are exact": bool((small[0] == exact).all())},
    )  # fmt: skip


def thin_products(m: Machine) -> Case:
    """The first call of cuTENSOR took 3.3 s where cupy.einsum took 67 ms."""
    import gett

    u, p, q = m.size(1234, 50), m.size(98, 12), m.size(23, 5)
    a, b = m.integers(u, u, q, dtype="float32", seed=5), m.integers(u, p, dtype="float32", seed=6)
    text = "uvP,up->pvP"
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum(text, a, b),
        "torch.einsum": lambda: m.torch.einsum(text, a, b),
    }
    if m.on_gpu:
        ca, cb = m.to_cupy(a), m.to_cupy(b)
        calls["cupy.einsum"] = lambda: m.cupy.einsum(text, ca, cb)
    expected = equal_to(lambda: m.torch.einsum(text, a.double(), b.double()))
    return Case("integrals-to-mo", ("pyscf/gpu4pyscf#632",), f"{text}, float32", calls, expected,
                2.0 * u * u * p * q, 4.0 * (a.numel() + b.numel() + p * u * q), cutensor=(text, a, b))  # fmt: skip


def three_vectors(m: Machine) -> Case:
    """An outer product of three, bound by its result."""
    import gett

    i, j = m.size(500, 10), m.size(50_000, 40)
    r = m.integers(i, j, 3, seed=7)
    text = "ija,ijb,ijc->ijabc"
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum(text, r, r, r),
        "torch.einsum": lambda: m.torch.einsum(text, r, r, r),
    }
    if m.on_gpu:
        cr = m.to_cupy(r)
        calls["cupy.einsum"] = lambda: m.cupy.einsum(text, cr, cr, cr)
    expected = equal_to(lambda: r[..., :, None, None] * r[..., None, :, None] * r[..., None, None, :])
    return Case("three-vectors", ("pyscf/gpu4pyscf#222",), f"{text}, float64", calls, expected,
                moved=8.0 * (r.numel() + i * j * 27), memory=True)  # fmt: skip


def quadratic_forms(m: Machine) -> Case:
    """NumPy needs no memory for it, cupy.einsum 1.6 GB."""
    import gett

    a, b, c = m.size(100_000, 300), m.size(100, 12), m.size(20, 4)
    w, x = m.integers(a, b, seed=8), m.integers(c, b, b, seed=9)
    text = "ab,cbe,ae->ac"
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum(text, w, x, w),
        "torch.einsum": lambda: m.torch.einsum(text, w, x, w),
    }
    if m.on_gpu:
        cw, cx = m.to_cupy(w), m.to_cupy(x)
        calls["cupy.einsum"] = lambda: m.cupy.einsum(text, cw, cx, cw)
        calls["cupy.einsum(optimize=True)"] = lambda: m.cupy.einsum(text, cw, cx, cw, optimize=True)
    expected = equal_to(lambda: m.torch.stack([((w @ x[i]) * w).sum(1) for i in range(c)], 1))
    return Case("quadratic-forms", ("cupy/cupy#4834", "pyscf/gpu4pyscf#821"), f"{text}, float64", calls, expected,
                2.0 * a * b * b * c, 8.0 * (w.numel() + x.numel() + a * c), memory=True)  # fmt: skip


def trg_step(m: Machine) -> Case:
    """A coarse-graining step: all operands at once need D^6 numbers."""
    import gett

    d = m.size(30, 5)
    t, u = m.integers(d, d, d, d, seed=10), m.integers(d, d, d, seed=11)
    text = "acke,bdel,abi,cdj->ijkl"
    path = [(0, 2), (0, 1), (0, 1)]
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum(text, t, t, u, u),
        "gett.einsum(optimize=path)": lambda: gett.einsum(text, t, t, u, u, optimize=path),
        "torch.einsum": lambda: m.torch.einsum(text, t, t, u, u),
    }
    if m.on_gpu:
        ct, cu = m.to_cupy(t), m.to_cupy(u)
        calls["cupy.einsum"] = lambda: m.cupy.einsum(text, ct, ct, cu, cu)
        calls["cupy.einsum(optimize=path)"] = lambda: m.cupy.einsum(
            text, ct, ct, cu, cu, optimize=["einsum_path", *path]
        )

    def by_hand() -> Any:
        first = m.torch.einsum("acke,abi->ckebi", t, u)
        return m.torch.einsum("ckebi,bdel,cdj->ijkl", first, t, u)

    return Case("coarse-graining", ("cupy/cupy#7180",), f"{text}, all extents {d}, float64", calls,
                equal_to(by_hand), memory=True)  # fmt: skip


def into_out(m: Machine) -> Case:
    """The result into memory that is there: opt_einsum copied it twice."""
    import gett

    i, k, p = m.size(2100, 40), m.size(400, 16), 5
    a, b = m.integers(i, 6, k, seed=12), m.integers(6, p, seed=13)
    out = m.torch.empty(i, p, k, dtype=a.dtype, device=m.device)
    text = "ijk,jp->ipk"
    calls: dict[str, Call] = {
        "gett.contract(out=)": lambda: gett.contract(text, a, b, out=out),
        "torch: out.copy_(einsum)": lambda: out.copy_(m.torch.einsum(text, a, b)),
    }
    if m.on_gpu:
        from opt_einsum import contract

        ca, cb, cout = m.to_cupy(a), m.to_cupy(b), m.to_cupy(out)
        calls["opt_einsum(out=)"] = lambda: contract(text, ca, cb, out=cout)
    expected = equal_to(lambda: m.torch.einsum(text, a, b))
    return Case("into-out", ("dgasmith/opt_einsum#209", "pytorch/pytorch#75701"), f"{text} into out, float64", calls,
                expected, moved=8.0 * (a.numel() + b.numel() + out.numel()), memory=True)  # fmt: skip


def accumulate(m: Machine) -> Case:
    """`r += ...` without a temporary."""
    import gett

    o, v = m.size(24, 4), m.size(96, 8)
    t, w = m.integers(o, o, v, v, seed=14), m.integers(v, v, v, v, seed=15)
    r = m.torch.zeros(o, o, v, v, dtype=t.dtype, device=m.device)
    text = "ijef,aebf->ijab"
    exact = m.torch.einsum(text, t, w)

    def plus() -> Any:
        r.add_(m.torch.einsum(text, t, w))
        return r

    def once(result: Any) -> float:
        r.zero_()
        gett.contract(text, t, w, beta=1, out=r)
        gett.contract(text, t, w, beta=1, out=r)
        del result
        return float((r - 2 * exact).abs().max())

    calls: dict[str, Call] = {
        "gett.contract(beta=1, out=r)": lambda: gett.contract(text, t, w, beta=1, out=r),
        "torch: r += einsum": plus,
    }
    return Case("accumulate", ("pytorch/pytorch#75701", "numpy/numpy#15103"), f"r += {text}, float64", calls, once,
                2.0 * o * o * v**4, 8.0 * (t.numel() + w.numel() + 2 * r.numel()), memory=True)  # fmt: skip


def contiguous(m: Machine) -> Case:
    """torch.einsum gave strides (1, 128) where F.linear and NumPy give C order."""
    import gett

    batch, inner, outer = 128, m.size(1024, 64), m.size(4096, 96)
    x = m.integers(batch, inner, dtype="float32", seed=16)
    w = m.integers(outer, inner, dtype="float32", seed=17)
    text = "fd,bd->bf"
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum(text, w, x),
        "torch.einsum": lambda: m.torch.einsum(text, w, x),
        "torch.einsum.contiguous()": lambda: m.torch.einsum(text, w, x).contiguous(),
    }
    strides = {"gett.einsum": gett.einsum(text, w, x).stride(), "torch.einsum": m.torch.einsum(text, w, x).stride()}
    expected = equal_to(lambda: x.double() @ w.double().T)
    return Case(
        "contiguous", ("pytorch/pytorch#161729", "pyscf/gpu4pyscf#904"), f"{text}, float32", calls, expected,
        2.0 * batch * inner * outer, 4.0 * (x.numel() + w.numel() + batch * outer),
        notes={f"strides of {k}": list(v) for k, v in strides.items()},
    )  # fmt: skip


def dots(m: Machine) -> Case:
    """A million dot products of two numbers each: torch.einsum was 40 times as slow as multiplying and summing."""
    import gett

    n = m.size(1 << 20, 1 << 10)
    a, b = m.integers(n, 2, dtype="float32", seed=18), m.integers(n, 2, dtype="float32", seed=19)
    text = "Nc,Nc->N"
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum(text, a, b),
        "torch.einsum": lambda: m.torch.einsum(text, a, b),
        "torch: (a * b).sum(-1)": lambda: (a * b).sum(-1),
    }
    if m.on_gpu:
        ca, cb = m.to_cupy(a), m.to_cupy(b)
        calls["cupy.einsum"] = lambda: m.cupy.einsum(text, ca, cb)
    expected = equal_to(lambda: (a.double() * b.double()).sum(-1))
    return Case("dot-products", ("pytorch/pytorch#101249",), f"{text}, N = {n}, c = 2, float32", calls, expected,
                moved=4.0 * 5 * n, cutensor=(text, a, b))  # fmt: skip


def broadcast_dots(m: Machine) -> Case:
    """Broadcast operands, eight products a sum: 20 times as slow."""
    import gett

    batch = m.size(729, 9)
    a = m.integers(1, 1, 16, 2, 16, 2, 16, 2, 2, 2, 2, dtype="float32", seed=20)
    b = m.integers(batch, 1, 1, 2, 1, 2, 1, 2, 2, 2, 2, dtype="float32", seed=21)
    a, b = m.torch.broadcast_tensors(a, b)
    text = "...ijk,...ijk->..."
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum(text, a, b),
        "torch.einsum": lambda: m.torch.einsum(text, a, b),
        "torch: (a * b).sum": lambda: (a * b).sum(dim=(-3, -2, -1)),
    }
    expected = equal_to(lambda: (a.double() * b.double()).sum(dim=(-3, -2, -1)))
    return Case("broadcast-dots", ("pytorch/pytorch#32591",), f"{text}, broadcast views, float32", calls, expected,
                moved=4.0 * a.numel() / 8, memory=True)  # fmt: skip


def gate(m: Machine) -> Case:
    """A gate of three axes on 26 of extent 2, the result in another order: cuTENSOR took 63 ms in 2021."""
    import gett

    modes = m.size(26, 12)
    state = m.integers(*([2] * modes), dtype="float32", seed=22)
    small = m.integers(2, 2, 2, dtype="float32", seed=23)
    letters = [chr(ord("A") + i) for i in range(modes)]
    hit = [letters[i] for i in ((12, modes - 1, 8) if m.on_gpu else (3, modes - 1, 8))]
    left = [x for x in letters if x not in hit]
    order = m.torch.randperm(len(left), generator=m.torch.Generator().manual_seed(7)).tolist()
    text = f"{''.join(letters)},{''.join(hit)}->{''.join(left[i] for i in order)}"
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum(text, state, small),
        "torch.einsum": lambda: m.torch.einsum(text, state, small),
        "torch.einsum.contiguous()": lambda: m.torch.einsum(text, state, small).contiguous(),
    }
    # PyTorch's own operations on a GPU end at 25 axes: CuPy says what is right, and rows are compared as one axis.
    if m.on_gpu:
        large, tiny = m.to_cupy(state), m.to_cupy(small)
        calls["cupy.einsum"] = lambda: m.cupy.einsum(text, large, tiny)
        same = equal_to(lambda: m.torch.from_dlpack(m.cupy.einsum(text, large, tiny).ravel()))
    else:
        same = equal_to(lambda: m.torch.einsum(text, state, small).reshape(-1))

    def expected(result: Any) -> float:
        return same(result.reshape(-1) if hasattr(result, "reshape") else result)

    return Case("gate-of-three", ("under-Peter/OMEinsum.jl#133",), f"{modes} axes of extent 2, three summed, float32",
                calls, expected, moved=4.0 * state.numel() * 9 / 8, cutensor=(text, state, small))  # fmt: skip


def elementwise(m: Machine) -> Case:
    """cupy.einsum was a hundred times as slow as A * B."""
    import gett

    n = m.size(10_000_000, 10_000)
    a, b = m.integers(n, seed=24), m.integers(n, seed=25)
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum("i,i->i", a, b),
        "torch.einsum": lambda: m.torch.einsum("i,i->i", a, b),
        "torch: a * b": lambda: a * b,
    }
    if m.on_gpu:
        ca, cb = m.to_cupy(a), m.to_cupy(b)
        calls["cupy.einsum"] = lambda: m.cupy.einsum("i,i->i", ca, cb)
    return Case("element-wise", ("cupy/cupy#2904",), f"i,i->i, i = {n}, float64", calls, equal_to(lambda: a * b),
                moved=24.0 * n)  # fmt: skip


def unfolded(m: Machine) -> Case:
    """A window that slides over a tensor: reshape copies the overlapping view."""
    import gett

    batch, heads, s, k, c = m.size(4, 2), m.size(8, 2), m.size(1024, 12), m.size(256, 6), m.size(64, 5)
    x = m.integers(batch, heads, s + k - 1, c, dtype="float32", seed=26)
    weights = m.integers(batch, s, heads, k, dtype="float32", seed=27)
    window = x.as_strided((batch, heads, k, s, c), (*x.stride()[:2], c, c, 1))
    text = "bshk,bhksc->bhsc"
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum(text, weights, window),
        "torch.einsum": lambda: m.torch.einsum(text, weights, window),
    }
    expected = equal_to(lambda: m.torch.einsum(text, weights.double(), window.double()))
    return Case("unfolded", ("pytorch/pytorch#21760",), f"{text}, a sliding window, float32", calls, expected,
                2.0 * batch * heads * s * k * c, 4.0 * (x.numel() + weights.numel() + batch * heads * s * c),
                memory=True)  # fmt: skip


def conjugated(m: Machine) -> Case:
    """The conjugate of an operand, in the call."""
    import gett

    n = m.size(2048, 40)
    a, b = m.integers(n, n, dtype="complex64", seed=28), m.integers(n, n, dtype="complex64", seed=29)
    calls: dict[str, Call] = {
        "gett.einsum(conj=)": lambda: gett.einsum("ki,kj->ij", a, b, conj=(True, False)),
        "gett.einsum": lambda: gett.einsum("ki,kj->ij", a, b),
        "torch: einsum(a.conj(), b)": lambda: m.torch.einsum("ki,kj->ij", a.conj(), b),
    }
    if m.on_gpu:
        ca, cb = m.to_cupy(a), m.to_cupy(b)
        calls["cupy: einsum(a.conj(), b)"] = lambda: m.cupy.einsum("ki,kj->ij", ca.conj(), cb)
    wide = m.torch.complex128
    expected = equal_to(lambda: m.torch.einsum("ki,kj->ij", a.to(wide).conj().resolve_conj(), b.to(wide)))
    return Case("conjugate", ("Einsums/Einsums#127", "google/TensorNetwork#195"), f"ki,kj->ij of conj(a), {n}",
                calls, expected, 8.0 * n**3, 24.0 * n * n, memory=True)  # fmt: skip


def real_times_complex(m: Machine) -> Case:
    """A real operand beside a complex one: CUDA.jl has no such contraction."""
    import gett

    n = m.size(2048, 40)
    a, b = m.integers(n, n, dtype="float32", seed=30), m.integers(n, n, dtype="complex64", seed=31)
    text = "ik,kj->ij"
    ca = a.to(m.torch.complex64)
    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum(text, a, b),
        "gett.einsum, real x real": lambda: gett.einsum(text, a, a),
        "gett.einsum, complex x complex": lambda: gett.einsum(text, ca, b),
        "torch.einsum(a.to(complex64), b)": lambda: m.torch.einsum(text, a.to(m.torch.complex64), b),
    }
    if m.on_gpu:
        xa, xb = m.to_cupy(a), m.to_cupy(b)
        calls["cupy.einsum"] = lambda: m.cupy.einsum(text, xa, xb)
    wide = m.torch.complex128
    expected = equal_to(lambda: m.torch.einsum(text, a.to(wide), b.to(wide)))
    return Case("real-complex", ("JuliaGPU/CUDA.jl#2349", "pytorch/pytorch#61909"), f"{text}, {n}, float32 x complex64",
                calls, expected, 4.0 * n**3, 20.0 * n * n, memory=True)  # fmt: skip


def tf32_by_surprise(m: Machine) -> Case:
    """float32 is not rounded to TF32 unless it is asked for: values with 24 bits, compared with float64."""
    import gett

    n = m.size(4096, 64)
    generator = m.torch.Generator(device=m.device)
    generator.manual_seed(5)
    a, b = (m.torch.randn(n, n, generator=generator, device=m.device) for _ in range(2))
    exact = a.double() @ b.double()
    scale = float((a.double().abs() @ b.double().abs()).max())

    def error(result: Any) -> float:
        return float((result.double() - exact).abs().max()) / scale

    def torch_tf32() -> Any:
        flag = m.torch.backends.cuda.matmul
        before = flag.allow_tf32
        flag.allow_tf32 = True
        try:
            return m.torch.einsum("ik,kj->ij", a, b)
        finally:
            flag.allow_tf32 = before

    calls: dict[str, Call] = {
        "gett.einsum": lambda: gett.einsum("ik,kj->ij", a, b),
        "gett.einsum(precision='tf32')": lambda: gett.einsum("ik,kj->ij", a, b, precision="tf32"),
        "torch.einsum": lambda: m.torch.einsum("ik,kj->ij", a, b),
        "torch.einsum, allow_tf32": torch_tf32,
    }
    return Case(
        "tf32", ("pytorch/pytorch#78275", "pytorch/pytorch#53635"), f"ik,kj->ij, {n}, float32", calls, error,
        2.0 * n**3, 12.0 * n * n, tolerance=2.0**-20,
        notes={f"error of {k}": error(call()) for k, call in calls.items()},
    )  # fmt: skip


def float32_out(m: Machine) -> Case:
    """bfloat16 in, float32 out, in one product."""
    import gett

    n = m.size(4096, 48)
    a, b = m.integers(n, n, dtype="bfloat16", seed=32), m.integers(n, n, dtype="bfloat16", seed=33)
    text, torch = "ik,kj->ij", m.torch
    calls: dict[str, Call] = {
        "gett.einsum(dtype='float32')": lambda: gett.einsum(text, a, b, dtype="float32"),
        "gett.einsum, bfloat16 out": lambda: gett.einsum(text, a, b),
        "torch: einsum(a.float(), b.float())": lambda: torch.einsum(text, a.float(), b.float()),
    }
    if m.on_gpu:
        calls["torch.mm(out_dtype=float32)"] = lambda: torch.mm(a, b, out_dtype=torch.float32)
    expected = equal_to(lambda: a.double() @ b.double())
    return Case("float32-out", ("pytorch/pytorch#146241", "pytorch/pytorch#128283"), f"{text}, {n}, from bfloat16",
                calls, expected, 2.0 * n**3, 8.0 * n * n, memory=True)  # fmt: skip


CASES: tuple[Callable[[Machine], Case], ...] = (
    strided_view,
    stride_zero,
    thin_products,
    three_vectors,
    quadratic_forms,
    trg_step,
    into_out,
    accumulate,
    contiguous,
    dots,
    broadcast_dots,
    gate,
    elementwise,
    unfolded,
    conjugated,
    real_times_complex,
    tf32_by_surprise,
    float32_out,
)
