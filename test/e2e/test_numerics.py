"""ATOLL_NUMERICS: which default-precision products of f32 round their operands to bf16."""
import os
import subprocess
import sys

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import pallas as pl
x = np.random.default_rng(0).standard_normal((64, 96), np.float32)
y = np.random.default_rng(1).standard_normal((96, 32), np.float32)
rounded = lambda a: np.asarray(jnp.asarray(a).astype(jnp.bfloat16).astype(jnp.float32))
got = np.asarray(jax.jit(jnp.matmul)(x, y))
asked = np.asarray(jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))(x, y))
sums = np.asarray(jax.jit(lambda a: jnp.einsum("ij,ij->i", a, a))(x))
bytes_ = np.random.default_rng(2).integers(-127, 128, (96, 32), np.int8)
mixed = np.asarray(jax.jit(jnp.matmul)(x, bytes_))
rounds = abs(mixed - rounded(x) @ bytes_).max() < 1e-2
assert rounds == (abs(mixed - x @ bytes_.astype(np.float32)).max() > 1e-2)
assert rounds == (abs(got - rounded(x) @ rounded(y)).max() < 1e-4)  # as of two f32 operands
assert abs(sums - (x * x).sum(1)).max() < 1e-4  # no product for the matrix unit
for rule, a, b in (("ij,j->i", x, y[:, 0]), ("ij,jk->ik", x, y[:, :1]), ("jk,j->k", y, x[0]), ("ij,jk->ik", x[:1], y),
                   ("bij,bjk->bik", x.reshape(8, 8, 96), x.reshape(8, 8, 96)[:, 0, :, None])):  # nor one with a vector
    one = np.asarray(jax.jit(lambda a, b: jnp.einsum(rule, a, b))(a, b))
    assert abs(one - np.einsum(rule, a, b)).max() < 1e-4, rule
outer = np.asarray(jax.jit(jnp.matmul)(x[:, :1], y[:1]))
assert abs(outer - x[:, :1] * y[:1]).max() < 1e-6  # nor what sums nothing
wide, deep = np.stack([x, x + 1]), np.stack([x[0], x[1]])
batch = np.asarray(jax.jit(lambda a, b: jnp.einsum("bij,bj->bi", a, b))(wide, deep))  # batches of matrices are
assert rounds == (abs(batch - np.einsum("bij,bj->bi", rounded(wide), rounded(deep))).max() < 1e-4)
image, kernel = x.reshape(1, 8, 8, 96), np.random.default_rng(3).standard_normal((3, 3, 96, 16), np.float32)
conv = lambda a, w, precision=None, groups=1: np.asarray(jax.jit(lambda a, w: jax.lax.conv_general_dilated(
    a, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), precision=precision, feature_group_count=groups))(a, w))
assert rounds == (abs(conv(image, kernel) - conv(rounded(image), rounded(kernel), "highest")).max() < 1e-3)
depthwise = np.ascontiguousarray(kernel[:, :, :, :1].transpose(0, 1, 3, 2))
assert abs(conv(image, depthwise, None, 96) - conv(image, depthwise, "highest", 96)).max() < 1e-3
def kernel(precision):
    def body(x, y, o):
        o[...] = jnp.dot(x[...], y[...], precision=precision)
    return np.asarray(pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((64, 32), jnp.float32))(x, y))
assert abs(kernel("highest") - x @ y).max() < 1e-4
inside = kernel(None)
assert (abs(inside - rounded(x) @ rounded(y)).max() < 1e-4) == (abs(inside - x @ y).max() > 1e-4)
print(abs(inside - x @ y).max() < 1e-4, end=" ")
print(abs(got - x @ y).max() < 1e-4, abs(got - rounded(x) @ rounded(y)).max() < 1e-4, abs(asked - x @ y).max() < 1e-4)
"""


def run(numerics):
    env = dict(os.environ, TPU_LIBRARY_PATH=os.environ["ATOLL_LIBRARY"], ATOLL_NUMERICS=numerics, ATOLL_CACHE="off")
    env.pop("JAX_PLATFORMS", None)
    return subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True).stdout.split()


def test_exact_is_f32():
    assert run("exact") == ["True", "True", "False", "True"]


def test_kernels_round_by_default():
    assert run("") == ["False", "True", "False", "True"]


def test_tpu_rounds_to_bf16_unless_asked():
    assert run("tpu") == ["False", "False", "True", "True"]


def test_narrow_types_have_kernels(python, tmp_path):
    out = python("""
import jax, jax.numpy as jnp, numpy as np
KINDS = {"float8_e4m3fn": jnp.float32, "float8_e5m2": jnp.bfloat16, "float8_e4m3b11fnuz": jnp.float32, "int4": jnp.int32,
         "uint4": jnp.int32, "int8": jnp.int32}
for kind, result in KINDS.items():
    a, b = (jax.random.randint(jax.random.key(i), s, 0 if kind[0] == "u" else -7, 8).astype(kind)
            for i, s in enumerate([(70, 90), (90, 50)]))
    got = jax.jit(lambda a, b: jnp.dot(a, b, preferred_element_type=result))(a, b)
    want = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    assert (np.asarray(got, np.float64) == np.asarray(jnp.asarray(want, result), np.float64)).all(), kind
""", env={"ATOLL_DUMP": str(tmp_path), "ATOLL_CACHE": "off"})
    assert out.returncode == 0, out.stderr
    steps = [p.read_text() for p in tmp_path.glob("jit__lambda*.steps.txt")]
    assert len(steps) == 6 and all("runtime GEMM" in text for text in steps), steps
