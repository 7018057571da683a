#!/usr/bin/env python3
"""Pallas TPU kernels on Atoll beside the same maths in jnp on XLA:CPU and beside JAX's interpret modes, interleaved.

  bench/pallas.py [--library build/release/libatoll.so] [--cases mm_bfloat16_512,flash_bfloat16_n] [--rounds 5] [--interpret]

One process per peer lives through the run; they take turns of the same length, and of each the least time counts: by the
clock, and of all processors together, which others on the machine disturb less. Without --interpret only Atoll and jnp run:
the interpreters take seconds a call. `--cases more` runs the kernels of pallas_cases.py, and attention over pages that no cache
holds.

`limit` is the time that this machine needs at least: the longest of the products' operations at the peak of the unit that
they run on, of operands and results at the rate of all cores' copies past the caches, and of the exponentials from registers
(bench/peak measures the three). Products of f32 count for the bf16 unit, since a TPU kernel rounds such operands to bf16. Work
is counted as the maths needs it: of causal attention the blocks of 128 at or under the diagonal, one exponential for a score
and one for a row of a block. `20x` and `200x` say how often faster than interpret=True and InterpretParams Atoll is, and
whether that or 60 % of the limit is reached; `jnp` whether it is no slower than jnp.
"""
import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import time

import pallas_cases

TOP = pathlib.Path(__file__).resolve().parents[1]
CASES = ["mm_float32_128", "mm_float32_512", "mm_bfloat16_128", "mm_bfloat16_512", "softmax", "flash_float32_n", "flash_float32_c",
         "flash_bfloat16_n", "paged"]
LONG = ["paged_float32", "paged_bfloat16"]


