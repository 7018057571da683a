"""What the TPU compiler refuses for a chip: small kernels, each with the beginning of its message.

Each row was seen of the TPU compiler. A row says what v5e, v5p and v6e say; None: the kernel compiles.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lint"))
import links  # noqa: E402

PAGE = links.anchors(pathlib.Path(__file__).resolve().parents[2] / "docs" / "refusals.md")
COMMAND = str(pathlib.Path(os.environ["ATOLL_LIBRARY"]).parent / "atoll")
F32, BF16, F16, I32, I16, I8, U8 = jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.int16, jnp.int8, jnp.uint8
I4, U16, E5, F4 = jnp.int4, jnp.uint16, jnp.float8_e5m2, jnp.float4_e2m1fn
S, SMEM, VMEM, HBM = jax.ShapeDtypeStruct, pltpu.SMEM, pltpu.VMEM, pl.ANY
ALL = slice(None)
CHIPS = ("v5e", "v5p", "v6e", "7x")


def kernel(body, out, *operands, **more):
  return pl.pallas_call(body, out_shape=out, **more), operands


def of_values(f, *operands, **more):
  """out[...] = f(operands[...])"""
  out = jax.eval_shape(f, *operands)

  def body(*refs):
    refs[-1][...] = f(*(r[...] for r in refs[:-1]))
  return kernel(body, S(out.shape, out.dtype), *operands, **more)


NEW_FLOAT = "Not implemented: Conversion to 4-bit not supported before TPUv7"
REPLICATED = "Invalid relayout: Non-singleton logical dimension is replicated in destination but not in source"


def while_loop(first, last, body, init):
  return lax.while_loop(lambda c: c[0] < last, lambda c: (c[0] + 1, *body(c[0], c[1:])), (first, *init))[1:]


def carried(step, splat=lambda x: jnp.ones(x.shape), first=None, second=None, turns=3, loop=lax.fori_loop,
            end=lambda x, a, b: x + a + b):
  """Two values that a loop carries, splats unless first or second says otherwise."""
  def of(x):
    a, b = loop(0, turns, lambda i, c: step(x, *c), ((first or splat)(x), (second or splat)(x)))
    return end(x, a, b)
  return of_values(of, S((8, 128), F32))


def of_index(dtype, shape, where, part, store=False):
  """A part of a ref that begins at a number from SMEM."""
  specs = [pl.BlockSpec(memory_space=SMEM), pl.BlockSpec(memory_space=VMEM)]

  def load(i, x, o):
    o[...] = x[where(i[0])]

  def put(i, x, o):
    o[where(i[0])] = x[...]
  a, b = (S(part, dtype), S(shape, dtype)) if not store else (S(shape, dtype), S(part, dtype))
  return kernel(put if store else load, a, S((1,), I32), b, in_specs=specs)


def of_copy(dtype, shape, where, part, to_vmem=False, hbm=HBM):
  """A copy from a part of HBM, or to a part of VMEM."""
  specs = [pl.BlockSpec(memory_space=SMEM), pl.BlockSpec(memory_space=hbm)]

  def read(i, x, o, s):
    c = pltpu.make_async_copy(x.at[where(i[0])], o, s)
    c.start()
    c.wait()

  def write(i, x, o, v, s):
    c = pltpu.make_async_copy(x, v.at[where(i[0])], s)
    c.start()
    c.wait()
    o[...] = v[...]
  if to_vmem:
    return kernel(write, S(shape, dtype), S((1,), I32), S(part, dtype), in_specs=specs,
                  scratch_shapes=[VMEM(shape, dtype), pltpu.SemaphoreType.DMA])
  return kernel(read, S(part, dtype), S((1,), I32), S(shape, dtype), in_specs=specs, scratch_shapes=[pltpu.SemaphoreType.DMA])


def one():
  return jnp.int32(1)


def of_row_at(at):
  """A part of the only row of a matrix."""
  return of_copy(BF16, (4, 1, 512), lambda i: (0, pl.ds(at(i), 1), pl.ds(0, 128)), (1, 128))


def of_every_third(dtype, rows):
  n = rows // 3

  def body(x, o):
    o[...] = x[pl.ds(0, n, stride=3), :]
  return kernel(body, S((n, 128), dtype), S((rows, 128), dtype))


def of_scalars(f, dtype):
  out = jax.eval_shape(f, S((4,), dtype))

  def body(s, o):
    o[0] = f(s)
  return kernel(body, S((1,), out.dtype), S((4,), dtype), in_specs=[pl.BlockSpec(memory_space=SMEM)],
                out_specs=pl.BlockSpec(memory_space=SMEM))


def of_block(dtype, shape, block, grid, **more):
  def body(x, o):
    o[...] = x[...]
  spec = pl.BlockSpec(block, lambda *g: tuple(g) + (0,) * (len(block) - len(g)))
  return kernel(body, S(shape, dtype), S(shape, dtype), grid=grid, in_specs=[spec], out_specs=spec, **more)


def of_scratch(*scratch):
  def body(x, o, *_):
    o[...] = x[...]
  return kernel(body, S((8, 128), F32), S((8, 128), F32), scratch_shapes=list(scratch))


def stored(dtype, shape, part, *where):
  def body(x, o):
    o[where] = x[...]
  return kernel(body, S(shape, dtype), S(part, dtype))


def viewed(dtype, shape, to):
  def body(x, o):
    o[...] = x.reshape(to)[...]
  return kernel(body, S(to, dtype), S(shape, dtype))


def turned(dtype, shape, axis, **more):
  return of_values(lambda x: pltpu.roll(x, 3, axis, **more), S(shape, dtype))


def in_turn(dtype, shape, axis, **more):
  def body(i, x, o):
    o[...] = pltpu.roll(x[...], i[0], axis, **more)
  specs = [pl.BlockSpec(memory_space=SMEM), pl.BlockSpec(memory_space=VMEM)]
  return kernel(body, S(shape, dtype), S((1,), I32), S(shape, dtype), in_specs=specs)


def gathered(dtype, index, axis, rows=8):
  def f(x, i):
    return jnp.take_along_axis(x, i, axis=axis, mode="promise_in_bounds")
  return of_values(f, S((rows, 128), dtype), S((rows, 128), index))


def reshaped(a, b, dtype=F32):
  return of_values(lambda x: x.reshape(b), S(a, dtype))


def two(f, dtype, rows=32):
  return of_values(f, S((rows, 128), dtype), S((rows, 128), dtype))


TILES = "Offsets along tiled dimensions must be aligned to tiles"
SIZES = "Slice sizes along tiled dimensions must be aligned to tiles"
PROOF = "E2003: CompileTimeMosaicUnprovenMemoryAccessAlignment"
CAST = "infer-vector-layout: unsupported shape cast"
TURN = "Not implemented: rotation dimension must be the minor most and bitwidth must be >= "
FULL = "XLA:TPU compile permanent error. Ran out of memory in memory space "
BIG = "Allocation (size="
CORES = "Core-parallel dimension 0 has iteration bound: 2, which is greater than the number of active cores: 1."


def illegal(op):
  return f"failed to legalize operation '{op}'"


START = "Couldn't prove that tiling (%d) divides index returned by transform_indices on dimension %d"
UNKNOWN = "Could not convert JSON string to proto: unknown enum value: "

WORD = "The dynamic offset times the element size"
INNER = "The contiguous inner slice in the DMA transfer must be divisible by 512 bytes."
INNER_32 = INNER.replace("512", "32")
UNSURE = "Could not determine that the dynamic offset"

STACK = "E1001: CompileTimeScopedVmemOom:"
ROWS = {
    # Integers narrower than a word.
    "shifts": (lambda: two(lambda x, y: x << y, I8), None),
    "unsigned quotient of 16 bits": (lambda: two(lambda x, y: lax.div(x, y), U16), None),
    "unsigned quotient of 8 bits": (lambda: two(lambda x, y: lax.div(x, y), U8), ("LLO_CHECK failure",) * 2 + (None,)),
    "signed quotient of 16 bits": (lambda: two(lambda x, y: lax.div(x, y), I16), illegal("arith.divsi")),
    "a maximum with zero is no operation": (lambda: of_values(jax.nn.relu, S((32, 128), U8)), None),
    "a difference of zero is none": (lambda: two(lambda x, y: jnp.where(x <= y, x - 0, y), I16), illegal("arith.minsi")),
    "a maximum by reading twice": (lambda: of_scalars(lambda s: jnp.where(s[0] > s[1], s[0], s[1]), I16), illegal("arith.maxsi")),
    "a choice by number": (lambda: two(lambda x, y: lax.select_n((x > y).astype(I32), x, y), I8), illegal("arith.minsi")),
    "numbers of lanes in nibbles": (lambda: of_values(lambda x: lax.broadcasted_iota(I4, (64, 128), 1), S((8, 128), F32)),
                                    "Not implemented: Only 8-, 16- and 32-bit Iota supported"),
    # Floats.
    "angle of f32": (lambda: two(jnp.arctan2, F32), None),
    "angle of bf16": (lambda: two(jnp.arctan2, BF16), illegal("math.atan2")),
    "remainder of bf16": (lambda: two(lax.rem, BF16), illegal("arith.remf")),
    "quotient of f8": (lambda: two(lambda x, y: x / y, E5), "Unsupported data type"),
    "to f16": (lambda: of_values(lambda x: x.astype(F16), S((16, 128), F32)), illegal("tpu.pack_subelements")),
    "f16 is copied": (lambda: of_copy(F16, (64, 128), lambda i: pl.ds(0, 16), (16, 128)), "Only arguments with float8e5m2"),
    "scalars of bf16 are sums": (lambda: of_scalars(lambda s: s[0] + s[1], BF16), illegal("arith.addf")),
    "scalars of bf16 become f32": (lambda: of_scalars(lambda s: s[0].astype(F32), BF16), None),
    "scalars of f16": (lambda: of_scalars(lambda s: s[0].astype(F32), F16), "Unsupported input type for float extension: 'f16'"),
    "a word of a vector": (lambda: of_element(F32), None),
    "an element of a vector of bf16": (lambda: of_element(BF16), "Only 32-bit scalar vector.extracts supported"),
    "an element of a vector of bytes": (lambda: of_element(I8), "Only 32-bit scalar vector.extracts supported"),
    "scalars of bytes are compared": (lambda: of_scalars(lambda s: jnp.where(s[0] == s[1], s[2], s[3]), I8), illegal("arith.cmpi")),
    "a maximum in wider numbers": (lambda: two(lambda x, y: jnp.maximum(x.astype(I32), y.astype(I32)).astype(I16), I16), illegal("arith.maxsi")),
    "the lesser of wider numbers": (lambda: two(lambda x, y: chosen(x.astype(I32), y.astype(I32)).astype(I8), I8), illegal("arith.minsi")),
    "the lesser of wider unsigned numbers": (lambda: two(lambda x, y: chosen(x.astype(I32), y.astype(I32)).astype(U8), U8), None),
    "f8 to f16": (lambda: of_values(lambda x: x.astype(F16), S((32, 128), E5)), illegal("tpu.pack_subelements")),
    # Masks.
    "masks turn": (lambda: of_values(lambda x: jnp.where(pltpu.roll(x > 0, 1, 1), x, 0.0), S((8, 128), F32)),
                   "Not implemented: changeBitwidth"),
    "masks join inside a tile": (lambda: of_values(lambda x: jnp.concatenate([x[:3] > 0, x[3:] > 0]), S((8, 128), F32)),
                                 "Invalid vector register cast"),
    "masks join at tiles": (lambda: of_values(lambda x: jnp.concatenate([x[:8] > 0, x[8:] > 0]), S((16, 128), F32)), None),
    "masks are transposed with their lanes": (lambda: of_values(lambda x: x.T, S((128, 128), jnp.bool_)), None),
    "masks are transposed but for their lanes": (lambda: of_values(lambda x: jnp.transpose(x, (1, 0, 2)), S((4, 8, 128), jnp.bool_)),
                                                 "i1 transpose is not supported."),
    "a loop changes a mask": (lambda: two(lambda x, y: jnp.where(
        lax.fori_loop(0, 3, lambda i, c: jnp.logical_not(c), x > y), x, y), F32), illegal("scf.for")),
    "a branch chooses a mask": (lambda: of_scalar_choice(), None),
    "a mask chooses between masks": (lambda: two(lambda x, y: jnp.where(jnp.where(x == y, x < 1, y > 1), x, y), F32), None),
    "a mask of half words chooses between masks": (lambda: two(
        lambda x, y: jnp.where(jnp.where(x == y, x < 1, y > 1), x, y), BF16), None),
    "masks are compared": (lambda: two(lambda x, y: jnp.where((x < y) == (y > 1), x, y), F32), None),
    # What loops carry.
    "two splats take turns, and one changes": (lambda: carried(lambda x, a, b: (b, a + x)), REPLICATED),
    "two splats take turns": (lambda: carried(lambda x, a, b: (b, a + 2)), None),
    "a splat that a sum replaces": (lambda: carried(lambda x, a, b: (b * 2, a + x)), REPLICATED),
    "a splat that a choice replaces": (lambda: carried(lambda x, a, b: (lax.cond(x[0, 0] > 1, lambda: b, lambda: b * 3), a + x)), REPLICATED),
    "splats of one number of the run": (lambda: carried(lambda x, a, b: (b, a + x), lambda x: jnp.full_like(x, x[0, 0])), REPLICATED),
    "splats of columns": (lambda: carried(lambda x, a, b: (b, a + x[:, :1]), lambda x: jnp.ones((8, 1))), REPLICATED),
    "splats of rows": (lambda: carried(lambda x, a, b: (b, a + x[:1]), lambda x: jnp.ones((1, 128))), REPLICATED),
    "splats in two loops": (lambda: carried(lambda x, a, b: lax.fori_loop(0, 2, lambda i, c: (c[1], c[0] + x), (a, b))), REPLICATED),
    "a splat takes turns with what was loaded": (lambda: carried(lambda x, a, b: (b, a + x), second=lambda x: x), None),
    "what was loaded takes turns with a splat": (lambda: carried(lambda x, a, b: (b, a + x), first=lambda x: x), None),
    "a splat that is added to": (lambda: carried(lambda x, a, b: (a + x, b + a)), REPLICATED),
    "a splat that is added to by itself": (lambda: carried(lambda x, a, b: (a + x, b + 1)), None),
    "a splat that numbers of lanes replace": (lambda: carried(lambda x, a, b: (b, a + lax.broadcasted_iota(I32, x.shape, 1).astype(F32))),
                                              REPLICATED),
    "a splat that nobody wants": (lambda: carried(lambda x, a, b: (b, b + x), end=lambda x, a, b: x + b), None),
    "two splats take turns once": (lambda: carried(lambda x, a, b: (b, a + x), turns=1), None),
    "two splats take turns while": (lambda: carried(lambda x, a, b: (b, a + x), loop=while_loop), REPLICATED),
    # Gathers and turns.
    "gather of nibbles": (lambda: gathered(I4, I32, 1), "Not implemented: Only 8-, 16- or 32-bit gathers supported"),
    "gather of rows of bytes": (lambda: gathered(I8, I8, 0), ("Byte gather not supported by this TPU generation",) * 2 + (None,)),
    "gather of lanes of 16 bits": (lambda: gathered(BF16, I16, 1), ("Unsupported set permute mode",) * 2 + (None,)),
    "turn of a part of a tile": (lambda: in_turn(F32, (32, 100), 1), None),
    "growing turn of a part of a tile": (lambda: turned(F32, (32, 100), 1, stride=1, stride_axis=0),
                                         "Not implemented: unsupported unaligned shape"),
    "growing turn along lanes": (lambda: turned(F32, (32, 128), 0, stride=1, stride_axis=1),
                                 "Not implemented: stride dimension is the minor most"),
    "growing turn by a number of the run": (lambda: in_turn(F32, (32, 128), 1, stride=1, stride_axis=0),
                                            "Not implemented: strided dynamic rotation along the two last dimensions"),
    "growing turn of bytes": (lambda: turned(I8, (32, 128), 1, stride=1, stride_axis=0), (TURN + "16 (got 8) on TPU v5",) * 2 + (None,)),
    "gather along one element": (lambda: gathered(I16, I32, 0, 1), None),
    "turn of a line": (lambda: turned(F32, (1024,), 0), "not implemented: Unsupported 1D shape"),
    # Loads and stores.
    "every other one of a line": (lambda: of_line(F32), "not implemented: Strided load with 1D vector"),
    "every other one of a line of bf16": (lambda: of_line(BF16), "Not implemented: Strided load with 1D vector"),
    "a line is stored to every other place": (lambda: stored(F32, (1024,), (128,), pl.ds(0, 128, 2)), "not implemented: Strided store with 1D vector"),
    "one dimension from anywhere": (lambda: of_index(F32, (4096,), lambda i: pl.ds(i, 1024), (1024,)), PROOF),
    "one dimension from tiles": (lambda: of_index(F32, (4096,), lambda i: pl.ds(i * 1024, 1024), (1024,)), None),
    "part of a row of several tiles": (lambda: of_index(F32, (64, 256), lambda i: (pl.ds(i, 1), pl.ds(5, 64)), (1, 64)),
                                       "Not implemented: dynamic load with unaligned indices"),
    "store to part of a row of several tiles": (lambda: of_index(F32, (64, 256), lambda i: (pl.ds(i, 1), pl.ds(5, 64)), (1, 64), True),
                                                PROOF),
    "part of a row of one tile": (lambda: of_index(F32, (64, 128), lambda i: (pl.ds(i, 1), pl.ds(5, 64)), (1, 64)), None),
    "a row of several tiles": (lambda: of_index(F32, (64, 256), lambda i: (pl.ds(i, 1), ALL), (1, 256)), None),
    "strided rows of bf16 are stored": (lambda: stored(BF16, (64, 128), (32, 128), pl.ds(0, 32, 2), ALL),
                                        "not implemented: Strided store with non 32-bit data"),
    "strided rows of bf16 from anywhere": (lambda: of_index(BF16, (64, 128), lambda i: (pl.ds(i, 8, 8), ALL), (8, 128)),
                                           "Only static indices are supported for packed types"),
    "strided rows of several tiles": (lambda: stored(F32, (64, 256), (16, 256), pl.ds(0, 16, 4), ALL),
                                      "Not Implemented: The last dim size is not 128 in original base memref"),
    "one row of several tiles, many times": (lambda: of_index(F32, (8, 512), lambda i: (pl.ds(3, 16, 0), ALL), (16, 512)), None),
    "one row of two and a half tiles, many times": (lambda: of_index(F32, (8, 320), lambda i: (pl.ds(3, 16, 0), ALL), (16, 320)),
                                                    "Not Implemented: The last dim size is not a multiple of 128 in original base memref"),
    "any row of several tiles, many times": (lambda: of_index(F32, (8, 512), lambda i: (pl.ds(i, 16, 0), ALL), (16, 512)),
                                             "Failed to prove that a tile index in dimension 0 is divisible by the tiling (8)"),
    "part of a line of nibbles": (lambda: of_block(I4, (100,), (100,), (1,)), "Only 16-bit and 8-bit subelement masking"),
    # Views and shapes.
    "lanes in two parts": (lambda: viewed(F32, (32, 256), (64, 128)), "Not implemented: Supported only when (a) tiled dimensions"),
    "tiles of bytes are cut": (lambda: viewed(I8, (32, 128), (4, 8, 128)), "Not implemented: Supported only when (a) tiled dimensions"),
    "rows of words fold": (lambda: viewed(F32, (32, 128), (4, 8, 128)), None),
    "rows of their own are cut": (lambda: viewed(F32, (64, 1, 1536), (768, 128)), None),
    "rows of one tile are joined": (lambda: viewed(F32, (16, 128), (4, 512)), None),
    "rows of their own are cut within tiles": (lambda: viewed(F32, (64, 1, 1536), (512, 192)),
                                               "Not implemented: Supported only when (a) tiled dimensions"),
    "rows of 16 bits of their own": (lambda: viewed(BF16, (64, 1, 1536), (768, 128)),
                                     "Not implemented: Supported only when (a) tiled dimensions"),
    "blocks of whole tiles become a line": (lambda: reshaped((4, 8, 128), (4096,)), None),
    "rows of words become a line": (lambda: reshaped((4, 1, 128), (512,)), None),
    "rows of 16 bits become a line": (lambda: reshaped((4, 1, 128), (512,), BF16), CAST),
    "blocks of part of a tile become a line": (lambda: reshaped((4, 5, 128), (2560,)), CAST),
    "blocks of two columns of tiles become a line": (lambda: reshaped((4, 8, 256), (8192,)), CAST),
    "a line becomes blocks of part of a tile": (lambda: reshaped((2560,), (4, 5, 128)), CAST),
    "padded rows": (lambda: viewed(F32, (4, 5, 128), (20, 128)), "Not implemented: Reshape on a non-contiguous memref."),
    "lanes are divided unevenly": (lambda: reshaped((6, 100), (3, 200)), CAST),
    "lanes are divided in one tile": (lambda: reshaped((64, 20), (2, 8, 80)), None),
    "lanes are joined with a whole dimension": (lambda: reshaped((5, 25, 24), (5, 1, 600)), None),
    "lanes of several tiles are cut": (lambda: reshaped((4, 1, 320), (1, 8, 160)), CAST),
    # Copies.
    "rows of bf16 within a word": (lambda: of_copy(BF16, (64, 128), lambda i: pl.ds(1, 1), (1, 128), True), TILES),
    "rows of bf16 by the word": (lambda: of_copy(BF16, (64, 128), lambda i: pl.ds(2, 2), (2, 128), True), None),
    "one row of bf16 between tiles": (lambda: of_copy(BF16, (64, 128), lambda i: pl.ds(4, 1), (1, 128)), TILES),
    "one row of bf16 at a tile": (lambda: of_copy(BF16, (64, 128), lambda i: pl.ds(8, 1), (1, 128)), SIZES),
    "the last row of several tiles": (lambda: of_copy(F32, (64, 256), lambda i: pl.ds(63, 1), (1, 256)), None),
    "all rows, from tiles": (lambda: of_copy(F32, (20, 300), lambda i: pl.ds(i * 8, 20), (20, 300)), None),
    "all rows, from anywhere": (lambda: of_copy(F32, (20, 300), lambda i: pl.ds(i, 20), (20, 300)), TILES),
    "a column by number": (lambda: of_copy(F32, (64, 128), lambda i: (ALL, i), (64,)), UNSURE),
    "the first column": (lambda: of_copy(F32, (64, 128), lambda i: (ALL, 0), (64,)), (INNER,) + (INNER_32,) * 3),
    "the first column of bf16": (lambda: of_copy(BF16, (64, 128), lambda i: (ALL, 0), (64,)), "Not implemented: Source and target trailing tiles differ"),
    "a column of several tiles": (lambda: of_copy(F32, (64, 256), lambda i: (ALL, 3), (64,)), TILES),
    "lanes at half their number": (lambda: of_copy(F32, (64, 128), lambda i: (ALL, pl.ds(i * 8, 16)), (64, 16)), UNSURE),
    "fewer lanes than a word": (lambda: of_copy(F32, (64, 128), lambda i: (ALL, pl.ds(i * 16, 4)), (64, 4)), UNSURE),
    "half of the lanes": (lambda: of_copy(F32, (64, 256), lambda i: (ALL, pl.ds(0, 64)), (64, 64), True), SIZES),
    "a column": (lambda: of_copy(F32, (64, 128), lambda i: (ALL, 3), (64,)), WORD),
    "rows across tiles of several": (lambda: of_copy(F32, (64, 256), lambda i: pl.ds(i, 8), (8, 256)), TILES),
    "one row of several tiles": (lambda: of_copy(F32, (64, 256), lambda i: pl.ds(i, 1), (1, 256)), None),
    "lanes within one column of tiles": (lambda: of_copy(F32, (8, 128), lambda i: (ALL, pl.ds(8, 8)), (8, 8)), (WORD, None, None, WORD)),
    "half of the lanes of one row of tiles": (lambda: of_copy(F32, (8, 256), lambda i: (ALL, pl.ds(0, 64)), (8, 64)), (INNER,) + (None,) * 3),
    "lanes that are no words of HBM": (lambda: of_copy(F32, (8, 256), lambda i: (ALL, pl.ds(0, 100)), (8, 100)), (INNER,) + (INNER_32,) * 3),
    "lanes of HBM by its words": (lambda: of_copy(F32, (8, 256), lambda i: (ALL, pl.ds(8, 8)), (8, 8), hbm=pltpu.HBM), (WORD,) + (None,) * 3),
    "lanes of HBM from anywhere": (lambda: of_copy(F32, (8, 256), lambda i: (ALL, pl.ds(pl.multiple_of(i * 8, 8), 8)), (8, 8), hbm=pltpu.HBM),
                                   (UNSURE,) + (None,) * 3),
    "lanes of VMEM by the words of HBM": (lambda: of_copy(F32, (8, 256), lambda i: (ALL, pl.ds(8, 8)), (8, 8), True), WORD),
    "lanes of one row of tiles from anywhere": (lambda: of_copy(F32, (8, 256), lambda i: (ALL, pl.ds(pl.multiple_of(i * 64, 64), 64)), (8, 64)),
                                                (UNSURE, None, None, UNSURE)),
    "lanes between two tiles of one row": (lambda: of_copy(F32, (1, 256), lambda i: (ALL, pl.ds(64, 128)), (1, 128)),
                                           WORD),
    "lanes between tiles of one long row": (lambda: of_copy(F32, (1, 512), lambda i: (ALL, pl.ds(64, 128)), (1, 128)),
                                            (WORD, None, None, WORD)),
    "as many rows as a tile has": (lambda: of_copy(F32, (16, 256), lambda i: pl.ds(4, 8), (8, 256)), None),
    "a tile and a half": (lambda: of_copy(F32, (64, 256), lambda i: pl.ds(0, 12), (12, 256)), SIZES),
    "lanes across a tile, not by half": (lambda: of_copy(F32, (8, 256), lambda i: (ALL, pl.ds(8, 128)), (8, 128)), TILES),
    "the greatest of one f8": (lambda: of_values(lambda x: x.max(0, keepdims=True), S((1, 16, 128), E5)), None),
    "masks in shorter rows": (lambda: of_values(lambda x: x.reshape(16, 128), S((8, 256), jnp.bool_)), "Not implemented: changeBitwidth"),
    "masks joined to rows": (lambda: of_values(lambda x: x.reshape(8, 1024), S((8, 8, 128), jnp.bool_)), "i1 transpose is not supported."),
    "blocks of masks in shorter rows": (lambda: of_values(lambda x: x.reshape(48, 128), S((3, 8, 256), jnp.bool_)),
                                        "infer-vector-layout: unsupported shape cast"),
    "masks in blocks of rows": (lambda: of_values(lambda x: x.reshape(2, 8, 128), S((16, 128), jnp.bool_)), None),
    "every third of 32 rows of bytes": (lambda: of_every_third(I8, 32),
                                        "Unsupported strided load for packed type: second-minor dimension of result vector (10)"),
    "every third of 33 rows of bytes": (lambda: of_every_third(I8, 33),
                                        "Unsupported strided load for packed type: second-minor dimension of base memref (33)"),
    "every third of 36 rows of bytes": (lambda: of_every_third(I8, 36), None),
    "the last rows, less than a tile": (lambda: of_copy(F32, (19, 256), lambda i: pl.ds(8, 11), (11, 256)), None),
    "the last row of bf16, half a word": (lambda: of_copy(BF16, (9, 128), lambda i: pl.ds(8, 1), (1, 128)), None),
    "the last lanes": (lambda: of_copy(F32, (16, 130), lambda i: (ALL, pl.ds(128, 2)), (16, 2)), None),
    "nearly a whole line": (lambda: of_copy(F32, (1024,), lambda i: pl.ds(8, 1016), (1016,)), (WORD, None, None, WORD)),
    "the end of a line": (lambda: of_copy(F32, (1000,), lambda i: pl.ds(512, 488), (488,)), None),
    "a line of bf16 within a tile": (lambda: of_copy(BF16, (4096,), lambda i: pl.ds(128, 128), (128,)), TILES),
    "a short line": (lambda: of_copy(F32, (4096,), lambda i: pl.ds(0, 8), (8,)), (INNER,) + (None,) * 3),
    "a line from anywhere": (lambda: of_copy(F32, (4096,), lambda i: pl.ds(i, 1024), (1024,)), UNSURE),
    # Products.
    "f32 by i32": (lambda: of_values(lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=F32),
                                     S((128, 128), F32), S((128, 128), I32)), None),
    "f32 by masks": (lambda: of_values(lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=F32),
                                       S((128, 128), F32), S((128, 128), jnp.bool_)), illegal("tpu.unpack_subelements")),
    "f32 by i32, as exactly as can be": (lambda: multiplied(F32, I32, F32, lax.Precision.HIGHEST), None),
    "bytes by bf16, as exactly as can be": (lambda: multiplied(I8, BF16, F32, lax.Precision.HIGHEST), ("Bad rhs type",) * 3 + ("Bad lhs type",)),
    "f32 by 16-bit integers": (lambda: multiplied(F32, I16, F32), (None,) * 3 + ("Integer inputs with bitwidth 16",)),
    "bytes by words": (lambda: multiplied(I8, I32, I32), ("Mix int/int - NYI",) * 3 + (None,)),
    "words by words": (lambda: multiplied(I32, I32, I32), ("Bad lhs/rhs type",) * 3 + ("float acc with int lhs",)),
    "f4 by f4": (lambda: multiplied(F4, F4, F32), ("Bad lhs/rhs type",) * 3 + (None,)),
    "f8 by f4": (lambda: multiplied(E5, F4, F32), ("Bad lhs/rhs type",) * 3 + (None,)),
    "f32 by what becomes f4": (lambda: of_values(lambda x, y: jnp.dot(x, y.astype(F4), preferred_element_type=F32),
                                                 S((128, 128), F32), S((128, 128), F32)), (NEW_FLOAT,) * 3 + (None,)),
    "f4 to f32": (lambda: of_values(lambda x: x.astype(F32), S((64, 128), F4)), ("Unsupported type 'vector<",) * 3 + (None,)),
    "f4 are copied": (lambda: of_values(lambda x: x, S((64, 128), F4)), None),
    # Blocks, cores, memories.
    "blocks of two bits": (lambda: of_block(jnp.int2, (72, 256), (24, 256), (3,)), "Failed to set window params for input 0: E2002"),
    "whole arrays of two bits": (lambda: of_block(jnp.int2, (40, 256), (40, 256), (1,)), None),
    "more steps than cores": (lambda: of_block(F32, (64, 128), (32, 128), (2,), compiler_params=pltpu.CompilerParams(
        dimension_semantics=("core_parallel",))), (CORES, None, CORES)),
    "semaphores": (lambda: of_scratch(pltpu.SemaphoreType.DMA((430,))), None),
    "too many semaphores": (lambda: of_scratch(pltpu.SemaphoreType.DMA((460,))), (FULL + "sflag",) * 3 + (None,)),
    "too many semaphores for any": (lambda: of_scratch(pltpu.SemaphoreType.DMA((3900,))), ("",) * 3 + (FULL + "sflag",)),
    "all of SMEM": (lambda: of_scratch(SMEM((262144,), F32)), FULL + "smem"),
    "SMEM lies in tiles": (lambda: of_scratch(SMEM((4096, 4), F32)), BIG),
    "a scratch larger than VMEM": (lambda: of_scratch(VMEM((140 * 2048, 128), F32)), BIG),
    "two scratches of half of VMEM": (lambda: of_scratch(VMEM((60 * 2048, 128), F32), VMEM((60 * 2048, 128), F32)), None),
    "a product of 16-bit integers": (lambda: of_values(lambda x, y: jnp.dot(x, y, preferred_element_type=I32), S((128, 128), I16), S((128, 128), I16)),
                                     ("Bad lhs/rhs type",) * 3 + ("Integer inputs with bitwidth 16",)),
    # Numbers that the compiler works out before it judges.
    "the only row, at a number": (lambda: of_row_at(lambda i: i), "Offsets along tiled dimensions must be aligned to tiles"),
    "the only row, at a difference": (lambda: of_row_at(lambda i: lax.sub(one(), one())), None),
    "the only row, at a choice": (lambda: of_row_at(lambda i: lax.select(lax.lt(one(), one()), i, lax.rem(one(), one()))), None),
    "the only row, at the lesser": (lambda: of_row_at(lambda i: lax.min(one(), lax.sub(one(), one()))), None),
    "the only row, at nothing of a number": (lambda: of_row_at(lambda i: lax.sub(i, i) + lax.rem(i, one())), None),
    "eight rows of 16 bits in a loop": (lambda: of_rows_in_a_loop(BF16), None),
    "eight rows of bytes in a loop": (lambda: of_rows_in_a_loop(I8), "cannot statically prove that index in dimension 0 is a multiple of 32"),
    "a window at rows of tiles": (lambda: of_elements(F32, 256, (64, 128), lambda i: (i * 8 + 16, 0)), None),
    "a window between tiles": (lambda: of_elements(F32, 256, (64, 128), lambda i: (i * 4, 0)), START % (8, 0)),
    "a window of 16 bits at eight rows": (lambda: of_elements(jnp.bfloat16, 256, (64, 128), lambda i: (i * 8, 0)), None),
    "a window of bytes between tiles": (lambda: of_elements(jnp.int8, 256, (64, 128), lambda i: (i * 16, 0)), START % (32, 0)),
    "a window of bytes at tiles": (lambda: of_elements(jnp.int8, 256, (64, 128), lambda i: (i // 2 * 32, 0)), None),
    "a window between tiles of lanes": (lambda: of_elements(F32, 64, (64, 128), lambda i: (0, i * 64)), START % (128, 1)),
    "a window with padding behind": (lambda: of_elements(F32, 60, (64, 128), lambda i: (0, 0), (0, 4)), None),
    "a window with padding before": (lambda: of_elements(F32, 60, (64, 128), lambda i: (0, 0), (4, 0)), "Low padding not supported yet"),
    "a flag that the compiler has": (lambda: of_flags(XLA_TPU_FORCE_LP_LLO_SCHEDULER=True, XLA_TPU_SPLIT_CLUSTER_SIZE=3), None),
    "a flag of the whole program": (lambda: of_flags(xla_tpu_scoped_vmem_limit_kib=1024), UNKNOWN + "'xla_tpu_scoped_vmem_limit_kib'"),
    "scratch in one straight run of one step": (lambda: of_stack(40, False), None),
    "scratch that a loop walks": (lambda: of_stack(40, True), STACK),
    "scratch that nobody uses": (lambda: of_stack(40, None), None),
    "scopes one after the other": (lambda: of_scopes(9, 9, False), None),
    "scopes inside each other": (lambda: of_scopes(20, 20, True), STACK),
    "a scope that each step fills before it reads": (lambda: of_fixed(slice(0, 8), slice(0, 8), grid=(2,)), None),
    "a scope of which a part is read": (lambda: of_fixed(slice(0, 16), slice(8, 16)), None),
    "a scope that is read beside what was stored": (lambda: of_fixed(slice(0, 8), slice(4, 12)), STACK),
    "a scope that is read before it is filled": (lambda: of_fixed(None, slice(0, 8)), STACK),
    "a scope that is stored to, never read": (lambda: of_stores(40), None),
    "scopes pad no rows of words": (lambda: of_copies((3200, 9, 128), F32), None),
    "scopes pad rows of narrow types": (lambda: of_copies((6000, 17, 128), BF16), STACK),
    "the second flag does not exist": (lambda: of_flags(XLA_TPU_HBM_BW=3, no_such_flag=1.5), UNKNOWN + "'no_such_flag'"),
    "a flag that takes an integer": (lambda: of_flags(XLA_TPU_MAX_VLD_LIVE_RANGE=True), "XLA_TPU_MAX_VLD_LIVE_RANGE takes an integer"),
    "a name without its case": (lambda: of_flags(xla_tpu_force_lp_llo_scheduler=True), UNKNOWN + "'xla_tpu_force_lp_llo_scheduler'"),
}


def of_element(dtype):
  def body(x, o):
    o[0] = x[0, 0]
  return kernel(body, S((1,), dtype), S((32, 128), dtype), out_specs=pl.BlockSpec(memory_space=SMEM))


def of_line(dtype):
  def body(x, o):
    o[...] = x[pl.ds(0, 128, 2)]
  return kernel(body, S((128,), dtype), S((1024,), dtype))


def chosen(x, y):
  return jnp.where(x < y, x, y)


def multiplied(a, b, out, precision=None):
  dims = (((1,), (0,)), ((), ()))
  return of_values(lambda x, y: lax.dot_general(x, y, dims, preferred_element_type=out, precision=precision),
                   S((128, 128), a), S((128, 128), b))


def walk(memory, x):
  """Writes and reads all of it, eight rows at a time."""
  steps = memory.shape[0] // 8

  def put(i, _):
    memory[pl.ds(pl.multiple_of(i * 8, 8), 8), :] = x * i.astype(F32)
    return 0
  lax.fori_loop(0, steps, put, 0)
  return lax.fori_loop(0, steps, lambda i, a: a + memory[pl.ds(pl.multiple_of((steps - 1 - i) * 8, 8), 8), :], jnp.zeros((8, 128), F32))


def megabytes(n):
  return pltpu.VMEM((2048 * n, 128), F32)


def of_stack(n, walked):
  def body(x, o, memory):
    if walked:
      o[...] = walk(memory, x[...])
    elif walked is None:
      o[...] = x[...]
    else:
      memory[0:8, :] = x[...]
      memory[8:16, :] = x[...] * 2
      o[...] = memory[0:8, :] + memory[8:16, :]
  return kernel(body, S((8, 128), F32), S((8, 128), F32), scratch_shapes=[megabytes(n)])


def of_scopes(n, m, nested):
  def body(x, o):
    def take(memory, then=None):
      o[...] = x[...] + walk(memory, x[...])
      if then:
        pl.run_scoped(take, megabytes(then))
        o[...] += memory[pl.ds(pl.multiple_of(x[0, 0].astype(I32) * 8, 8), 8), :]
    pl.run_scoped(lambda memory: take(memory, m if nested else None), megabytes(n))
    if not nested:
      pl.run_scoped(take, megabytes(m))
  return kernel(body, S((8, 128), F32), S((8, 128), F32))


def of_fixed(filled, read, **call):
  def body(x, o):
    def take(memory):
      if filled:
        memory[filled, :] = jnp.tile(x[...], (filled.stop // 8, 1))
      o[...] = memory[read, :]
    pl.run_scoped(take, megabytes(40))
  return kernel(body, S((8, 128), F32), S((8, 128), F32), **call)


def of_stores(n):
  def body(x, o):
    def take(memory):
      def put(i, _):
        memory[pl.ds(pl.multiple_of(i * 8, 8), 8), :] = x[...]
        return 0
      lax.fori_loop(0, 8, put, 0)
      o[...] = x[...]
    pl.run_scoped(take, megabytes(n))
  return kernel(body, S((8, 128), F32), S((8, 128), F32))


def of_copies(shape, dtype):
  def body(x, o):
    def take(memory):
      pltpu.sync_copy(x, memory)
      pltpu.sync_copy(memory, o)
    pl.run_scoped(take, pltpu.VMEM(shape, dtype))
  return kernel(body, S(shape, dtype), S(shape, dtype), in_specs=[pl.BlockSpec(memory_space=HBM)],
                out_specs=pl.BlockSpec(memory_space=HBM))


def of_rows_in_a_loop(dtype):
  def body(x, o):
    def copy(i, _):
      o[pl.ds(i * 8, 8), :] = x[pl.ds(i * 8, 8), :]
      return 0
    lax.fori_loop(0, 8, copy, 0)
  return kernel(body, S((64, 128), dtype), S((64, 128), dtype))


def of_elements(dtype, rows, block, index, padding=(0, 0)):
  def body(x, o):
    o[...] = jnp.zeros_like(o)
  spec = pl.BlockSpec((pl.Element(block[0], padding), pl.Element(block[1])), index)
  return kernel(body, S((32, 128), F32), S((rows, 512 if rows == 64 else 128), dtype), grid=(4,), in_specs=[spec],
                out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)))


def of_flags(**flags):
  def body(x, o):
    o[...] = x[...] * 2
  return kernel(body, S((8, 128), F32), S((8, 128), F32), compiler_params=pltpu.CompilerParams(flags=flags))


def of_scalar_choice():
  def body(s, x, o):
    m = lax.cond(s[0] > 0, lambda v: v, jnp.zeros_like, x[...] > 0)
    o[...] = jnp.where(m, x[...], 0.0)
  specs = [pl.BlockSpec(memory_space=SMEM), pl.BlockSpec(memory_space=VMEM)]
  return kernel(body, S((8, 128), F32), S((1,), I32), S((8, 128), F32), in_specs=specs)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
  """(row, chip) -> message, None where the kernel is accepted. One process per chip judges all rows."""
  folder = tmp_path_factory.mktemp("refusals")
  names = {}
  for n, (name, (make, _)) in enumerate(ROWS.items()):
    f, operands = make()
    path = folder / f"{n}.mlir"
    path.write_text(jax.jit(f).trace(*operands).lower(lowering_platforms=("tpu",)).as_text())
    names[str(path)] = name
  environment = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
  out = {}
  for chip in CHIPS:
    done = subprocess.run([COMMAND, "dump", "--mosaic", "--check", f"--target={chip}", *names], env=environment,
                          capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
      r = json.loads(line)
      out[names[r["file"]], chip] = None if r["verdict"] == "ok" else r["message"]
  return out


@pytest.mark.parametrize("name", ROWS)
def test_what_the_compiler_says(name, verdicts):
  want = ROWS[name][1]
  for chip, text in zip(CHIPS, want if isinstance(want, tuple) else (want,) * 4):
    message = verdicts[name, chip]
    if text is None:
      assert message is None, chip
    else:
      assert message is not None, chip
      assert text in message.splitlines()[0], chip
      page = re.search(r"\nhint: .*docs/refusals\.md#([\w-]+) has cause and cure", message)
      assert page and page[1] in PAGE, (chip, message)


def test_v4_multiplies_floats_of_16_bits(tmp_path):
  """What v4's matrix unit lacks, and v5e's has."""
  refused = "CompileTimeMosaicUnsupportedRhsType"
  rows = ((BF16, BF16, F32, None), (F32, F32, F32, None), (I8, BF16, F32, None), (I8, I8, I32, refused), (I4, I4, I32, refused),
          (E5, E5, F32, refused), (BF16, E5, F32, refused), (E5, BF16, F32, "unsupported data format for vmatmul"))
  for n, (a, b, out, _) in enumerate(rows):
    f, operands = multiplied(a, b, out)
    (tmp_path / f"{n}.mlir").write_text(jax.jit(f).trace(*operands).lower(lowering_platforms=("tpu",)).as_text())
  files = [str(tmp_path / f"{n}.mlir") for n in range(len(rows))]
  for chip in ("v4", "v5e"):
    done = subprocess.run([COMMAND, "dump", "--mosaic", "--check", f"--target={chip}", *files], capture_output=True, text=True, check=True)
    for row, line in zip(rows, done.stdout.splitlines(), strict=True):
      r = json.loads(line)
      said = row[3] if chip == "v4" else None
      assert r["verdict"] == ("refused" if said else "ok") and (said or "") in r["message"], (chip, row, r["message"])


def test_angles_of_pairs():
  """What the chip accepts runs."""
  def body(x, y, o):
    o[...] = jnp.arctan2(x[...], y[...])
  x, y = (jax.random.normal(jax.random.key(s), (16, 128), F32) for s in (0, 1))
  out = pl.pallas_call(body, out_shape=S(x.shape, F32))(x, y)
  with jax.default_device(jax.devices("cpu")[0]):
    want = jnp.arctan2(jnp.asarray(jax.device_get(x)), jnp.asarray(jax.device_get(y)))
  assert abs(jax.device_get(out) - jax.device_get(want)).max() < 1e-6
