"""`gett.jax` within JAX's transformations: values and derivatives are those of `jnp.einsum`."""

from __future__ import annotations

import doctest
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gett

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
gj = pytest.importorskip("gett.jax")
pytestmark = pytest.mark.usefixtures("wide_jax")

ROOT = Path(__file__).parents[3]
CASES: list[tuple[str, list[tuple[int, ...]], tuple[bool, ...] | None]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)], None),
    ("ij,jk", [(2, 3), (3, 4)], (True, True)),
    ("ij,jk->ki", [(2, 3), (3, 4)], (False, True)),
    ("iij,jk->ik", [(2, 2, 3), (3, 2)], (True, False)),
    ("ij,jk->k", [(2, 3), (3, 2)], None),  # i is A's alone
    ("ij,kl->il", [(2, 3), (3, 2)], (True, False)),
    ("i,j->ij", [(2,), (3,)], (True, False)),
    ("i,i->", [(3,), (3,)], (True, False)),
    ("ij,ij->ij", [(2, 3), (2, 3)], None),
    ("ij->ji", [(2, 3)], (True,)),
    ("ij->i", [(2, 3)], None),
    ("iji->j", [(2, 3, 2)], (True,)),
    ("bij,bjk->bik", [(1, 2, 3), (2, 3, 2)], None),  # an axis of extent 1 broadcasts
    ("...ij,jk->...ik", [(2, 1, 2, 3), (3, 2)], None),
    (",ij->ij", [(), (2, 2)], None),
    ("ij,jk->ik", [(1, 1), (1, 1)], None),
    ("ij,jk->ik", [(2, 0), (0, 2)], None),
    ("ij,jk->ik", [(0, 2), (2, 2)], None),
    ("ij,jk,kl->il", [(2, 3), (3, 2), (2, 4)], (True, False, True)),
    ("ii,ij,jk,k->", [(2, 2), (2, 3), (3, 2), (2,)], None),
    ("ab,bc,cd,de,ea->", [(2, 3), (3, 2), (2, 3), (3, 2), (2, 2)], None),
]


def numbers(shape: Sequence[int], dtype: str = "float64", seed: int = 0) -> Any:
    generator = np.random.default_rng([seed, *shape])
    x = generator.uniform(-1, 1, shape)
    return jnp.asarray(x + 1j * generator.uniform(-1, 1, shape) if "complex" in dtype else x, dtype)


