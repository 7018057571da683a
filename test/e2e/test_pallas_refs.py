"""Refs that branches choose and loops carry, in kernels written as Mosaic text: JAX does not make such itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import tpu_custom_call
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax.experimental.mosaic.dialects import tpu

VMEM, SMEM = "#tpu.memory_space<vmem>", "#tpu.memory_space<smem>"
M, S = f"memref<8x128xf32, {VMEM}>", f"memref<4xi32, {SMEM}>"
V = "vector<8x128xf32>"


def kernel(body, scratch=0):
  """body: text over %i (scalars), %x, %y, %o, scratch %s0.., and constants %c0, %c1, %cN (i32 4), %z, %one (index)."""
  args = [f"%i: {S}", f"%x: {M}", f"%y: {M}", f"%o: {M}"] + [f"%s{k}: {M}" for k in range(scratch)]
  text = f"""
module attributes {{stable_mosaic.version = 11 : i64}} {{
  func.func @main({", ".join(args)}) attributes {{dimension_semantics = [], scalar_prefetch = 0 : i64, scratch_operands = {scratch} : i64, tpu.core_type = #tpu.core_type<tc>}} {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %cN = arith.constant 4 : i32
    %z = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = memref.load %i[%z] : {S}
{body}
    return
  }}
}}"""
  ctx = mlir.JaxIrContext()
  ctx.append_dialect_registry(mlir.upstream_dialects)
  ctx.load_all_available_dialects()
  tpu.register_dialect(ctx)
  with ctx, ir.Location.unknown():
    module = ir.Module.parse(text)
    f = tpu_custom_call.as_tpu_kernel(module, jax.ShapeDtypeStruct((8, 128), jnp.float32), kernel_name="refs")
  return jax.jit(lambda n: f(jnp.array([n, 0, 0, 0], jnp.int32), X, Y))


X = jnp.arange(1024, dtype=jnp.float32).reshape(8, 128)
Y = 5000 - X


def load(name, ref, shape=M):
  return f"    {name} = vector.load {ref}[%z, %z] : {shape}, {V}\n"


def store(value, ref):
  return f"    vector.store {value}, {ref}[%z, %z] : {M}, {V}\n"


CHOOSE = f"""    %p = arith.cmpi sgt, %n, %c0 : i32
    %r = scf.if %p -> ({M}) {{
      scf.yield %x : {M}
    }} else {{
      scf.yield %y : {M}
    }}
"""


def test_a_branch_chooses_what_is_read():
  f = kernel(CHOOSE + load("%v", "%r") + store("%v", "%o"))
  np.testing.assert_array_equal(f(1), X)
  np.testing.assert_array_equal(f(0), Y)


def test_a_branch_chooses_what_is_written():
  # %old is read before, %new after the store that may change it.
  body = CHOOSE + load("%old", "%x") + load("%b", "%y") + store("%b", "%r") + load("%new", "%x")
  body += f"    %d = arith.subf %old, %new : {V}\n" + store("%d", "%o")
  f = kernel(body)
  np.testing.assert_array_equal(f(1), X - Y)
  np.testing.assert_array_equal(f(0), 0 * X)


def test_branches_choose_slices():
  s = f"memref<4x128xf32, {VMEM}>"
  body = f"""    %p = arith.cmpi sgt, %n, %c0 : i32
    %h = scf.if %p -> ({s}) {{
      %a = tpu.memref_slice %x[%c0, %c0] : {M} -> {s}
      scf.yield %a : {s}
    }} else {{
      %a = tpu.memref_slice %y[%cN, %c0] : {M} -> {s}
      scf.yield %a : {s}
    }}
    %v = vector.load %h[%z, %z] : {s}, vector<4x128xf32>
    %w = tpu.concatenate %v, %v in 0 : vector<4x128xf32>, vector<4x128xf32> -> {V}
