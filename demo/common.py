"""What both demos share: Adam in plain JAX, timing of one step on two backends, a plot."""
import os
import time

import jax
import jax.numpy as jnp


def adam_init(params):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return zeros, zeros


def adam(params, grads, state, step, lr, b1=0.9, b2=0.999, eps=1e-8):
    m, v = state
    m = jax.tree.map(lambda a, g: b1 * a + (1 - b1) * g, m, grads)
    v = jax.tree.map(lambda a, g: b2 * a + (1 - b2) * g * g, v, grads)
    c1, c2 = 1 - b1**step, 1 - b2**step
    params = jax.tree.map(lambda p, a, b: p - lr * (a / c1) / (jnp.sqrt(b / c2) + eps), params, m, v)
    return params, (m, v)


def banner():
    client = jax.devices()[0].client
    print(f"JAX {jax.__version__} on {jax.devices()[0].device_kind}: {client.platform_version.splitlines()[-1]}")
    if "atoll" not in client.platform_version.lower():
        raise SystemExit("this is not Atoll: set TPU_LIBRARY_PATH to libatoll.so (see README)")


def seconds_per_step(step, args, rounds):
    """Median seconds of one step on Atoll and on XLA:CPU, taken in turns."""
    devices = {"atoll": jax.devices()[0], "xla": jax.devices("cpu")[0]}
    placed = {name: jax.device_put(args, d) for name, d in devices.items()}
    times = {name: [] for name in devices}
    for name in devices:
        jax.block_until_ready(step(*placed[name]))  # compiles
    for _ in range(rounds):
        for name in devices:
            start = time.perf_counter()
            jax.block_until_ready(step(*placed[name]))
            times[name].append(time.perf_counter() - start)
    median = {name: sorted(t)[len(t) // 2] for name, t in times.items()}
    return median["atoll"], median["xla"]


def save_plot(path, title, series):
    """series: label -> list of (step, value)."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(figsize=(6, 3.5))
    for label, points in series.items():
        axes.plot(*zip(*points), label=label)
    axes.set_xlabel("step")
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    figure.savefig(path, dpi=120)
