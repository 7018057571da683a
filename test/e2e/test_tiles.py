"""atoll.tiles: views against NumPy, programs on tiles, whole JAX functions."""

import numpy as np
import pytest

tiles = pytest.importorskip("atoll.tiles")


# ---- Views ----------------------------------------------------------------------------
def random_op(rng, view, array):
  """One op on a view and on the NumPy array that it should be."""
  d = int(rng.integers(array.ndim))
  match int(rng.integers(8)):
    case 0:
      b = int(rng.integers(array.shape[d] + 1))
      e = int(rng.integers(b, array.shape[d] + 1))
      return view.slice(d, b, e), array[(slice(None),) * d + (slice(b, e),)]
    case 1:
      s = int(rng.integers(1, 5))
      return view.subsample(d, s), array[(slice(None),) * d + (slice(None, None, s),)]
    case 2:
      return view.reverse(d), np.flip(array, d)
    case 3:
      n = int(rng.integers(1, 4))
      if array.size * n > 4000:
        return view, array
      return view.broadcast(d, n), np.tile(array, [n if i == d else 1 for i in range(array.ndim)])
    case 4:
      order = [int(i) for i in rng.permutation(array.ndim)]
      return view.dimshuffle(order), array.transpose(order)
    case 5:
      return view.flatten(), array.reshape(-1)
    case _:
      shape, left = [], array.size
      while left > 1 and len(shape) < 5:
        f = int(rng.integers(2, 7))
        f = f if left % f == 0 else left
        shape.append(f)
        left //= f
      shape = [int(s) for s in rng.permutation(shape + [left])]
      return view.reshape(shape), array.reshape(shape)


def test_ten_thousand_views_equal_numpy():
  rng = np.random.default_rng(8)
  for case in range(10000):
    g = tiles.Graph()
    parts = []
    for name in ("a", "b"):
      shape = tuple(int(s) for s in rng.integers(1, 9, int(rng.integers(1, 4))))
      array = rng.integers(0, 1 << 20, shape).astype(np.float32)
      parts.append((g.variable(name, shape).write(array), array))
    view, array = parts[0]
    for _ in range(int(rng.integers(1, 7))):
      view, array = random_op(rng, view, array)
    other, second = parts[1]
    if second.ndim == array.ndim and second.shape[1:] == array.shape[1:]:
      view, array = tiles.concat([view, other]), np.concatenate([array, second])
    assert view.shape == array.shape, case
    assert np.array_equal(view.read(), array), case


def test_writing_through_a_view():
  g = tiles.Graph()
  a = g.variable("a", (6, 4), np.int32).write(np.arange(24).reshape(6, 4))
  a.dimshuffle([1, 0]).slice(0, 1, 3).reverse(1).write(np.zeros((2, 6), np.int32))
  want = np.arange(24).reshape(6, 4)
  want[:, 1:3] = 0
  assert np.array_equal(a.read(), want)


def test_random_mappings_have_one_home():
  rng = np.random.default_rng(4)
  for _ in range(200):
    g = tiles.Graph()
    n = int(rng.integers(1, 3000))
    a, home = g.variable("a", (n,)), np.full(n, tiles.NOWHERE, np.int64)
    for _ in range(20):
      b, e = sorted(int(x) for x in rng.integers(0, n + 1, 2))
      step, tile = int(rng.integers(1, 4)), int(rng.integers(1472))
      part = home[b:e:step]
      clash = np.any((part != tiles.NOWHERE) & (part != tile))
      view = a.slice(0, b, e).subsample(0, step)
      if clash:
        with pytest.raises(tiles.TilesError, match="tensor a"):
          view.map(tile)
      else:
        view.map(tile)
        home[b:e:step] = tile
    got = np.concatenate([np.full(e - b, t, np.int64) for b, e, t in a.mapping()])
    assert np.array_equal(got, home)
    assert g.tile_bytes().sum() == 4 * np.count_nonzero(home != tiles.NOWHERE)


# ---- Programs --------------------------------------------------------------------------
def test_y_is_one_minus_concat():
  g = tiles.Graph()
  a, b = (g.variable(n, (32, 64, 128, 128)).map_linear() for n in "AB")
  c = tiles.concat([a, b], dim=3)
  y = c.clone("y")
  s = g.compute_set("y = 1 - C")
  s.elementwise("subtract_from", c, out=y, param=1)
  r = g.report(s)
  assert abs(r["cycles"] - 45890) <= 459
  assert r["steps"][0]["exchange"] == r["steps"][0]["pre"] == 0
  assert "<svg" in g.html(s)


def test_values_of_a_program():
  g = tiles.Graph()
  x = np.random.default_rng(1).normal(size=(50, 30)).astype(np.float32)
  a = g.variable("a", (50, 30)).map_linear().write(x)
  t = a.dimshuffle([1, 0]).dimshuffle([1, 0]).reverse(0)
  s = g.compute_set("sum")
  y = s.elementwise("add", a, t, name="y")
  cycles = g.run(s)
  assert np.array_equal(y.read(), x + x[::-1])
  assert cycles == g.report(s)["cycles"]


