"""A training step in JAX through gett: a bilinear model, compiled, with gradients of each sample."""

import jax
import jax.numpy as jnp

import gett.jax


def model(parameters, x, y):
    """`x W y + bias`, behind a layer for each input: networks of two and of three arrays."""
    x = jnp.tanh(gett.jax.contract("nf,fh->nh", x, parameters["left"], c=parameters["shift"]))
    y = jnp.tanh(gett.jax.einsum("ng,gk->nk", y, parameters["right"]))
    return gett.jax.einsum("nh,ohk,nk->no", x, parameters["weight"], y)


def loss(parameters, x, y, wanted):
    return jnp.mean((model(parameters, x, y) - wanted) ** 2)


@jax.jit
def step(parameters, x, y, wanted):
    """The loss, and the parameters after a step of gradient descent."""
    value, gradients = jax.value_and_grad(loss)(parameters, x, y, wanted)
    return value, jax.tree.map(lambda p, g: p - 0.2 * g, parameters, gradients)


def start(key):
    shapes = {"left": (5, 4), "shift": (4,), "right": (6, 3), "weight": (2, 4, 3)}
    keys = jax.random.split(key, len(shapes))
    return {name: jax.random.normal(k, shape) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}


def main():
    teacher, parameters = start(jax.random.key(0)), start(jax.random.key(1))
    x, y = jax.random.normal(jax.random.key(2), (64, 5)), jax.random.normal(jax.random.key(3), (64, 6))
    wanted = model(teacher, x, y)
    losses = []
    for _ in range(100):
        value, parameters = step(parameters, x, y, wanted)
        losses.append(value)
    learned = bool(losses[-1] < 0.5 * losses[0])
    print("the loss has halved:", learned)

    samples = jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0, 0)))(parameters, x[:, None], y[:, None], wanted[:, None])
    whole = jax.grad(loss)(parameters, x, y, wanted)
    alike = all(jnp.allclose(samples[name].mean(0), whole[name], atol=1e-4) for name in whole)
    print("the mean of the samples' gradients is the gradient:", alike)


if __name__ == "__main__":
    main()
