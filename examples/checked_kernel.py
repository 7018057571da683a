"""A Pallas kernel with copies of its own, for `atoll check`; needs no TPU.

  atoll check examples/checked_kernel.py                 # clean: status 0
  atoll check examples/checked_kernel.py --broken        # a race: status 1
  atoll check --sarif=out.sarif --html=report examples/checked_kernel.py --broken

The kernel doubles an array block by block through two buffers: the next block is on its way while one is worked on.
--broken reads a block before it waits for it, which gives right results where copies happen to be quick.
"""
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

ROWS, BLOCKS = 8, 4
BROKEN = "--broken" in sys.argv


def double(x, o, buffers, arrived):
    def copy(block):
        return pltpu.make_async_copy(x.at[pl.ds(block * ROWS, ROWS)], buffers.at[block % 2], arrived.at[block % 2])

    copy(0).start()
    for block in range(BLOCKS):
        if block + 1 < BLOCKS:
            copy(block + 1).start()
        if not BROKEN:
            copy(block).wait()
        o[pl.ds(block * ROWS, ROWS)] = buffers[block % 2] * 2
        if BROKEN:
            copy(block).wait()


def main():
    x = jnp.arange(ROWS * BLOCKS * 128, dtype=jnp.float32).reshape(-1, 128)
    call = pl.pallas_call(double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
                          scratch_shapes=[pltpu.VMEM((2, ROWS, 128), x.dtype), pltpu.SemaphoreType.DMA((2,))])
    np.testing.assert_array_equal(jax.jit(call)(x), x * 2)
    print("right")


if __name__ == "__main__":
    main()