def test_errors_name_tensor_and_tile():
  g = tiles.Graph()
  a = g.variable("a", (10,))
  with pytest.raises(tiles.TilesError, match="tensor a: tile 1472"):
    a.map(1472)
  a.map(3)
  with pytest.raises(tiles.TilesError, match="tile 3 already and would be mapped to tile 4"):
    a.reverse(0).map(4)
  s = g.compute_set("s")
  b = g.variable("b", (10,))
  with pytest.raises(tiles.TilesError, match="tensor b"):
    s.elementwise("negate", a, out=b)
  with pytest.raises(tiles.TilesError, match="no codelet"):
    s.vertex("sinh", 0, [a, b])


# ---- The library from Python --------------------------------------------------------------
def test_mapping_of_several_views():
  g = tiles.Graph()
  a, b = g.variable("a", (6,)), g.variable("b", (4,))
  a.map(3)
  b.slice(0, 0, 2).map(3)
  assert tiles.mapping([a, b]) == [(0, 8, 3), (8, 10, tiles.NOWHERE)]
  with pytest.raises(tiles.TilesError, match=r"\[2, 4\) of tensor b"):
    b.check()


def test_regions_are_split_between_workers():
  g = tiles.Graph()
  a = g.variable("a", (100,)).map(5)
  view = tiles.concat([a.slice(0, 60, 100), a.slice(0, 0, 31)])
  assert view.regions(5) == [(40, 71, 0), (0, 40, 1)]
  parts = view.regions(5, workers=6, grain=4)
  sizes = [sum(e - b for b, e, k in parts if k == i) for i in range(6)]
  assert sum(sizes) == 71 and all(n % 4 == 0 for n in sizes[:-1]) and max(sizes) <= 12
  assert view.regions(4) == []


def test_reordering_joins_what_lies_together():
  g = tiles.Graph()
  a = g.variable("a", (8, 8)).map_linear()
  b = g.variable("b", (8, 8))
  x, y = tiles.reorder_to_simplify([a.dimshuffle([1, 0]), b])
  a.write(np.arange(64).reshape(8, 8))
  b.write(np.arange(64).reshape(8, 8).T)
  assert np.array_equal(x.read(), np.arange(64)) and np.array_equal(y.read(), np.arange(64))


def test_layouts_pad_channels():
  g = tiles.Graph()
  x = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype(np.float32)
  for form, shape, back in (("NC4HW4", (2, 2, 3, 5, 4), (0, 2, 3, 1, 4)), ("NHC4W4", (2, 3, 2, 5, 4), (0, 1, 3, 2, 4))):
    v, padded = g.layout(form, form, x.shape)
    v.write(x)
    assert padded.shape == shape
    raw = padded.read().transpose(back).reshape(2, 3, 5, 8)
    assert np.array_equal(raw[..., :6], x) and not raw[..., 6:].any()


def test_branches_and_interleaved_memory():
  g = tiles.Graph()
  a, t = g.variable("a", (4000,)).map(0), g.variable("t", (4000,)).map(0)
  pred = g.variable("pred", (1,)).map(0)
  a.write(np.arange(4000)), pred.write([1])
  assert g.run(g.branch(pred, g.copy(a.reverse(0), t))) > 0
  assert np.array_equal(t.read(), np.arange(4000)[::-1])
  narrow = g.report(g.copy(a.reverse(0), t))
  for v in (a, t):
    v.flag(interleaved=True)
  wide = g.report(g.copy(a.reverse(0), t))
  assert narrow["cycles"] == 288 + 2000 and wide["cycles"] == 288 + 1000
  assert all(b["address"] >= 638976 - 425984 for b in wide["blocks"] if b["name"] in "at")


def test_the_exchange_says_who_sends_what_when():
  g = tiles.Graph()
  a, b = g.variable("a", (32,)), g.variable("b", (32,)).map(9)
  a.slice(0, 0, 16).map(3), a.slice(0, 16, 32).map(4)
  text = g.exchange(g.copy(a, b))
  assert sorted(text.splitlines()) == ["tile 3 -> 9: at cycle 0, 64 bytes: a[0, 16)",
                                       "tile 4 -> 9: at cycle 16, 64 bytes: a[16, 32)"]


