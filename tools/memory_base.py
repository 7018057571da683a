"""What the families of memory_programs.py share."""
import jax
import jax.numpy as jnp

F32, BF16 = jnp.float32, jnp.bfloat16


class Program:
    """A function, the shapes of its arguments, and which of them are donated.

    mesh: the devices along the axes x and y; None: one device. split: for each
    argument a letter a dimension, the axis that it is split over or "-"; "":
    whole; "@": whole, in the host's memory."""

    def __init__(self, function, args, donated=(), split=None, mesh=None):
        self.function, self.args, self.donated = function, args, donated
        self.split, self.mesh = split, mesh


def shape(*dims, dtype=F32):
    return jax.ShapeDtypeStruct(dims, dtype)


def act(r):
    return r.choice([jnp.tanh, jax.nn.relu, jax.nn.gelu, jax.nn.silu])


def width(r):
    """Mostly round, sometimes odd, so that tiles are padded."""
    return r.choice([512, 1024, 2048, 4096, 2048, 1000, 1300, 777])


def rows(r):
    return r.choice([4096, 8192, 16384, 32768, 10000, 20001])


def mean_square(x):
    return (x.astype(F32) ** 2).mean()


def adam(p, m, v, g):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v
