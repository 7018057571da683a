#!/usr/bin/env python3
"""What planning for a machine of tiles takes, and what the planner gains over linear mapping.

  bench/tiles.py [--library build/release/libatoll.so] [programs] [plan] [resnet50]

programs   MLP, transformer layer, ResNet block and single convolutions: cycles planned and linear, of all
           steps and of the products alone
plan       a graph of 10,000 ops over all 1,472 tiles: at most 5 s of CPU time
resnet50   a training step of ResNet-50: at most 60 s of CPU time

All three without a name. Exit 1 where a limit is missed: products at least 1.5 times better than linear,
programs never worse. Nothing runs on tiles here: times are the command's own.
"""
import argparse
import os
import pathlib
import resource
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--library", default=str(root / "build/release/libatoll.so"))
parser.add_argument("--batch", type=int, default=4, help="images of the ResNet-50 step")
parser.add_argument("what", nargs="*", choices=["programs", "plan", "resnet50", []], default=[])
options = parser.parse_args()
os.environ["ATOLL_LIBRARY"] = os.path.abspath(options.library)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path[:0] = [str(root / "python"), str(root / "test/e2e")]

import jax
import jax.numpy as jnp
from atoll import tiles

missed = []


def seconds(run):
    """CPU time of the commands that run() starts, and what it returns."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, result


def hold(fine, text):
    if not fine:
        missed.append(text)


def spec(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def conv(x, w, stride=1):
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


# ---- Planned and linear ------------------------------------------------------------
def products(p):
    return sum(s["cycles"] * s["times"] for s in p.steps if s["name"].startswith(("dot_general", "convolution")))


def compare(name, fn, args, least):
    planned = tiles.profile(fn, *args, lenient=True)
    linear = tiles.profile(fn, *args, mapping="linear", lenient=True)
    gain = products(linear) / max(products(planned), 1)
    print(f"{name:34} {planned.cycles:10} {linear.cycles:11} {linear.cycles / planned.cycles:7.2f} {gain:10.2f} "
          f"{planned.peak_bytes:9}")
    hold(planned.cycles <= linear.cycles, f"{name}: worse than linear")
    hold(gain >= least, f"{name}: products {gain:.2f} times better, not {least}")


def programs():
    import test_tiles
    print(f"{'':34} {'planned':>10} {'linear':>11} {'gain':>7} {'products':>10} {'peak B':>9}")
    for name, (fn, *args) in test_tiles.jax_programs().items():
        compare(name, fn, args, 1.5)
    for m, k, n in ((512, 512, 512), (2048, 2048, 2048), (16, 4096, 1000)):
        compare(f"product {m} x {k} x {n}", jnp.matmul, (spec(m, k), spec(k, n)), 1.5)
    for x, w, stride in (((4, 56, 56, 64), (3, 3, 64, 64), 1), ((4, 56, 56, 256), (1, 1, 256, 64), 1),
                         ((4, 56, 56, 64), (1, 1, 64, 256), 1), ((4, 14, 14, 256), (3, 3, 256, 256), 1),
                         ((4, 7, 7, 512), (3, 3, 512, 512), 1), ((4, 224, 224, 3), (7, 7, 3, 64), 2)):
        compare(f"convolution {'x'.join(map(str, x))} {'x'.join(map(str, w))}/{stride}",
                lambda a, b: conv(a, b, stride), (spec(*x), spec(*w)), 1.0)


# ---- Times -------------------------------------------------------------------------
def plan():
    lines = ["func \"main\" (%0: f32[1472,64], %1: f32[1472,64]) -> (f32[1472,64]) {"]
    for i in range(2, 10002):
        lines.append(f"  %{i} = {'add' if i % 3 else 'multiply'} %{i - 1}, %{max(i - 200, 0)} : f32[1472,64]")
    text = 'hlo module "chain" entry="main" {\n' + "\n".join(lines) + "\n  return %10001\n}\n}\n"
    with tempfile.NamedTemporaryFile("w", suffix=".hlo") as f:
        f.write(text)
        f.flush()
        time, p = seconds(lambda: tiles.profile(f.name, lenient=True))
    print(f"10,000 ops x 1,472 tiles: {time:.2f} s, {len(p.steps)} steps, {p.cycles} cycles")
    hold(len(p.steps) == 10000 and time <= 5, f"planning took {time:.2f} s")


def resnet50():
    stages = ((3, 64), (4, 128), (6, 256), (3, 512))
    params, blocks, c = [spec(7, 7, 3, 64)], [], 64
    for stage, (n, width) in enumerate(stages):
        for i in range(n):
            shapes = [(1, 1, c, width), (3, 3, width, width), (1, 1, width, 4 * width)]
            shapes += [(1, 1, c, 4 * width)] if i == 0 else []
            blocks.append((len(params), len(shapes), 2 if i == 0 and stage else 1))
            params += [spec(*s) for s in shapes]
            c = 4 * width
    params.append(spec(c, 1000))

    def norm(x):
        m = x.mean((0, 1, 2))
        return (x - m) * jax.lax.rsqrt(((x - m) ** 2).mean((0, 1, 2)) + 1e-5)

    def loss(params, x, y):
        x = jax.nn.relu(norm(conv(x, params[0], 2)))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for first, n, stride in blocks:
            w = params[first:first + n]
            h = jax.nn.relu(norm(conv(x, w[0])))
            h = jax.nn.relu(norm(conv(h, w[1], stride)))
            h = norm(conv(h, w[2]))
            x = jax.nn.relu(h + (norm(conv(x, w[3], stride)) if n == 4 else x))
        logits = x.mean((1, 2)) @ params[-1]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, -1))

    def step(params, x, y):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x, y))

    b = options.batch
    time, p = seconds(lambda: tiles.profile(step, params, spec(b, 224, 224, 3), spec(b, 1000), lenient=True))
    print(f"ResNet-50 step, batch {b}: {time:.1f} s, {len(p.steps)} steps, {p.cycles} cycles "
          f"({1e3 * p.seconds:.2f} ms), fullest tile {p.peak_bytes} bytes")
    hold(time <= 60, f"a step of ResNet-50 took {time:.1f} s")


for name, run in (("programs", programs), ("plan", plan), ("resnet50", resnet50)):
    if not options.what or name in options.what:
        run()
for text in missed:
    print("missed:", text)
sys.exit(bool(missed))
