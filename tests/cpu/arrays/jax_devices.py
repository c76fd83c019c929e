"""What must hold for `gett.jax` on several devices; run where JAX has been told to make four of the CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gett.jax

Spec = jax.sharding.PartitionSpec


def own(a: Any, b: Any) -> Any:
    return gett.jax.einsum("ij,jk->ik", a, b)


def added(a: Any, b: Any, c: Any) -> Any:
    return gett.jax.contract("ij,jk->ik", a, b, c=c)


def gradients(call: Any, *operands: Any) -> Any:
    return jax.jit(jax.grad(lambda *x: jnp.sin(call(*x)).sum(), tuple(range(len(operands)))))(*operands)


def alike(found: Any, wanted: Any) -> None:
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4)


def check_devices() -> None:
    assert len(jax.devices()) == 4
    generator = np.random.default_rng(0)
    a, b, c = (jnp.asarray(generator.normal(size=s), "float32") for s in ((4, 8), (8, 5), (5,)))
    wanted = a @ b, gradients(jnp.matmul, a, b)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    placed = jax.device_put(a, jax.sharding.NamedSharding(mesh, Spec("x")))
    alike((jax.jit(own)(placed, b), gradients(own, placed, b)), wanted)
    for checked in (True, False):

        def mapped(call: Any, places: Any, out: Any, checked: bool = checked) -> Any:
            return jax.shard_map(call, mesh=mesh, in_specs=places, out_specs=out, check_vma=checked)

        rows = mapped(own, (Spec("x"), Spec()), Spec("x"))
        alike((jax.jit(rows)(a, b), gradients(rows, a, b)), wanted)
        sums = mapped(lambda a, b: jax.lax.psum(own(a, b), "x"), (Spec(None, "x"), Spec("x")), Spec())
        alike((jax.jit(sums)(a, b), gradients(sums, a, b)), wanted)
        bias = mapped(added, (Spec("x"), Spec(), Spec()), Spec("x"))
        alike(gradients(bias, a, b, c), gradients(lambda a, b, c: a @ b + c, a, b, c))
    explicit = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(explicit):
        placed = jax.device_put(a, jax.sharding.NamedSharding(explicit, Spec("x")))
        alike((jax.jit(own)(placed, b), gradients(own, placed, b)), wanted)
    print("all", "right")
