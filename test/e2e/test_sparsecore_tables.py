"""Tables of atoll.sparsecore: taking stacks apart, rows, checkpoints, files."""

import collections
import importlib.util

import numpy as np
import pytest

from atoll import sparsecore as sp
from atoll.sparsecore import config as cfg

Variables = collections.namedtuple("Variables", ["table", "slot"])


def features(rotation=None, devices=2, groups=None):
  tables = [sp.TableSpec(f"t{i}", 50 + 31 * i, 6 if i < 3 else 12) for i in range(4)]
  fs = [sp.FeatureSpec(f"f{i}", t, (64, 4)) for i, t in enumerate(tables)]
  sp.stack_tables(fs, global_device_count=devices, num_sc_per_device=2, rotation=rotation, groups=groups)
  return fs


def values(fs, seed=0):
  rng = np.random.default_rng(seed)
  return {t.name: [rng.normal(size=(t.vocabulary_size, t.embedding_dim)).astype(np.float32) for _ in range(2)]
          for t in cfg.tables_of(fs).values()}


def same(a, b):
  assert a.keys() == b.keys()
  for n in a:
    for x, y in zip(a[n], b[n], strict=True):
      assert x.dtype == y.dtype
      np.testing.assert_array_equal(x, y)


def test_stacks_come_apart_and_together():
  fs, v = features(), values(features())
  stacked = sp.stack_values(fs, v, 4)
  assert len(stacked) == 2  # by width
  same(sp.unstack_tables(fs, stacked, 4), v)
  # Every row is where ids point; all else is zero.
  t = fs[1].table_spec
  table = stacked[t.stacked_table_spec.stack_name][0]
  np.testing.assert_array_equal(table[sp.row_of(t, 7, 4), :6], v["t1"][0][7])
  whole = sum(float(np.abs(v[n][0]).sum()) for n in ("t0", "t1", "t2"))
  assert np.isclose(float(np.abs(table).sum()), whole, rtol=1e-4)
  # One element a row, without a dimension of its own.
  flat = {n: [a[0][:, 0]] for n, a in v.items()}
  same(sp.unstack_tables(fs, sp.stack_values(fs, flat, 4), 4), flat)


def test_rows_are_read_and_written():
  jax = pytest.importorskip("jax")
  fs, v = features(), values(features())
  stacked = sp.stack_values(fs, v, 4)
  got = sp.read_rows(fs, stacked, "t2", [[5, 0], [111, 5]], 4)
  np.testing.assert_array_equal(got[1], v["t2"][1][[[5, 0], [111, 5]]])
  sp.write_rows(fs, stacked, "t2", [5], np.ones((1, 6)), 4)
  assert (sp.read_rows(fs, stacked, "t2", 5, 4)[0] == 1).all()
  with jax.default_device(jax.devices("cpu")[0]):
    name = fs[3].table_spec.stacked_table_spec.stack_name
    stacked[name] = Variables(jax.numpy.asarray(stacked[name][0]), (jax.numpy.asarray(stacked[name][1]),))
    sp.write_rows(fs, stacked, "t3", [3, 4], np.full((2, 12), 2.0), 4)
    table, slot = sp.read_rows(fs, stacked, "t3", [2, 3, 4], 4)
  assert isinstance(stacked[name], Variables)
  np.testing.assert_array_equal(table, [v["t3"][0][2], *np.full((2, 12), 2.0)])
  np.testing.assert_array_equal(slot, v["t3"][1][[2, 3, 4]])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("kind", [".npz", ".safetensors", ""])
def test_checkpoints_fit_another_stacking(tmp_path, kind, dtype):
  if kind == ".safetensors":
    pytest.importorskip("safetensors", reason="safetensors is not installed: npz is tested")
  pytest.importorskip("ml_dtypes")  # registers bfloat16
  fs = features()
  v = {n: [(9 * a[0]).astype(dtype), *a[1:]] for n, a in values(fs).items()}
  path = tmp_path / f"tables{kind}"
  sp.save_tables(path, fs, sp.stack_values(fs, v, 4), 4)
  other = features(rotation=1, devices=4, groups=[["t2", "t0"], ["t1"]])
  same(sp.unstack_tables(other, sp.load_tables(path, other, 8), 8), v)


def test_checkpoints_without_orbax(tmp_path, monkeypatch):
  found = importlib.util.find_spec
  monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if "orbax" in n else found(n, *a))
  fs, v = features(), values(features())
  sp.save_tables(tmp_path / "c", fs, sp.stack_values(fs, v, 4), 4)
  kind = "safetensors" if found("safetensors") else "npz"
  assert [p.name for p in (tmp_path / "c").iterdir()] == [f"tables.{kind}"]
  same(sp.unstack_tables(fs, sp.load_tables(tmp_path / "c", fs, 4), 4), v)


