"""Trains a character-level GPT on the help texts that Python ships (pydoc_data.topics).

Plain JAX: bf16 compute, f32 parameters, Adam written out. Nothing in it knows of
Atoll; the same file runs on a TPU.
"""
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import pydoc_data.topics

from common import adam, adam_init, banner, save_plot, seconds_per_step

LAYERS, WIDTH, HEADS, CONTEXT, BATCH = 4, 256, 4, 128, 16


def corpus():
    text = "\n".join(pydoc_data.topics.topics[k] for k in sorted(pydoc_data.topics.topics))
    letters = sorted(set(text))
    index = {c: i for i, c in enumerate(letters)}
    return np.array([index[c] for c in text], np.int32), letters


def init(key, vocab):
    def normal(key, *shape):
        return jax.random.normal(key, shape, jnp.float32) * 0.02
    keys = iter(jax.random.split(key, 2 + 4 * LAYERS))
    params = {"embed": normal(next(keys), vocab, WIDTH), "position": normal(next(keys), CONTEXT, WIDTH),
              "norm": jnp.ones(WIDTH), "blocks": []}
    for _ in range(LAYERS):
        params["blocks"].append({
            "norm1": jnp.ones(WIDTH), "norm2": jnp.ones(WIDTH),
            "qkv": normal(next(keys), WIDTH, 3 * WIDTH), "out": normal(next(keys), WIDTH, WIDTH),
            "up": normal(next(keys), WIDTH, 4 * WIDTH), "down": normal(next(keys), 4 * WIDTH, WIDTH)})
    return params


def norm(x, scale):
    y = x.astype(jnp.float32)
    y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
    return (y * scale).astype(x.dtype)


def block(p, x):
    b, s, d = x.shape
    w = jax.tree.map(lambda a: a.astype(x.dtype), p)
    qkv = (norm(x, p["norm1"]) @ w["qkv"]).reshape(b, s, 3, HEADS, d // HEADS)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    score = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(jnp.float32) * (d // HEADS) ** -0.5
    score = jnp.where(jnp.tril(jnp.ones((s, s), bool)), score, -1e9)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(score).astype(x.dtype), v)
    x = x + mixed.transpose(0, 2, 1, 3).reshape(b, s, d) @ w["out"]
    return x + jax.nn.gelu(norm(x, p["norm2"]) @ w["up"]) @ w["down"]


def logits(params, tokens):
    x = (params["embed"][tokens] + params["position"][: tokens.shape[1]]).astype(jnp.bfloat16)
    for p in params["blocks"]:
        x = block(p, x)
    return (norm(x, params["norm"]) @ params["embed"].T.astype(x.dtype)).astype(jnp.float32)


def loss_fn(params, tokens):
    scores = jax.nn.log_softmax(logits(params, tokens[:, :-1]))
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()


@jax.jit
def train_step(params, state, step, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    params, state = adam(params, grads, state, step, 1e-3)
    return params, state, loss


@jax.jit
def next_token(params, window, last, key):
    scores = logits(params, window[None])[0, last]
    return jax.random.categorical(key, scores / 0.7)


def sample(params, letters, prompt, count):
    index = {c: i for i, c in enumerate(letters)}
    tokens = [index[c] for c in prompt]
    key = jax.random.key(1)
    for i in range(count):
        tail = tokens[-CONTEXT:]
        window = np.zeros(CONTEXT, np.int32)
        window[: len(tail)] = tail
        tokens.append(int(next_token(params, window, len(tail) - 1, jax.random.fold_in(key, i))))
    return "".join(letters[t] for t in tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    steps = args.steps or (60 if args.quick else 400)
    banner()
    data, letters = corpus()
    split = len(data) * 9 // 10
    rng = np.random.default_rng(0)

    def batch(part):
        at = rng.integers(0, len(part) - CONTEXT - 1, BATCH)
        return np.stack([part[i : i + CONTEXT + 1] for i in at])

    params = init(jax.random.key(0), len(letters))
    state = adam_init(params)
    count = sum(x.size for x in jax.tree.leaves(params))
    print(f"GPT: {count / 1e6:.1f} M parameters, {len(data) / 1e3:.0f} k characters, {steps} steps")
    evaluate = jax.jit(loss_fn)
    curve, held = [], []
    start = time.perf_counter()
    for i in range(1, steps + 1):
        params, state, loss = train_step(params, state, jnp.float32(i), batch(data[:split]))
        if i == 1:
            jax.block_until_ready(loss)
            print(f"  compiled and ran the first step in {time.perf_counter() - start:.1f} s")
            start = time.perf_counter()
        if i % 20 == 0 or i == 1 or i == steps:
            curve.append((i, float(loss)))
            speed = (i - 1) * BATCH * CONTEXT / (time.perf_counter() - start)
            print(f"  step {i:4d}  loss {float(loss):.3f}  {speed:,.0f} tokens/s" if i > 1 else
                  f"  step {i:4d}  loss {float(loss):.3f}", flush=True)
        if i % 100 == 0 or i == steps:
            held.append((i, float(np.mean([evaluate(params, batch(data[split:])) for _ in range(8)]))))
    print(f"  held-out loss {held[-1][1]:.3f} ({held[-1][1] / np.log(2):.2f} bits a character)")
    print("  sample:", repr(sample(params, letters, "The ", 120)))
    atoll, xla = seconds_per_step(train_step, (params, state, jnp.float32(1), batch(data)), 3 if args.quick else 7)
    tokens = BATCH * CONTEXT
    print(f"  one step: Atoll {atoll * 1e3:.1f} ms ({tokens / atoll:,.0f} tokens/s), "
          f"XLA:CPU {xla * 1e3:.1f} ms ({tokens / xla:,.0f} tokens/s): {xla / atoll:.2f}x")
    save_plot("demo-out/gpt.png", "GPT on pydoc topics", {"train": curve, "held out": held})
    if not curve[-1][1] < curve[0][1] * 0.75:
        raise SystemExit("the loss did not fall")


if __name__ == "__main__":
    main()
