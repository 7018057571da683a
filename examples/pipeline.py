#!/usr/bin/env python3
"""A small transformer in a pipeline: four stages on two islands of a pod, one message a step.

  atoll pod up --hosts=4 --target=2*v5e:2x4 -- python examples/pipeline.py [--stages 4] [--microbatches 8]
      [--schedule 1f1b] [--layers 8] [--steps 20] [--remat] [--exact] [--check]

It learns to say the letters of a text again, four places later. `--check` compares loss and gradients with those of one
mesh, which has to have the same bits.
"""
import argparse
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

import atoll

LETTERS, LENGTH, DELAY = 32, 16, 4


class Layer(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(x[..., 0])
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), mask=mask)
        return x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))


class Transformer(nn.Module):
    layers: int
    width: int = 64

    @nn.compact
    def __call__(self, text):
        letters = nn.Embed(LETTERS, self.width)
        x = letters(text) + nn.Embed(LENGTH, self.width)(jnp.arange(LENGTH))
        for _ in range(self.layers):
            x = Layer(self.width)(x)
        return letters.attend(nn.LayerNorm()(x))  # the first stage's parameters, in the last


def loss(logits, text):
    log = jax.nn.log_softmax(logits[:, DELAY:])
    return -jnp.take_along_axis(log, text[:, :-DELAY, None], -1).mean()


def optimizer(rate):
    try:
        import optax
        return optax.adam(rate)
    except ImportError:
        return lambda params, grads: jax.tree.map(lambda p, g: p - 10 * rate * g, params, grads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("stages", 4), ("microbatches", 8), ("layers", 8), ("steps", 20), ("batch", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--schedule", default="1f1b", choices=["gpipe", "1f1b"])
    parser.add_argument("--remat", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--check", action="store_true")
    o = parser.parse_args()

    rng = np.random.default_rng(0)
    text = rng.integers(0, LETTERS, (o.batch, LENGTH)).astype(np.int32)
    p = atoll.pipeline(Transformer(o.layers), stages=o.stages, microbatches=o.microbatches, schedule=o.schedule,
                       loss=loss, optimizer=optimizer(3e-3), remat=o.remat, exact=o.exact)
    state = p.init(jax.random.key(0), text)
    print(p.describe())
    if o.check:
        got = p.value_and_grad(state, text, text)
        one = p.on_one_mesh()
        want = one.value_and_grad(one.place(p.variables(state), text), text, text)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert (np.asarray(a) == np.asarray(b)).all()
        print("loss and gradients have the bits of one mesh")
    for step in range(o.steps):
        text = rng.integers(0, LETTERS, (o.batch, LENGTH)).astype(np.int32)
        start = time.perf_counter()
        state, value = p.step(state, text, text)
        sent = time.perf_counter() - start
        value = float(value)
        print(f"step {step:3d}  loss {value:.4f}  {1e3 * (time.perf_counter() - start):8.1f} ms, "
              f"{1e3 * sent:6.1f} ms of it the client's")


if __name__ == "__main__":
    main()