def test_tables_are_files(tmp_path):
  fs = features()
  fill = lambda rng, shape: rng.normal(size=shape).astype(np.float32)
  made = sp.map_tables(tmp_path, fs, 4, fill)
  assert all(isinstance(a, np.memmap) and a.any() for a in made.values())
  sp.write_rows(fs, made, "t0", [1], np.ones((1, 6)), 4)
  for a in made.values():
    a.flush()
  again = sp.map_tables(tmp_path, fs, 4)
  assert (sp.read_rows(fs, again, "t0", 1, 4)[0] == 1).all()
  with pytest.raises(ValueError, match="stack .* is float16"):
    sp.map_tables(tmp_path, fs, 4, dtype=np.float16)


@pytest.mark.parametrize("wrong,says", [
    (lambda fs, s: sp.read_rows(fs, s, "t9", 0, 4), "no feature uses table 't9'"),
    (lambda fs, s: sp.read_rows(fs, s, "t0", 50, 4), "id 50 of table 't0' is out of range: its vocabulary is 50"),
    (lambda fs, s: sp.read_rows(fs, s, "t0", [0, -1], 4), "id -1 of table 't0'"),
    (lambda fs, s: sp.read_rows(fs, s, "t0", 0.5, 4), "are float64, not integers"),
    (lambda fs, s: sp.read_rows(fs, {}, "t0", 0, 4), "is missing"),
    (lambda fs, s: sp.read_rows(fs, {k: a[0][:8] for k, a in s.items()}, "t0", 0, 4), "has .* rows of 8, not"),
    *[(lambda fs, s, n=n: sp.unstack_tables(fs, s, n), f"not made for {n} SparseCores but for 4")
      for n in (7, 2, 8, 0, -4)],
    (lambda fs, s: sp.stack_values(fs, values(fs), 2), "not made for 2 SparseCores"),
    (lambda fs, s: sp.write_rows(fs, s, "t0", [1], np.ones((1, 8)), 4), r"rows of table 't0' are \(1, 6\), not \(1, 8\)"),
    (lambda fs, s: sp.write_rows(fs, s, "t0", [1, 2], np.ones((3, 6)), 4), r"are \(2, 6\), not \(3, 6\)"),
    (lambda fs, s: sp.stack_values(fs, {}, 4), "table 't0' is missing"),
    (lambda fs, s: sp.stack_values(fs, {**values(fs), "t1": [np.ones((5, 6))] * 2}, 4), r"table 't1' is \(5, 6\)"),
    (lambda fs, s: sp.stack_values(fs, {**values(fs), "t1": values(fs)["t1"][:1]}, 4), "'t1' has 0 slots"),
    (lambda fs, s: sp.load_tables("/nowhere", fs, 4), "no checkpoint"),
])
def test_mistakes_are_named(wrong, says):
  fs = features()
  with pytest.raises((ValueError, FileNotFoundError), match=says):
    wrong(fs, sp.stack_values(fs, values(fs), 4))


def test_broken_checkpoints_are_named(tmp_path):
  fs, v = features(), values(features())
  stacked = sp.stack_values(fs, v, 4)
  for kind in ("npz", "safetensors"):
    if kind == "safetensors" and not importlib.util.find_spec("safetensors"):
      continue
    path = tmp_path / f"a.{kind}"
    sp.save_tables(path, fs, stacked, 4)
    whole = path.read_bytes()
    for broken in (b"", whole[:len(whole) // 2], b"PK" + bytes(range(100))):
      path.write_bytes(broken)
      with pytest.raises(ValueError, match=f"checkpoint .*a.{kind}: "):
        sp.load_tables(path, fs, 4)
  for arrays, says in (({"foo": v["t0"][0]}, "'foo' is no table's"), ({"t0/x": v["t0"][0]}, "'t0/x' is no table's"),
                       ({"t0/0": v["t0"][0], "t0/2": v["t0"][0]}, r"table 't0' has arrays \[0, 2\]")):
    np.savez(tmp_path / "b.npz", **arrays)
    with pytest.raises(ValueError, match=says):
      sp.load_tables(tmp_path / "b.npz", fs, 4)


def test_files_are_there_when_they_are_whole(tmp_path):
  fs = features()
  def fails(rng, shape):
    raise RuntimeError("no values")
  with pytest.raises(RuntimeError, match="no values"):
    sp.map_tables(tmp_path, fs, 4, fails)
  with pytest.raises(ValueError, match=r"the initializer of stack .* made \(1, 1\), not \("):
    sp.map_tables(tmp_path, fs, 4, lambda rng, shape: np.zeros((1, 1)))
  assert not list(tmp_path.iterdir())
  made = sp.map_tables(tmp_path, fs, 4, lambda rng, shape: np.ones(shape))
  assert len(list(tmp_path.iterdir())) == len(made) and all((a == 1).all() for a in made.values())