# ---- JAX functions ------------------------------------------------------------------------
def jax_programs():
  import jax
  import jax.numpy as jnp
  shape = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)

  def mlp(params, x, y):
    def loss(params):
      h = x
      for w, b in params[:-1]:
        h = jax.nn.relu(h @ w + b)
      w, b = params[-1]
      return -jnp.mean(jnp.sum(jax.nn.log_softmax(h @ w + b) * y, -1))
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

  def norm(x):
    m = x.mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5)

  def layer(w, x):
    b, t, d = x.shape
    y = norm(x)
    q, k, v = [(y @ m).reshape(b, t, 8, d // 8).transpose(0, 2, 1, 3) for m in w[:3]]
    a = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / np.sqrt(d // 8))
    x = x + (a @ v).transpose(0, 2, 1, 3).reshape(b, t, d) @ w[3]
    return x + jax.nn.gelu(norm(x) @ w[4]) @ w[5]

  def block(w, x):
    def conv(x, w):
      y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
      m = y.mean((0, 1, 2))
      return (y - m) * jax.lax.rsqrt(((y - m) ** 2).mean((0, 1, 2)) + 1e-5)
    return jax.nn.relu(x + conv(jax.nn.relu(conv(jax.nn.relu(conv(x, w[0])), w[1])), w[2]))

  d = [784, 512, 512, 10]
  return {
      "mlp": (mlp, [(shape(i, o), shape(o)) for i, o in zip(d, d[1:])], shape(128, 784), shape(128, 10)),
      "transformer": (layer, [shape(512, 512)] * 4 + [shape(512, 2048), shape(2048, 512)], shape(8, 128, 512)),
      "resnet block": (block, [shape(1, 1, 256, 64), shape(3, 3, 64, 64), shape(1, 1, 64, 256)], shape(4, 56, 56, 256)),
  }


@pytest.mark.parametrize("name", ["mlp", "transformer", "resnet block"])
def test_the_planner_beats_the_linear_mapping(name):
  fn, *args = jax_programs()[name]
  planned = tiles.profile(fn, *args)
  linear = tiles.profile(fn, *args, mapping="linear", lenient=True)
  print(f"{name}: planned {planned.cycles} cycles, linear {linear.cycles}, memory {planned.peak_bytes}")
  assert planned.peak_bytes <= 638976
  products = lambda p: sum(s["cycles"] * s["times"] for s in p.steps
                           if s["name"].startswith(("dot_general", "convolution")))
  assert products(linear) >= 1.5 * products(planned)
  assert linear.cycles >= 1.5 * planned.cycles
  # A step that could have stayed where its operands are moves them only if that is cheaper.
  assert all(s["cycles"] < s["stay_cycles"] for s in planned.steps if s["exchange_bytes"] and s["stay_cycles"])
  # An elementwise op on operands that lie alike moves nothing.
  alike = [s for s in planned.steps if s["name"].startswith(("tanh", "exponential", "negate", "rsqrt", "log."))]
  assert alike and all(s["exchange_bytes"] == 0 for s in alike)


def test_halves_of_a_product_are_added_on_all_tiles():
  import jax
  import jax.numpy as jnp

  def fn(a, b):
    c = a @ b
    return c[0] + c[1]
  p = tiles.profile(fn, jax.ShapeDtypeStruct((2, 262144, 64), jnp.float32), jax.ShapeDtypeStruct((2, 64, 64), jnp.float32))
  assert [s["name"].split(".")[0] for s in p.steps] == ["dot_general", "add"]  # slices are views
  # Where the halves are, 736 tiles take 57,955 cycles; half with each of them, all take half of that.
  assert p.steps[1]["idle_tiles"] <= 10 and p.steps[1]["cycles"] <= 0.55 * 57955


def test_memory_has_addresses():
  fn, *args = jax_programs()["mlp"]
  p = tiles.profile(fn, *args)
  assert sum(p.memory.values()) == p.peak_bytes == max(p.tile_bytes)
  live = lambda a, b: a["first_step"] <= (b["last_step"] if b["last_step"] >= 0 else 1 << 30) and \
      b["first_step"] <= (a["last_step"] if a["last_step"] >= 0 else 1 << 30)
  names = {b["category"] for b in p.blocks}
  assert {"variables", "received"} <= names
  kept = [b for b in p.blocks if b["category"] == "variables" and b["first_step"] == -1]
  for i, a in enumerate(kept):  # parameters live all the time: they share nothing
    for b in p.blocks:
      if b is not a and live(a, b) and b["first_step"] > a["first_step"]:
        assert a["address"] + a["bytes"] <= b["address"] or b["address"] + b["bytes"] <= a["address"], (a, b)
  assert p.tensors and p.tensors[0]["cycles"] >= p.tensors[-1]["cycles"] and " blocks of " in p.tensors[0]["home"]


def test_too_large_a_program_says_where():
  import jax
  import jax.numpy as jnp
  x = jax.ShapeDtypeStruct((40000, 8192), jnp.float32)
  with pytest.raises(tiles.TilesError, match=r"tile \d+ needs \d+ bytes of 638976 at step"):
    tiles.profile(lambda a: jnp.tanh(a) * 2, x)


def test_the_page_has_pictures(tmp_path):
  fn, *args = jax_programs()["mlp"]
  page = tiles.profile(fn, *args).html(tmp_path / "page.html")
  assert page.count("<svg") >= 5 and "Where the cycles go" in page and "tile 1471" in page
