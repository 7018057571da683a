"""Trains a convolutional network on scikit-learn's handwritten digits.

Plain JAX, f32. Prints the held-out accuracy; over 97% is expected.
"""
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from common import adam, adam_init, banner, save_plot, seconds_per_step

BATCH = 64


def init(key):
    shapes = {"conv1": (3, 3, 1, 32), "conv2": (3, 3, 32, 64), "dense1": (256, 128), "dense2": (128, 10)}
    keys = jax.random.split(key, len(shapes))
    params = {}
    for k, (name, shape) in zip(keys, shapes.items()):
        fan_in = np.prod(shape[:-1])
        params[name] = jax.random.normal(k, shape) * np.sqrt(2 / fan_in)
        params[name + "_bias"] = jnp.zeros(shape[-1])
    return params


def conv(x, w, b):
    x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = jax.nn.relu(x + b)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def logits(p, images):
    x = conv(images, p["conv1"], p["conv1_bias"])
    x = conv(x, p["conv2"], p["conv2_bias"])
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ p["dense1"] + p["dense1_bias"])
    return x @ p["dense2"] + p["dense2_bias"]


def loss_fn(p, images, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(p, images)), labels[:, None], 1).mean()


@jax.jit
def train_step(p, state, step, images, labels):
    loss, grads = jax.value_and_grad(loss_fn)(p, images, labels)
    p, state = adam(p, grads, state, step, 1e-3)
    return p, state, loss


@jax.jit
def accuracy(p, images, labels):
    return (logits(p, images).argmax(-1) == labels).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer epochs")
    args = parser.parse_args()
    epochs = 8 if args.quick else 20
    banner()
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., None]
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    test, train = order[:360], order[360:]
    params = init(jax.random.key(0))
    state = adam_init(params)
    print(f"CNN: {len(train)} training images, {len(test)} held out, {epochs} epochs")
    losses, scores, step = [], [], 0
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        np.random.default_rng(epoch).shuffle(train)
        for i in range(0, len(train) - BATCH + 1, BATCH):
            step += 1
            pick = train[i : i + BATCH]
            params, state, loss = train_step(params, state, jnp.float32(step), images[pick], labels[pick])
        losses.append((step, float(loss)))
        scores.append((step, float(accuracy(params, images[test], labels[test]))))
        if epoch % 4 == 0 or epoch == epochs:
            print(f"  epoch {epoch:2d}  loss {losses[-1][1]:.4f}  held-out accuracy {scores[-1][1]:.2%}", flush=True)
    print(f"  {step * BATCH / (time.perf_counter() - start):,.0f} images/s, compilation included")
    pick = train[:BATCH]
    atoll, xla = seconds_per_step(
        train_step, (params, state, jnp.float32(1), images[pick], labels[pick]), 5 if args.quick else 21)
    print(f"  one step: Atoll {atoll * 1e3:.2f} ms, XLA:CPU {xla * 1e3:.2f} ms: {xla / atoll:.2f}x")
    save_plot("demo-out/digits.png", "CNN on handwritten digits", {"loss": losses, "held-out accuracy": scores})
    if scores[-1][1] <= 0.97:
        raise SystemExit(f"held-out accuracy {scores[-1][1]:.2%} is not over 97%")


if __name__ == "__main__":
    main()