"""
  f = kernel(body + store("%w", "%o"))
  np.testing.assert_array_equal(f(1), np.tile(X[:4], (2, 1)))
  np.testing.assert_array_equal(f(-1), np.tile(Y[4:], (2, 1)))


@pytest.mark.parametrize("turns", [0, 1, 3, 4])
def test_a_loop_swaps_two_buffers(turns):
  body = load("%a", "%x") + store("%a", "%s0") + load("%b", "%y") + store("%b", "%s1")
  body += f"""    %q:2 = scf.for %k = %c0 to %n step %c1 iter_args(%l = %s0, %r = %s1) -> ({M}, {M}) : i32 {{
      %u = vector.load %l[%z, %z] : {M}, {V}
      %w = vector.load %r[%z, %z] : {M}, {V}
      %t = arith.addf %u, %w : {V}
      vector.store %t, %r[%z, %z] : {M}, {V}
      scf.yield %r, %l : {M}, {M}
    }}
""" + load("%e", "%q#0") + store("%e", "%o")
  left, right = np.asarray(X), np.asarray(Y)
  for _ in range(turns):
    left, right = left + right, left
  np.testing.assert_array_equal(kernel(body, 2)(turns), left)


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_while_loop_carries_a_ref(turns):
  body = load("%a", "%x") + store("%a", "%s0") + load("%b", "%y") + store("%b", "%s1")
  body += f"""    %q:3 = scf.while (%k = %c0, %l = %s0, %r = %s1) : (i32, {M}, {M}) -> (i32, {M}, {M}) {{
      %more = arith.cmpi slt, %k, %n : i32
      scf.condition(%more) %k, %r, %l : i32, {M}, {M}
    }} do {{
    ^bb0(%k: i32, %l: {M}, %r: {M}):
      %u = vector.load %l[%z, %z] : {M}, {V}
      %w = arith.addf %u, %u : {V}
      vector.store %w, %l[%z, %z] : {M}, {V}
      %next = arith.addi %k, %c1 : i32
      scf.yield %next, %l, %r : i32, {M}, {M}
    }}
""" + load("%e", "%q#1") + store("%e", "%o")
  left, right = np.asarray(X), np.asarray(Y)
  for _ in range(turns):
    left, right = right, left
    left = left * 2
  left, right = right, left
  np.testing.assert_array_equal(kernel(body, 2)(turns), left)


def strides_differ(how):
  s = f"memref<4x128xf32, {VMEM}>"
  return f"""    %a = tpu.memref_slice %s0[%c0, %c0] : {M} -> {s}
    %t = tpu.memref_reshape %s1 : {M} -> memref<4x2x128xf32, {VMEM}>
    %u = tpu.memref_slice %t[%c0, %c1, %c0] : memref<4x2x128xf32, {VMEM}> -> memref<4x1x128xf32, {VMEM}>
    %b = tpu.memref_squeeze %u : memref<4x1x128xf32, {VMEM}> -> {s}
    %p = arith.cmpi sgt, %n, %c0 : i32
""" + how.replace("TYPE", s) + f"""    %v = vector.load %r[%z, %z] : {s}, vector<4x128xf32>
    %w = tpu.concatenate %v, %v in 0 : vector<4x128xf32>, vector<4x128xf32> -> {V}
""" + store("%w", "%o")


FILL = load("%fx", "%x") + store("%fx", "%s0") + load("%fy", "%y") + store("%fy", "%s1")


def test_strides_that_differ():
  choose = """    %r = scf.if %p -> (TYPE) {
      scf.yield %a : TYPE
    } else {
      scf.yield %b : TYPE
    }
"""
  f = kernel(FILL + strides_differ(choose), 2)
  np.testing.assert_array_equal(f(1)[:4], X[:4])
  np.testing.assert_array_equal(f(0)[:4], Y[1::2])
  carry = """    %r = scf.for %k = %c0 to %n step %c1 iter_args(%l = %a) -> (TYPE) : i32 {
      scf.yield %b : TYPE
    }
