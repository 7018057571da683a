"""More kernels for bench/pallas.py: what a step of a kernel does with large values, and copies that kernels make themselves."""
ROWS, COLUMNS, BLOCK = 4096, 1024, 256
NAMES = ["pipeline_add", "pipeline_softmax", "pipeline_mm", "double_buffer", "whole_gelu", "column_sums", "argmax", "roll", "transpose"]


def add(x, y, o):
    o[...] = x[...] + y[...]


def softmax(x, o):
    import jax.numpy as jnp
    v = jnp.exp(x[...] - x[...].max(-1, keepdims=True))
    o[...] = v / v.sum(-1, keepdims=True)


def multiply(x, y, o):
    import jax.numpy as jnp
    from jax.experimental import pallas as pl

    @pl.when(pl.program_id(2) == 0)
    def _():
        o[...] = jnp.zeros_like(o)
    o[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)


def double_buffer(x, o, inside, outside, came, went):
    """Softmax of blocks that the kernel copies in and out by itself, one ahead."""
    import jax
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu
    steps = ROWS // BLOCK

    def load(i):
        return pltpu.make_async_copy(x.at[pl.ds(i * BLOCK, BLOCK)], inside.at[i % 2], came.at[i % 2])

    def store(i):
        return pltpu.make_async_copy(outside.at[i % 2], o.at[pl.ds(i * BLOCK, BLOCK)], went.at[i % 2])
    load(0).start()

    @pl.loop(0, steps)
    def _(i):
        pl.when(i + 1 < steps)(lambda: load(i + 1).start())
        load(i).wait()
        pl.when(i >= 2)(lambda: store(i - 2).wait())
        softmax(inside.at[i % 2], outside.at[i % 2])
        store(i).start()
    store(steps - 2).wait()
    store(steps - 1).wait()


def case_of(name, interpret):
    """the kernel, the same maths in jnp, operands, what they need: operations of products, bytes, exponentials"""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu
    rng = np.random.RandomState(0)
    normal = lambda *shape: jnp.asarray(rng.randn(*shape).astype(np.float32))
    anywhere, block = pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec((BLOCK, COLUMNS), lambda i: (i, 0))
    size, grid = ROWS * COLUMNS, (ROWS // BLOCK,)

    def call(body, out, dtype=jnp.float32, **how):
        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(out, dtype), interpret=interpret, **how)

    def pipeline(body, out, ins, grid=grid, outs=block):
        def kernel(*refs):
            pltpu.emit_pipeline(body, grid=grid, in_specs=ins, out_specs=[outs])(*refs)
        return call(kernel, out, in_specs=[anywhere] * len(ins), out_specs=anywhere)

    def blocks(body, out, dtype=jnp.float32, width=COLUMNS):
        return call(body, out, dtype, grid=grid, in_specs=[block], out_specs=pl.BlockSpec((BLOCK, width), lambda i: (i, 0)))
    x, full = normal(ROWS, COLUMNS), (ROWS, COLUMNS)
    stable = lambda x: jax.nn.softmax(x, -1)
    if name == "pipeline_add":
        return pipeline(add, full, [block] * 2), jnp.add, (x, normal(*full)), (0, 12 * size, 0)
    if name == "pipeline_softmax":
        return pipeline(softmax, full, [block]), stable, (x,), (0, 8 * size, size)
    if name == "pipeline_mm":
        ins = [pl.BlockSpec((BLOCK, BLOCK), lambda i, j, k: (i, k)), pl.BlockSpec((BLOCK, BLOCK), lambda i, j, k: (k, j))]
        kernel = pipeline(multiply, (1024, 1024), ins, (4, 4, 4), pl.BlockSpec((BLOCK, BLOCK), lambda i, j, k: (i, j)))
        return kernel, jnp.dot, (normal(1024, 1024), normal(1024, 1024)), (2 * 1024 ** 3, 12 * 1024 ** 2, 0)
    if name == "double_buffer":
        buffers = [pltpu.VMEM((2, BLOCK, COLUMNS), jnp.float32)] * 2 + [pltpu.SemaphoreType.DMA((2,))] * 2
        kernel = call(double_buffer, full, in_specs=[anywhere], out_specs=anywhere, scratch_shapes=buffers)
        return kernel, stable, (x,), (0, 8 * size, size)
    if name == "whole_gelu":
        def kernel(x, o):
            o[...] = jax.nn.gelu(x[...])
        return call(kernel, (1024, COLUMNS)), jax.nn.gelu, (normal(1024, COLUMNS),), (0, 8 * 1024 * COLUMNS, 1024 * COLUMNS)
    if name == "column_sums":
        def kernel(x, o):
            @pl.when(pl.program_id(0) == 0)
            def _():
                o[...] = jnp.zeros_like(o)
            o[...] += x[...].sum(0, keepdims=True)
        sums = call(kernel, (1, COLUMNS), grid=grid, in_specs=[block], out_specs=pl.BlockSpec((1, COLUMNS), lambda i: (0, 0)))
        return sums, lambda x: x.sum(0, keepdims=True), (x,), (0, 4 * size, 0)
    if name == "argmax":
        def kernel(x, o):
            o[...] = jnp.broadcast_to(jnp.argmax(x[...], -1, keepdims=True).astype(jnp.int32), o.shape)
        same = lambda x: jnp.broadcast_to(jnp.argmax(x, -1, keepdims=True), (ROWS, 128))
        return blocks(kernel, (ROWS, 128), jnp.int32, 128), same, (x,), (0, 4 * size + 512 * ROWS, 0)
    if name == "roll":
        def kernel(x, o):
            o[...] = pltpu.roll(x[...], 3, 1)
        return blocks(kernel, full), lambda x: jnp.roll(x, 3, 1), (x,), (0, 8 * size, 0)

    def kernel(x, o):
        o[...] = x[...].T
    turned = call(kernel, (2048, 2048), grid=(8, 8), in_specs=[pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j))],
                  out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (j, i)))
    return turned, lambda x: x.T + 0, (normal(2048, 2048),), (0, 8 * 2048 ** 2, 0)