# ---- in a peer's process
def matmul(x, y, b, interpret):
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu
    m, n, steps = x.shape[0], y.shape[1], x.shape[1] // b

    def kernel(x, y, o, acc):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc[...] = jnp.zeros_like(acc)
        acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == steps - 1)
        def _():
            o[...] = acc[...].astype(o.dtype)
    return pl.pallas_call(kernel, grid=(m // b, n // b, steps), out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
                          in_specs=[pl.BlockSpec((b, b), lambda i, j, k: (i, k)), pl.BlockSpec((b, b), lambda i, j, k: (k, j))],
                          out_specs=pl.BlockSpec((b, b), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((b, b), jnp.float32)],
                          compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
                          interpret=interpret)(x, y)


def softmax(x, interpret):
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl

    def kernel(x, o):
        v = jnp.exp(x[...] - x[...].max(-1, keepdims=True))
        o[...] = v / v.sum(-1, keepdims=True)
    spec = pl.BlockSpec((256, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(kernel, grid=(x.shape[0] // 256,), in_specs=[spec], out_specs=spec, interpret=interpret,
                          out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def paged_reference(q, k, v, lengths, pages):
    import jax
    import jax.numpy as jnp
    heads, size, dim = k.shape[0], k.shape[2], k.shape[3]
    batch, count = pages.shape
    k, v = (jnp.swapaxes(x[:, pages].reshape(heads, batch, count * size, dim), 0, 1) for x in (k, v))
    score = jnp.einsum("bhgd,bhtd->bhgt", q.reshape(batch, heads, -1, dim), k)
    score = jnp.where(jnp.arange(count * size) < lengths[:, None, None, None], score, -1e30)
    return jnp.einsum("bhgt,bhtd->bhgd", jax.nn.softmax(score, -1), v).reshape(q.shape)


def paged_shape(name):
    """heads of queries and of keys, pages of 16 in memory and of a step, tokens of each sequence"""
    return (8, 2, 64, 4, (256, 100, 17, 200)) if name == "paged" else (32, 8, 1024, 32, (2048,) * 8)


def case_of(name, interpret):
    """the kernel, the same maths in jnp, operands"""
    if name in pallas_cases.NAMES:
        return pallas_cases.case_of(name, interpret)[:3]
    import jax
    import jax.numpy as jnp
    import numpy as np
    rng = np.random.RandomState(0)
    normal = lambda dtype, *shape: jnp.asarray(rng.randn(*shape).astype(np.float32), dtype)
    kind, *rest = name.split("_")
    if kind == "mm":
        dtype, b = jnp.dtype(rest[0]), int(rest[1])
        reference = lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32).astype(dtype)
        return lambda x, y: matmul(x, y, b, interpret), reference, (normal(dtype, 1024, 1024), normal(dtype, 1024, 1024))
    if kind == "softmax":
        return lambda x: softmax(x, interpret), lambda x: jax.nn.softmax(x, -1), (normal("float32", 2048, 1024),)
    from jax.experimental import pallas as pl
    if interpret:  # of library kernels, which do not ask
        native = pl.pallas_call
        pl.pallas_call = lambda *a, **k: native(*a, **{**k, "interpret": interpret})
    if kind == "flash":
        from jax.experimental.pallas.ops.tpu import flash_attention as f
        how = {"causal": rest[1] == "c", "sm_scale": 128 ** -0.5}
        return (lambda q, k, v: f.flash_attention(q, k, v, **how), lambda q, k, v: f.mha_reference(q, k, v, None, **how),
                tuple(normal(rest[0], 1, 4, 1024, 128) for _ in range(3)))
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention
    heads, shared, count, step, tokens = paged_shape(name)
    dtype, batch = rest[0] if rest else "float32", len(tokens)
    pages = jnp.asarray(rng.permutation(count).reshape(batch, -1), jnp.int32)
    operands = (normal(dtype, batch, heads, 128) * 128 ** -0.5, normal(dtype, shared, count, 16, 128),
                normal(dtype, shared, count, 16, 128), jnp.asarray(tokens, jnp.int32), pages)
    return functools.partial(paged_attention, pages_per_compute_block=step), paged_reference, operands


def needs(name):
    """Of a case: operations of products, bytes of operands and results, exponentials."""
    if name in pallas_cases.NAMES:
        return pallas_cases.case_of(name, False)[3]
    kind, *rest = name.split("_")
    if kind == "mm":
        return 2 * 1024 ** 3, 3 * 1024 ** 2 * (4 if rest[0] == "float32" else 2), 0
    if kind == "softmax":
        return 0, 2 * 4 * 2048 * 1024, 2048 * 1024
    if kind == "flash":
        heads, rows, size, block = 4, 1024, 128, 128
        tiles = rows // block
        blocks = heads * (tiles * (tiles + 1) // 2 if rest[1] == "c" else tiles * tiles)
        return (4 * blocks * block * block * size, 4 * heads * rows * size * (4 if rest[0] == "float32" else 2),
                blocks * block * (block + 1))
    heads, shared, _, _, lengths = paged_shape(name)
    tokens, size = sum(-(-n // 16) * 16 for n in lengths), 2 if rest == ["bfloat16"] else 4
    return (4 * heads * tokens * 128, size * (2 * len(lengths) * heads * 128 + 2 * shared * tokens * 128), heads * tokens)


def limit_ms(name, limits):
    flops, size, exps = needs(name)
    unit = limits["f32"] if name.startswith("paged") else max(limits["f32"], limits["bf16"])
    return 1e3 * max(flops / (1e9 * unit), size / (1e9 * limits["memory"]), exps / (1e9 * limits["exp"]))


def machine_limits(library):
    limits = {}
    for which in ([], ["memory"], ["exp"]):
        run = subprocess.run([library.parent / "peak", *which], capture_output=True, text=True, check=True)
        limits.update(json.loads(run.stdout))
    return limits


def verdicts(peers, limit):
    own = peers["atoll"].best
    out = [f"{limit:.3f} {100 * limit / own:.0f}%"]
    for peer, times in (("interpret", 20), ("InterpretParams", 200)):
        if peer in peers:
            ratio = peers[peer].best / own
            out.append(f"{'yes' if ratio >= times or limit >= 0.6 * own else 'no'} {ratio:.1f}")
    return out + ["yes" if own <= peers["jnp"].best else "no"]


def work(name, peer):
    import jax
    from jax.experimental.pallas import tpu as pltpu
    interpret = {"interpret": True, "InterpretParams": pltpu.InterpretParams()}.get(peer, False)
    kernel, reference, operands = case_of(name, interpret)
    run = jax.jit(reference if peer == "jnp" else kernel)
    jax.block_until_ready(run(*operands))
    print("ready", flush=True)
    for line in sys.stdin:
        times, until = [], time.perf_counter() + float(line)
        while not times or time.perf_counter() < until:
            start, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(run(*operands))
            times.append((1e3 * (time.perf_counter() - start), 1e3 * (time.process_time() - cpu)))
        print(json.dumps([min(t) for t in zip(*times)]), flush=True)


# ---- outside
class Peer:
    def __init__(self, library, name, peer):
        env = dict(os.environ, JAX_PLATFORMS="cpu")
        env.pop("TPU_LIBRARY_PATH", None)
        if peer == "atoll":
            env.update(TPU_LIBRARY_PATH=str(library), JAX_PLATFORMS="tpu", ATOLL_TARGET="v5e", ATOLL_LENIENT="1")
        self.best, self.cpu = float("inf"), float("inf")
        self.child = subprocess.Popen([sys.executable, __file__, "--work", name, peer], env=env, text=True, bufsize=1,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        while (line := self.child.stdout.readline().strip()) != "ready":
            if not line:
                raise SystemExit(f"{peer} cannot run {name}")

    def turn(self, seconds):
        self.child.stdin.write(f"{seconds}\n")
        self.child.stdin.flush()
        best, cpu = json.loads(self.child.stdout.readline())
        self.best, self.cpu = min(self.best, best), min(self.cpu, cpu)

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.25, help="of a turn; at least one call")
    parser.add_argument("--interpret", action="store_true")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(*options.work)
    library = pathlib.Path(options.library).resolve()
    names = ["atoll", "jnp"] + ["interpret", "InterpretParams"] * options.interpret
    limits = machine_limits(library)
    print("GFLOP/s, GB/s, 1e9 exponentials/s:", ", ".join(f"{k} {v:.4g}" for k, v in limits.items()))
    heads = ["limit", *(["20x", "200x"] if options.interpret else []), "jnp"]
    print(f"{'ms (of processors)':20}" + "".join(f"{n:>20}" for n in [*names, "jnp/atoll"]) + "".join(f"{h:>12}" for h in heads))
    for case in pallas_cases.NAMES + LONG if options.cases == "more" else options.cases.split(","):
        peers = {n: Peer(library, case, n) for n in names}
        for _ in range(options.rounds):
            for p in peers.values():
                p.turn(options.seconds)
        for p in peers.values():
            p.end()
        own, jnp = peers["atoll"], peers["jnp"]
        rows = [f"{peers[n].best:.3f} ({peers[n].cpu:.3f})" for n in names]
        rows.append(f"{jnp.best / own.best:.2f} ({jnp.cpu / own.cpu:.2f})")
        print(f"{case:20}" + "".join(f"{r:>20}" for r in rows) +
              "".join(f"{v:>12}" for v in verdicts(peers, limit_ms(case, limits))), flush=True)


if __name__ == "__main__":
    sys.exit(main())