def pair(subscripts: str, conj: Any = None) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The same contraction by gett and by JAX, in a function that is not linear."""
    flags = conj or (False,) * (subscripts.count(",") + 1)

    def own(*x: Any) -> Any:
        return gj.einsum(subscripts, *x, conj=conj)

    def reference(*x: Any) -> Any:
        return jnp.einsum(subscripts, *(jnp.conj(y) if flag else y for y, flag in zip(x, flags, strict=True)))

    return own, reference


def loss(call: Callable[..., Any]) -> Callable[..., Any]:
    def real(*x: Any) -> Any:
        d = call(*x)
        return jnp.sum(jnp.sin(d.real) + d.imag**2 * d.real)

    return real


def alike(found: Any, wanted: Any, atol: float = 1e-12) -> None:
    found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
    assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in wanted]
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, atol=atol, rtol=1e-10)


def derivatives(call: Callable[..., Any], operands: Sequence[Any], *, second: bool) -> Any:
    """Gradients, and those of gradients along a direction, in both modes; compiled at once."""
    real, places = loss(call), tuple(range(len(operands)))

    def all_of(*x: Any) -> Any:
        tangents = tuple(jnp.cos(y) for y in x)
        gradient = jax.grad(real, places)
        d, pullback = jax.vjp(call, *x)
        found = [d, gradient(*x), jax.jvp(call, x, tangents), pullback(jnp.sin(d))]
        if second:
            found += [jax.jvp(gradient, x, tangents)]
            found += [jax.grad(lambda *x: jax.jvp(real, x, tangents)[1], places)(*x)]
            found += [jax.grad(lambda *x: sum(jnp.sum(abs(g) ** 2) for g in gradient(*x)), places)(*x)]
        return found

    return jax.jit(all_of)(*operands)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_derivatives_are_jaxs(case: Any, dtype: str) -> None:
    subscripts, shapes, conj = case
    operands = [numbers(s, dtype, i) for i, s in enumerate(shapes)]
    own, reference = pair(subscripts, conj)
    alike(own(*operands), reference(*operands))
    alike(derivatives(own, operands, second=True), derivatives(reference, operands, second=True))


def test_a_product_in_every_transformation() -> None:
    a, b = numbers((2, 3)), numbers((3, 2))
    own, reference = pair("ij,jk->ik")
    for transform in (
        lambda f: jax.jit(f),
        lambda f: jax.hessian(loss(f), (0, 1)),
        lambda f: jax.jacfwd(f, (0, 1)),
        lambda f: jax.jit(jax.jacrev(jax.jacfwd(f, (0, 1)), (0, 1))),
        lambda f: jax.grad(jax.checkpoint(loss(f)), (0, 1)),
        lambda f: lambda a, b: jax.linearize(f, a, b)[1](b.T, a.T),
        lambda f: lambda a, b: jax.linear_transpose(lambda x: f(x, b), a)(jnp.ones((2, 2))),
        lambda f: lambda a, b: jax.lax.scan(lambda x, _: (f(f(x, b), a), 0), a, length=2)[0],
        lambda f: lambda a, b: jax.lax.cond(a[0, 0] < b[0, 0], f, lambda a, b: 2 * f(a, b), a, b),
    ):
        alike(transform(own)(a, b), transform(reference)(a, b))


def test_vmap_adds_a_label_and_no_loop() -> None:
    a, b, c = numbers((2, 3, 5)), numbers((3, 5, 4)), numbers((4, 2))
    own, reference = pair("ij,jk->ik")
    for dims, operands in (
        ((2, 1), (a, b)), ((None, 1), (a[..., 0], b)), ((2, None), (a, b[:, 0])), ((-1, -2), (a, b)),
    ):  # fmt: skip
        mapped = jax.vmap(own, dims)
        alike(mapped(*operands), jax.vmap(reference, dims)(*operands))
        alike(
            jax.jit(jax.vmap(jax.grad(loss(own), (0, 1)), dims))(*operands),
            jax.vmap(jax.grad(loss(reference), (0, 1)), dims)(*operands),
        )
        text = str(jax.make_jaxpr(mapped)(*operands))
        assert text.count("gett_product") == 1
        assert "scan" not in text
        assert "while" not in text
    alike(*(jax.vmap(jax.vmap(f, (2, None)), (None, 1))(a, b) for f in (own, reference)))
    chain = pair("ij,jk,kl->il")
    alike(*(jax.vmap(f, (2, None, None))(a, b[:, 0], c) for f in chain))


def added(a: Any, b: Any, c: Any, **options: Any) -> Any:
    return gj.contract("ij,jk->ik", a, b, c, **options)


@pytest.mark.parametrize("shape", [(2, 4), (4,), (2, 1), (), (1, 4)])
@pytest.mark.parametrize(("dtype", "alpha", "beta"), [("float64", 1.5, -2), ("complex128", 1.5 - 1j, 2j)])
def test_what_is_added_has_derivatives(shape: tuple[int, ...], dtype: str, alpha: Any, beta: Any) -> None:
    operands = [numbers(s, dtype) for s in ((2, 3), (3, 4), shape)]

    def own(a: Any, b: Any, c: Any) -> Any:
        return added(a, b, c, alpha=alpha, beta=beta, conj=(True, False))

    def reference(a: Any, b: Any, c: Any) -> Any:
        return jnp.conj(a) @ b * alpha + c * beta

    alike(derivatives(own, operands, second=True), derivatives(reference, operands, second=True))
    stacked = [jnp.stack([x, 2 * x]) for x in operands]
    for dims in ((0, 0, 0), (None, None, 0), (0, None, None), (None, 0, 0)):
        given = [x if d is None else y for x, y, d in zip(operands, stacked, dims, strict=True)]
        alike(jax.vmap(own, dims)(*given), jax.vmap(reference, dims)(*given))


def test_factors_may_be_arrays() -> None:
    a, b, c = numbers((2, 3)), numbers((3, 4)), numbers((4,))

    def own(alpha: Any, beta: Any) -> Any:
        return added(a, b, c, alpha=alpha, beta=beta)

    def reference(alpha: Any, beta: Any) -> Any:
        return alpha * (a @ b) + beta * c

    factors = jnp.float64(1.5), jnp.float64(-2)
    alike(derivatives(own, factors, second=True), derivatives(reference, factors, second=True))
    alike(jax.jit(lambda x: added(a, b, c, alpha=2, beta=x))(factors[0]), 2 * (a @ b) + 1.5 * c)
    alike(added(a, b, jnp.full(4, jnp.nan), beta=0), a @ b)
    alike(gj.contract("ij->ji", a, c=numbers((2,)), alpha=2), 2 * a.T + numbers((2,)))
    alike(gj.contract("ij,jk->ik", a[:, :0], b[:0], c), jnp.broadcast_to(c, (2, 4)))


def test_dtypes_are_jaxs() -> None:
    a, b = numbers((4, 5), "float32"), numbers((5, 3), "float32")
    for first, second in (
        ("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float16", "bfloat16"), ("int8", "float32"),
        ("int32", "int32"), ("bool", "int16"), ("float32", "complex64"), ("float16", "complex64"),
    ):  # fmt: skip
        x, y = (4 * a).astype(first), (4 * b).astype(second)
        own, reference = pair("ij,jk->ik")
        assert own(x, y).dtype == reference(x, y).dtype
        np.testing.assert_allclose(own(x, y), np.asarray(reference(x, y)), rtol=0.02, atol=0.3)
    short = a.astype("bfloat16")
    wide = gj.einsum("ij,jk->ik", short, b.astype("bfloat16"), dtype="float32")
    exact = np.asarray(short, "f8") @ np.asarray(b.astype("bfloat16"), "f8")
    assert wide.dtype == np.float32
    np.testing.assert_allclose(wide, exact, rtol=1e-5, atol=1e-5)
    for dtype in ("float32", "bfloat16"):
        gradient = jax.jit(jax.grad(lambda x, d=dtype: gj.einsum("ij,jk->", x, b.astype("bfloat16"), dtype=d).real))(
            short
        )
        assert gradient.dtype == jnp.bfloat16
        np.testing.assert_allclose(
            np.asarray(gradient, "f4")[0], np.asarray(b.astype("bfloat16"), "f4").sum(1), rtol=0.02
        )
    assert gj.einsum("ij,->ij", short, 2.5).dtype == jnp.bfloat16
    assert gj.einsum("ij,jk", a, b, dtype="float64").dtype == np.float64
    assert gj.einsum("ij->j", jnp.ones((2, 3), bool)).tolist() == [True] * 3
    real, other = numbers((2, 3)), numbers((3, 2), "complex128")
    own, reference = pair("ij,jk->ik", (True, True))
    alike(derivatives(own, (real, other), second=True), derivatives(reference, (real, other), second=True))


def test_other_forms_and_options() -> None:
    a, b = numbers((2, 3)), numbers((3, 2))
    for call in (
        lambda a, b: gj.einsum(a, [0, 1], b, [1, 2], [0, 2]),
        lambda a, b: gj.einsum("ij,jk", [a, b]),
        lambda a, b: gj.einsum("ij,jk", a, np.asarray(b)) if not isinstance(b, jax.core.Tracer) else a @ b,
        lambda a, b: gj.einsum("ij,jk", a, b, precision="ieee", workspace_limit=0, optimize="autotune"),
        lambda a, b: gj.einsum("ij,jk,kl->il", a, b, jnp.eye(2), optimize=[(1, 2), (0, 1)], memory_limit=None),
        lambda a, b: gett.jax.contract(a, [0, 1], b, [1, 2], c=jnp.zeros(2)),
    ):
        alike(call(a, b), a @ b)
        alike(jax.jit(call)(a, b), a @ b)


def test_each_pair_of_a_network_is_one_product() -> None:
    a = numbers((3, 3))
    text = str(jax.make_jaxpr(lambda *x: gj.einsum("ab,bc,cd,de->ae", *x))(a, a, a, a))
    assert text.count("gett_product") == 3


@pytest.mark.parametrize("checked", [True, False])
def test_shard_map(checked: bool) -> None:
    if not hasattr(jax, "shard_map"):
        pytest.skip("this JAX has no jax.shard_map")
    a, b = numbers((2, 3)), numbers((3, 4))
    mesh, spec = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",)), jax.sharding.PartitionSpec
    own, reference = pair("ij,jk->ik")
    mapped = jax.shard_map(own, mesh=mesh, in_specs=(spec("x"), spec()), out_specs=spec("x"), check_vma=checked)
    alike(jax.jit(mapped)(a, b), a @ b)
    alike(jax.grad(loss(mapped), (0, 1))(a, b), jax.grad(loss(reference), (0, 1))(a, b))


@pytest.mark.slow
def test_several_devices() -> None:
    program = "from tests.cpu.arrays.jax_devices import check_devices; check_devices()"
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["all", "right"], done.stdout + done.stderr


def test_examples_of_docstrings() -> None:
    jax.config.update("jax_enable_x64", False)
    found = doctest.testmod(importlib.import_module("gett.jax.functions"))
    assert found.attempted > 0
    assert not found.failed


def test_without_buffer_callbacks_the_host_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gett.jax.running.buffer_callback", None)
    a, b = numbers((2, 7)), numbers((7, 3))
    call = jax.jit(lambda a, b: added(a, b, jnp.ones(3), alpha=3))
    assert "pure" in str(call.lower(a, b).as_text()) or "callback" in str(call.lower(a, b).as_text())
    alike(call(a, b), 3 * (a @ b) + 1)
    short = jax.jit(lambda a, b: gj.einsum("ij,jk->ki", a, b))(a.astype("bfloat16"), b.astype("bfloat16"))
    assert short.dtype == jnp.bfloat16


def test_calls_on_arrays_are_one_program() -> None:
    a, b = numbers((2, 3)), numbers((3, 2))
    calls: list[Callable[..., Any]] = [
        lambda: gj.einsum("ij,jk,kl->il", a, b, a),
        lambda: gj.contract("ij,jk,kl->il", a, b, a, c=a, alpha=1, beta=1) - a,
    ]
    for call in calls:
        wanted = a @ b @ a
        alike(call(), wanted)
        with jax.disable_jit():
            alike(call(), wanted)
        alike(jax.jit(call)(), wanted)
    gj.einsum("ij,jk", a, b, conj=(True, True))
    for conj in ((1, 1), [True], "yes"):  # equal to what is known, or without a hash
        with pytest.raises(gett.OptionError, match="conj="):
            gj.einsum("ij,jk", a, b, conj=conj)
    first = gj.einsum("ij,jk", a.astype("float32"), b.astype("float32"))
    with gett.precision("ieee"):
        assert np.allclose(gj.einsum("ij,jk", a.astype("float32"), b.astype("float32")), first)
    text = str(jax.make_jaxpr(lambda: gj.einsum("ij,jk,kl->il", a, b, a))())
    assert text.count("gett_product") == 2
    assert "jit" not in text


def test_errors_name_what_is_at_fault() -> None:
    a, b = numbers((2, 3), "float32"), numbers((3, 4), "float32")
    for error, text, call in (
        (gett.ShapeError, "mode 'j' has extent 3 in operand 0 and 4", lambda x: gj.einsum("ij,jk", x, b.T)),
        (gett.SubscriptsError, "the output names mode 'z'", lambda x: gj.einsum("ij,jk->iz", x, b)),
        (gett.SubscriptsError, "describe 2 operands, 1 were given", lambda x: gj.einsum("ij,jk", x)),
        (gett.DTypeError, "operand 0 cannot be cast from float32", lambda x: gj.einsum("ij->ij", x, dtype="float16")),
        (gett.DTypeError, "operand 1 has dtype float8", lambda x: gj.einsum("ij,jk", x, b.astype(jnp.float8_e4m3fn))),
        (gett.DTypeError, "operand 1 has dtype key", lambda x: gj.einsum("ij,->i", x, jax.random.key(0))),
        (gett.OperandError, "operand 1 is a builtins.str", lambda x: gj.einsum("ij,jk", x, "b")),
        (gett.OperandError, "operand 1 of type list", lambda x: gj.einsum("ij,jk", x, [[1], [2, 3]])),
        (gett.PrecisionError, "precision='fast' is unknown", lambda x: gj.einsum("ij,jk", x, b, precision="fast")),
        (gett.PathError, "leaves 2 tensors", lambda x: gj.einsum("ij,jk,k", x, b, b[0], optimize=[(0, 1)])),
        (gett.OptionError, "conj=", lambda x: gj.einsum("ij,jk", x, b, conj=(True,))),
        (gett.OptionError, "beta=2 scales c", lambda x: gj.contract("ij,jk", x, b, beta=2)),
        (gett.OptionError, "scales c", lambda x: gj.contract("ij,jk", x, b, beta=jnp.float32(2))),
        (gett.ShapeError, r"c of shape \(3,\)", lambda x: gj.contract("ij,jk", x, b, c=jnp.ones(3))),
        (gett.DTypeError, "alpha=1j is complex", lambda x: gj.contract("ij,jk", x, b, alpha=1j)),
        (gett.DTypeError, "alpha must be a number, not an array", lambda x: gj.contract("ij,jk", x, b, alpha=a[0])),
        (gett.DTypeError, "operand 0 is a JAX tracer.*gett.jax.einsum", lambda x: gett.einsum("ij,jk", x, b)),
    ):
        if "tracer" not in text:
            with pytest.raises(error, match=text):
                call(a)
        with pytest.raises(error, match=text):
            jax.jit(call)(a)
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(gett.DTypeError, match=r"dtype=float64 needs .*jax_enable_x64"):
        gj.einsum("ij->ij", a, dtype="float64")


def test_gett_imports_no_jax_before_it_is_asked_for() -> None:
    program = "import sys, gett; print('jax' in sys.modules); gett.jax.einsum; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_without_jax_there_is_an_error_that_says_so() -> None:
    program = """
import importlib.util as util
found = util.find_spec
util.find_spec = lambda name, *rest: None if name == "jax" else found(name, *rest)
import gett
try:
    import gett.jax
except gett.MissingPackageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "gett.jax needs JAX, which is not installed" in done.stdout
