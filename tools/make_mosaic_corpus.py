#!/usr/bin/env python3
"""Writes bodies of small Pallas kernels, as JAX lowers them, in the newest form that it has.

usage: make_mosaic_corpus.py [FOLDER [KERNELS]]   (from the top of the checkout; needs jax, no TPU)

Without a folder: test/corpora/mosaic_fuzz. src/mosaic/testdata/VERSION has copies,moves,semaphores,loops of JAX VERSION.
"""
import base64, json, os, re, sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
SOURCE = '''
import jax, jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
S, f32, bf16, i32 = jax.ShapeDtypeStruct, jnp.float32, jnp.bfloat16, jnp.int32
ANY, SMEM = pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pltpu.SMEM)

def add():
    def body(x, y, o): o[...] = x[...] + y[...]
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    return body, S((32, 256), f32), [S((32, 256), f32)] * 2, dict(grid=(4, 2), in_specs=[spec] * 2, out_specs=spec)

def matmul():
    def body(x, y, o, acc):
        @pl.when(pl.program_id(2) == 0)
        def _(): acc[...] = jnp.zeros_like(acc)
        acc[...] += jnp.dot(x[...], y[...], preferred_element_type=f32)
        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _(): o[...] = acc[...].astype(o.dtype)
    return body, S((256, 256), bf16), [S((256, 256), bf16)] * 2, dict(
        grid=(2, 2, 2), in_specs=[pl.BlockSpec((128, 128), lambda i, j, k: (i, k)), pl.BlockSpec((128, 128), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((128, 128), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((128, 128), f32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")))

def softmax():
    def body(x, o): o[...] = jax.nn.softmax(x[...], axis=-1)
    return body, S((8, 128), f32), [S((8, 128), f32)], {}

def copies():
    def body(x, o, v, s):
        a = pltpu.make_async_copy(x.at[pl.ds(8, 16)], v, s); a.start(); a.wait()
        b = pltpu.make_async_copy(v, o.at[pl.ds(8, 16)], s); b.start(); b.wait()
    return body, S((64, 128), f32), [S((64, 128), f32)], dict(
        in_specs=[ANY], out_specs=ANY, scratch_shapes=[pltpu.VMEM((16, 128), f32), pltpu.SemaphoreType.DMA])

def prefetch():
    def body(s, x, o): o[...] = x[...] * s[0].astype(f32)
    return body, S((32, 128), f32), [S((4,), i32), S((64, 128), f32)], dict(
        grid_spec=pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(4,),
            in_specs=[pl.BlockSpec((8, 128), lambda i, s: (s[i], 0))], out_specs=pl.BlockSpec((8, 128), lambda i, s: (i, 0))))

def loops():
    def body(n, x, o):
        y = lax.fori_loop(0, n[0], lambda i, c: c * 1.5 + i.astype(f32), x[...])
        o[...] = lax.while_loop(lambda c: jnp.max(c) < 10.0, lambda c: c * 2.0, y)
    return body, S((8, 128), f32), [S((1,), i32), S((8, 128), f32)], dict(in_specs=[SMEM, pl.BlockSpec(memory_space=pltpu.VMEM)])

def moves():
    def body(x, o): o[...] = jnp.concatenate([pltpu.roll(x[...], 3, 1), x[...].reshape(16, 64).reshape(8, 128)], 0).T
    return body, S((128, 16), f32), [S((8, 128), f32)], {}

def random_bits():
    def body(o):
        pltpu.prng_seed(1)
        o[...] = pltpu.prng_random_bits((8, 128))
    return body, S((8, 128), i32), [], {}

def semaphores():
    def body(x, o, s):
        pl.semaphore_signal(s, 1); pl.semaphore_wait(s, 1)
        o[...] = jnp.sum(x[...], axis=0, keepdims=True)
    return body, S((1, 128), f32), [S((8, 128), f32)], dict(scratch_shapes=[pltpu.SemaphoreType.REGULAR])

KERNELS = [add, matmul, softmax, copies, prefetch, loops, moves, random_bits, semaphores]
'''


def main():
    names = {}
    exec(compile(SOURCE, "kernels.py", "exec"), names)
    jax, pl = names["jax"], names["pl"]
    folder = sys.argv[1] if len(sys.argv) > 1 else "test/corpora/mosaic_fuzz"
    os.makedirs(folder, exist_ok=True)
    from jax._src import tpu_custom_call
    tpu_custom_call.get_ir_version = lambda *_: None  # without a TPU JAX writes an older form
    kernels = names["KERNELS"]
    if len(sys.argv) > 2:
        kernels = [names[k] for k in sys.argv[2].split(",")]
    for make in kernels:
        body, out, ins, kw = make()
        call = lambda *a: pl.pallas_call(body, out_shape=out, **kw)(*a)
        text = jax.jit(call).trace(*ins).lower(lowering_platforms=("tpu",)).as_text()
        config = json.loads(re.search(r'backend_config = "((?:[^"\\]|\\.)*)"', text)[1].replace('\\22', '"').replace('\\"', '"'))
        with open(f"{folder}/{make.__name__}.bc", "wb") as f:
            f.write(base64.b64decode(config["custom_call_config"]["body"]))


if __name__ == "__main__":
    main()