"""
  with pytest.raises(jax.errors.JaxRuntimeError, match="a ref whose layout changes"):
    kernel(FILL + strides_differ(carry), 2)(1)


@pytest.mark.parametrize("check", ["", "all"])
@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
def test_folded_packed_rows(python, kind, check):
  """Words of packed rows, wider than a tile, whose rows are cut into tiles: attention with heads of 256 does that."""
  out = python(f"""
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def body(first, x, out, picked):
  words, merged = x.bitcast(jnp.int32), out.bitcast(jnp.int32)
  rows = words.shape[0]
  words, merged = words.reshape(rows * 2, 128), merged.reshape(rows // 2, 128)
  for head in range(4):
    for fold in range(2):
      picked[head, :, fold * 128:(fold + 1) * 128] = words[pl.ds((head + first[0]) * 2 + fold, rows // 4, 8), :]
  for fold in range(2):
    merged[pl.ds(fold, rows // 4, 2), :] = words[pl.ds(2 + fold, rows // 4, 8), :]

kind = jnp.dtype("{kind}")
each, wide = 4 // kind.itemsize, (64, 256)
x = jax.random.randint(jax.random.key(0), wide, -100, 100).astype(kind)
word = lambda v: np.asarray(v).reshape(-1, each, 256).transpose(0, 2, 1).copy().view(np.int32).reshape(-1, 256)
rows = 64 // each
f = pl.pallas_call(body, in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pltpu.VMEM)],
                   out_shape=[jax.ShapeDtypeStruct((16, 256), kind), jax.ShapeDtypeStruct((4, rows // 4, 256), jnp.int32)])
out, picked = f(jnp.zeros(1, jnp.int32), x)
for head in range(4):
  np.testing.assert_array_equal(picked[head], word(x)[head::4])
np.testing.assert_array_equal(word(out), word(x)[1::4])
""", env={"ATOLL_CHECK": check, "ATOLL_TARGET": "7x:2x2x1"})
  assert out.returncode == 0, out.stderr


@pytest.mark.parametrize("check", ["", "all"])
@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
def test_one_packed_row_without_its_dimension(python, kind, check):
  """A row of words whose dimension has gone (`at[i]`) is still several rows of memory: copied, waited for, read, written."""
  out = python(f"""
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def body(first, x, out, whole, read, buffer, sem):
  words, into = x.bitcast(jnp.int32), buffer.bitcast(jnp.int32)
  for i in range(4):
    at = first[0] + 3 - i
    copy = pltpu.make_async_copy(words.at[at], into.at[i], sem)
    copy.start()
    copy.wait()
    pltpu.async_copy(into.at[i], whole.at[i], sem).wait()
    read[i] = into.at[i][...]
    into.at[i][...] = into.at[i][...] + 1
  pltpu.async_copy(buffer, out, sem).wait()

kind = jnp.dtype("{kind}")
each = 4 // kind.itemsize
x = jax.random.randint(jax.random.key(0), (8 * each, 128), -100, 100).astype(kind)
word = lambda v: np.asarray(v).reshape(-1, each, 128).transpose(0, 2, 1).copy().view(np.int32).reshape(-1, 128)
hbm, words = pl.BlockSpec(memory_space=pl.ANY), jax.ShapeDtypeStruct((4, 128), jnp.int32)
f = pl.pallas_call(body, in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), hbm], out_specs=[hbm, hbm, pl.BlockSpec()],
                   out_shape=[jax.ShapeDtypeStruct((4 * each, 128), kind), words, words],
                   scratch_shapes=[pltpu.VMEM((4 * each, 128), kind), pltpu.SemaphoreType.DMA])
out, whole, read = f(jnp.zeros(1, jnp.int32), x)
want = word(x)[3::-1]
np.testing.assert_array_equal(whole, want)
np.testing.assert_array_equal(read, want)
np.testing.assert_array_equal(word(out), want + 1)
""", env={"ATOLL_CHECK": check, "ATOLL_TARGET": "7x:2x2x1"})
  assert out.returncode == 0, out.stderr
