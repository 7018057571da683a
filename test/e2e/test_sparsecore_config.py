"""Configuration, stacking, limits, skew, sizes and advice of atoll.sparsecore."""

import dataclasses
import json
import os

import numpy as np
import pytest

from atoll import sparsecore as sp
from atoll.sparsecore import config as cfg

DEVICES, SC = 4, 4
CORES = DEVICES * SC


def features(n, batch=256, vocab=1000, width=16, **kw):
  tables = [sp.TableSpec(f"t{i}", vocab + 37 * i, width, **kw)
            for i in range(n)]
  return [sp.FeatureSpec(f"f{i}", t, (batch, 4)) for i, t in enumerate(tables)]


def stack(fs, **kw):
  sp.stack_tables(fs, global_device_count=DEVICES, num_sc_per_device=SC, **kw)
  return cfg.stacks_of(fs)


def batch_of(fs, ids=4, seed=0, skew=1.0):
  r = np.random.default_rng(seed)
  return [(f.table_spec.vocabulary_size * r.random((f.input_shape[0], ids))
           ** skew).astype(np.int32) for f in fs]


def run(fs, xs, **kw):
  return sp.preprocess_sparse_dense_matmul_input(
      xs, None, fs, DEVICES, DEVICES, num_sc_per_device=SC, **kw)


def test_defaults_are_the_documented_ones():
  c = sp.SparsecoreConfig()
  assert dataclasses.asdict(c) == {
      "disable_table_stacking": False, "max_ids_per_chip_per_sample": 64,
      "max_ids_per_table": None, "max_unique_ids_per_table": None,
      "allow_id_dropping": False, "initialize_tables_on_host": True,
      "enable_fast_table_initialization": False,
      "max_ids_per_partition_per_sample": None,
      "max_unique_ids_per_partition_per_sample": None}


def test_alike_tables_are_stacked():
  fs = features(4) + [
      sp.FeatureSpec("g", sp.TableSpec("wide", 500, 32), (256, 4)),
      sp.FeatureSpec("h", sp.TableSpec("mean", 500, 16, combiner="mean"),
                     (256, 4)),
      sp.FeatureSpec("i", sp.TableSpec("adam", 500, 13, optimizer="adam"),
                     (256, 4)),
      sp.FeatureSpec("j", sp.TableSpec(
          "quant", 500, 13,
          quantization_config=sp.QuantizationConfig(-1., 1., 256)), (256, 4)),
      sp.FeatureSpec("k", sp.TableSpec("narrow", 500, 11), (256, 4))]
  stacks = stack(fs)
  assert set(stacks) == {"t0_t1_t2_t3_narrow", "wide", "mean", "adam", "quant"}
  s = stacks["t0_t1_t2_t3_narrow"]
  assert s.stack_embedding_dim == 16 and s.total_sample_count == 5 * 256
  assert s.stack_vocab_size % (8 * CORES) == 0
  assert s.max_ids_per_partition == 5 * 256  # the sum of the tables' limits
  shifts = [f.id_transformation.col_shift for f in fs[:4]]
  assert shifts == [0, 4, 8, 12]
  offsets = [f.id_transformation.row_offset for f in fs[:4]]
  assert offsets == [0, 256, 512, 768]


def test_memory_and_counts_bound_stacks():
  fs = features(8, batch=4096, width=128)
  of = 128 * 4096 // CORES * 4
  stacks = stack(fs, activation_mem_bytes_limit=3 * of)
  assert sorted(s.total_sample_count // 4096 for s in stacks.values()) == [
      2, 3, 3]
  assert len(stack(features(230, batch=16, width=8))) == 3  # 100 at most


def test_stacking_by_hand_and_not_at_all():
  fs = features(4)
  assert set(stack(fs, groups=[["t2", "t0"]], rotation=3)) == {
      "t2_t0", "t1", "t3"}
  assert fs[0].id_transformation.col_shift == 3
  assert fs[0].id_transformation.col_offset == fs[2].table_spec \
      .setting_in_stack.padded_vocab_size
  fs = features(3)
  off = sp.SparsecoreConfig(disable_table_stacking=True)
  assert set(stack(fs, config=off)) == {"t0", "t1", "t2"}
  with pytest.raises(ValueError, match="stacking is disabled"):
    stack(features(3), config=off, groups=[["t0", "t1"]])
  with pytest.raises(ValueError, match="in two stacks"):
    stack(features(3), groups=[["t0", "t1"], ["t1"]])
  with pytest.raises(ValueError, match="no feature uses table 'x'"):
    stack(features(3), groups=[["t0", "x"]])
  odd = features(1) + [sp.FeatureSpec("g", sp.TableSpec("w", 9, 40), (256, 4))]
  with pytest.raises(ValueError, match="'t0' and 'w' cannot be stacked: width"):
    stack(odd, groups=[["t0", "w"]])


def test_limits_of_the_configuration():
  c = sp.SparsecoreConfig(max_ids_per_table={"t0": 800, "t1": 801},
                          max_unique_ids_per_table={"t0": 160, "t1": 0})
  s, = stack(features(2), config=c).values()
  assert (s.max_ids_per_partition, s.max_unique_ids_per_partition) == (101, 10)
  c = sp.SparsecoreConfig(max_ids_per_partition_per_sample=.5,
                          max_unique_ids_per_partition_per_sample=.25)
  s, = stack(features(2), config=c).values()
  assert (s.max_ids_per_partition, s.max_unique_ids_per_partition) == (16, 8)


def test_ids_of_a_sample_are_checked_first():
  fs = features(3)
  stack(fs)
  with pytest.raises(sp.SparseCoreError,
                     match="sample 0 has 12 ids .*table 't2', feature 'f2'"):
    run(fs, batch_of(fs), max_ids_per_chip_per_sample=11)
  run(fs, batch_of(fs), max_ids_per_chip_per_sample=12)


def test_tables_lie_where_ids_point():
  fs = features(3, vocab=50)
  stack(fs)
  init = lambda rng, shape: rng.normal(size=shape).astype(np.float32)
  tables = sp.initialize_tables(fs, CORES, init)
  rng = np.random.default_rng(0)
  for f in fs:
    t = f.table_spec
    want = init(rng, (t.vocabulary_size, 16))
    rows = sp.row_of(t, np.arange(t.vocabulary_size), CORES)
    got = tables[t.setting_in_stack.stack_name]
    np.testing.assert_array_equal(got[rows], want)
    assert len(set(rows.tolist())) == t.vocabulary_size
  # What preprocessing says is the same place.
  x, _ = run(fs, [np.full((256, 1), 7, np.int32)] * 3)
  spec = fs[1].table_spec.stacked_table_spec
  ids = x.sparse_dense_matmul_input.lhs_embedding_ids[spec.stack_name]
  row = int(sp.row_of(fs[1].table_spec, 7, CORES))
  assert row % (spec.stack_vocab_size // CORES) in ids.tolist()


@pytest.mark.parametrize("fast", [False, True])
def test_tables_made_on_the_device(fast):
  jax = pytest.importorskip("jax")
  fs = features(2, vocab=30)
  stack(fs)
  c = sp.SparsecoreConfig(initialize_tables_on_host=False,
                          enable_fast_table_initialization=fast)
  with jax.default_device(jax.devices("cpu")[0]):
    a, = sp.initialize_tables(fs, CORES, jax.random.normal, 3, c).values()
  t = fs[1].table_spec
  rows = np.asarray(a)[sp.row_of(t, np.arange(t.vocabulary_size), CORES)]
  assert a.shape == (t.stacked_table_spec.stack_vocab_size, 16)
  assert .5 < rows.std() < 1.5


def test_quantisation_is_checked():
  for bad in ((1., 1., 256), (2., 1., 256), (-1., 1., 1)):
    with pytest.raises(ValueError):
      sp.QuantizationConfig(*bad)


def test_limits_are_a_running_maximum(tmp_path):
  fs = features(3)
  stack(fs)
  path = str(tmp_path / "limits.json")
  e = sp.LimitsEstimator(path, save_seconds=0)
  seen = []
  for seed in range(4):
    _, stats = run(fs, batch_of(fs, seed=seed))
    e.record(stats)
    seen.append(int(stats.max_ids_per_partition["t0_t1_t2"].max()))
  assert e.tables["t0_t1_t2"].max_ids_per_partition == max(seen)
  assert e.tables["t0_t1_t2"].batches == 4
  e.save()
  again = sp.LimitsEstimator(path)
  assert again.tables == e.tables
  assert again.apply(fs, SC) and not again.apply(fs, SC)
  s, = cfg.stacks_of(fs).values()
  assert s.max_ids_per_partition == max(seen)
  for seed in range(4):  # what was seen fits exactly
    run(fs, batch_of(fs, seed=seed))
  with pytest.raises(sp.SparseCoreError, match="Observed max"):
    run(fs, batch_of(fs, ids=16))


@pytest.mark.parametrize("text, says", [
    ("", "limits file"), ("{}", "its format is not"), ("[1]", "its format"),
    ('{"format": "atoll sparsecore limits 1", "tables": {"t": {}}}',
     "table 't' has no max_ids_per_partition"),
    ('{"format": "atoll sparsecore limits 1", "tables": {"t": '
     '{"max_ids_per_partition": -1, "max_unique_ids_per_partition": 1, '
     '"required_buffer_size_per_sc": 1, "batches": 1}}}', "has no max_ids"),
    ('{"format": "atoll sparsecore limits 1", "tables": {"t": '
     '{"max_ids_per_partition": 99999999999, "max_unique_ids_per_partition": 1, '
     '"required_buffer_size_per_sc": 1, "batches": 1}}}', "has no max_ids"),
    ('{"format": "atoll sparsecore limits 1", "tables": {"t": 3}}',
     "table 't' has no max_ids"),
    ('{"format": "atoll sparsecore limits 1", "tables": []}', "it has no tables"),
    ('{"format": "atoll sparsecore limits 1"}', "it has no tables")])
def test_bad_limits_files_are_refused(tmp_path, text, says):
  path = tmp_path / "limits.json"
  path.write_text(text)
  with pytest.raises(ValueError, match=says):
    sp.LimitsEstimator(str(path))


def test_flags_name_the_limits_file(tmp_path, monkeypatch):
  path = tmp_path / "limits.json"
  monkeypatch.setenv("LIBTPU_INIT_ARGS",
                     f"--xla_sparse_core_max_ids_file={path} "
                     "--xla_sparse_core_estimate_max_ids=true")
  e = sp.LimitsEstimator.from_flags()
  assert e.path == str(path)
  fs = features(1)
  stack(fs)
  e.record(run(fs, batch_of(fs))[1])
  assert json.loads(path.read_text())["tables"]["t0"]["batches"] == 1
  monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_sc_detect_nans=1")
  with pytest.raises(sp.SparseCoreError, match="did you mean xla_sc_detect_nan"):
    sp.flags()
  monkeypatch.delenv("LIBTPU_INIT_ARGS")
  assert sp.LimitsEstimator.from_flags() is None


def test_skew_is_reported_and_lowered():
  fs = features(4, batch=256, vocab=4096)
  stack(fs, rotation=0)
  xs = [(np.arange(1024).reshape(256, 4) % 256 * CORES).astype(np.int32)
        for _ in fs]  # every id of every table belongs to one SparseCore
  report = lambda: sp.skew_report(xs, fs, global_device_count=DEVICES,
                                  num_sc_per_device=SC)
  name = fs[0].table_spec.setting_in_stack.stack_name
  before = report()
  assert before.imbalance(name) == CORES
  assert before.features[0].hottest[0] == (0, 4)
  assert before.hottest_tables[0] == ("t0", 1024)
  assert "fullest partition 0 has 4096 ids" in str(before)
  limit = int(run(fs, xs, allow_id_dropping=True)[1]
              .max_ids_per_partition[name].max())
  stack(fs)  # rotated by the SparseCores of a device
  rotated = report()
  assert rotated.imbalance(name) == CORES / 4
  shuffles = [sp.IdShuffle(f.table_spec.vocabulary_size, i)
              for i, f in enumerate(fs)]
  xs = [s(x) for s, x in zip(shuffles, xs)]
  shuffled = report()
  assert shuffled.imbalance(name) < 1.5
  less = int(run(fs, xs, allow_id_dropping=True)[1]
             .max_ids_per_partition[name].max())
  assert less < limit / 4
  for s in shuffles:
    assert len(set(s(np.arange(s.vocabulary)).tolist())) == s.vocabulary


def test_sizes_are_the_compilers():
  fs = features(1, batch=1024, width=128, vocab=100000, optimizer="adagrad",
                max_ids_per_partition=1024, max_unique_ids_per_partition=1024)
  stack(fs)
  s = sp.size_report(fs, "v5p:2x2x1", DEVICES)
  assert s.stack_bytes == 203636736
  assert sp.size_report(fs, "v5p", DEVICES, training=False).stack_bytes == (
      67878912)
  assert s.tables["t0"]["rows_per_tile"] > 0 and "t0" in str(s)
  with pytest.raises(sp.SparseCoreError, match="Only Megachip mode"):
    sp.size_report(fs, "v5e", DEVICES)


# ---- The advisor: ten programs with one planted bottleneck each, measured here.
# Each returns (profile, measured figure) before and after its knob is turned.
def profile_of(fs, xs, **times):
  p = sp.Profile(step_seconds=.010, sparse_seconds=.004, dense_seconds=.004,
                 overlap_seconds=.0039, pipelined=True)
  minibatching = times.pop("minibatching", False)
  x, stats = run(fs, xs, enable_minibatching=minibatching,
                 allow_id_dropping=times.pop("dropping", False))
  p.record(stats, int(x.num_minibatches[0]))
  p.describe(fs, SC)
  for k, v in times.items():
    setattr(p, k, v)
  return p, x, stats


def fitted(fs, xs):
  """Limits as the data has them."""
  e = sp.LimitsEstimator()
  s = cfg.stacks_of(fs)
  for f in fs:
    n = f.table_spec.stacked_table_spec.stack_name
    f.table_spec.stacked_table_spec = dataclasses.replace(
        s[n], max_ids_per_partition=1 << 20,
        max_unique_ids_per_partition=1 << 20,
        suggested_coo_buffer_size_per_device=1 << 20)
  e.record(run(fs, xs)[1])
  e.apply(fs, SC)
  return fs


def even(n=6, **kw):
  fs = features(n, vocab=4096 * CORES, **kw)
  stack(fs)
  xs = batch_of(fs, ids=16)
  return fitted(fs, xs), xs


def _limits_low():
  fs, xs = even()
  good = {f.name: f.table_spec.stacked_table_spec for f in fs}
  for f in fs:
    s = f.table_spec.stacked_table_spec
    f.table_spec.stacked_table_spec = dataclasses.replace(
        s, max_ids_per_partition=s.max_ids_per_partition // 3,
        suggested_coo_buffer_size_per_device=None)
  a, x, _ = profile_of(fs, xs, minibatching=True)
  for f in fs:
    f.table_spec.stacked_table_spec = good[f.name]
  b, y, _ = profile_of(fs, xs)
  return a, int(x.num_minibatches[0]), b, int(y.num_minibatches[0])


def _dropping():
  fs, xs = even()
  good = {f.name: f.table_spec.stacked_table_spec for f in fs}
  for f in fs:
    f.table_spec.stacked_table_spec = dataclasses.replace(
        good[f.name], max_ids_per_partition=8,
        suggested_coo_buffer_size_per_device=None)
  a, _, s = profile_of(fs, xs, dropping=True)
  for f in fs:
    f.table_spec.stacked_table_spec = good[f.name]
  b, _, t = profile_of(fs, xs)
  return (a, sum(s.id_drop_counters.values()), b,
          sum(t.id_drop_counters.values()))


def _limits_high():
  fs, xs = even()
  good = {f.name: f.table_spec.stacked_table_spec for f in fs}
  for f in fs:
    f.table_spec.stacked_table_spec = dataclasses.replace(
        good[f.name], max_ids_per_partition=4096,
        max_unique_ids_per_partition=4096)
  a = profile_of(fs, xs)[0]
  size = sp.size_report(fs, "v5p", DEVICES).stack_bytes
  for f in fs:
    f.table_spec.stacked_table_spec = good[f.name]
  return (a, size, profile_of(fs, xs)[0],
          sp.size_report(fs, "v5p", DEVICES).stack_bytes)


def _skew():
  fs = features(6, vocab=4096 * CORES)
  stack(fs, rotation=0)
  r = np.random.default_rng(0)
  xs = [(r.integers(0, 4096, (256, 16)) * CORES).astype(np.int32) for _ in fs]
  a, _, s = profile_of(fitted(fs, xs), xs)
  xs = [sp.IdShuffle(f.table_spec.vocabulary_size)(x) for f, x in zip(fs, xs)]
  b, _, t = profile_of(fitted(fs, xs), xs)
  n = next(iter(s.max_ids_per_partition))
  return a, s.max_ids_per_partition[n].max(), b, t.max_ids_per_partition[n].max()


def _narrow():
  fs, xs = even(width=1)
  a = profile_of(fs, xs)[0]
  waste = sp.size_report(fs, "v5p", DEVICES).waste_bytes
  fs, xs = even(width=8)
  return (a, waste, profile_of(fs, xs)[0],
          sp.size_report(fs, "v5p", DEVICES).waste_bytes)


def _unstacked():
  fs = features(8, vocab=4096 * CORES)
  stack(fs, config=sp.SparsecoreConfig(disable_table_stacking=True))
  xs = batch_of(fs, ids=16)
  a, x, _ = profile_of(fitted(fs, xs), xs)
  stack(fs)
  b, y, _ = profile_of(fitted(fs, xs), xs)
  lookups = lambda z: len(z.sparse_dense_matmul_input.lhs_row_pointers)
  return a, lookups(x), b, lookups(y)


def _needless_f32():
  fs, xs = even()
  few = np.random.default_rng(0).integers(-8, 8, (64, 16)) / 8  # on few levels
  a = profile_of(fs, xs)[0]
  a.describe(fs, SC, {n: few for n in a.stacks})
  for f in fs:
    f.table_spec.dtype = "bfloat16"
  b = profile_of(fs, xs)[0]
  b.describe(fs, SC, {n: few + 1e-4 for n in b.stacks})
  assert all(s.needs_f32 for s in b.stacks.values())
  width = lambda p: sum(s.element_bytes for s in p.stacks.values())
  return a, width(a), b, width(b)


def _hot_first_rows():
  """Every table's first ids are the hot ones: without rotation on one SparseCore."""
  r, fs = np.random.default_rng(0), features(16, vocab=4096 * CORES)
  xs = [np.where(r.random((256, 16)) < .8, 0, r.integers(0, 4096 * CORES, (256, 16))
                 ).astype(np.int32) for _ in fs]
  def observed(rotation):
    stack(fs, rotation=rotation)
    p, _, s = profile_of(fitted(fs, xs), xs)
    return p, max(v.max() for v in s.max_ids_per_partition.values())
  return (*observed(0), *observed(1))


def _too_many():
  fs = features(120, vocab=16 * CORES, batch=64)
  xs, names = batch_of(fs, ids=4), [f.table_spec.name for f in fs]
  def observed(groups):
    stack(fs, groups=groups)
    p = profile_of(fitted(fs, xs), xs)[0]
    return p, max(s.tables for s in p.stacks.values())
  return (*observed([names]), *observed([names[:60], names[60:]]))


def _timed(**slow):
  """A cause of time: the figure is the step, made of its parts."""
  fs, xs = even()
  a = profile_of(fs, xs, **slow)[0]
  b = profile_of(fs, xs)[0]
  step = lambda p: (max(p.sparse_seconds, p.dense_seconds)
                    + min(p.sparse_seconds, p.dense_seconds)
                    - p.overlap_seconds + max(p.host_seconds, p.idle_seconds)
                    + (p.hbm_bytes / p.hbm_bytes_per_second if p.hbm_bytes else 0)
                    + p.recompile_seconds / p.steps)
  return a, step(a), b, step(b)


@pytest.mark.parametrize("plant, cause", [
    (_limits_low, "limits too low"), (_dropping, "limits too low"),
    (_limits_high, "limits too high"), (_skew, "skew"),
    (_narrow, "narrow rows"), (_unstacked, "stacks too small"),
    (_needless_f32, "needless f32"),
    (lambda: _timed(host_seconds=.005), "host-bound"),
    (lambda: _timed(overlap_seconds=0., pipelined=False), "no overlap"),
    (lambda: _timed(recompiles=3, recompile_seconds=.005), "recompiles"),
    (_hot_first_rows, "skew"), (_too_many, "stack too large"),
    (lambda: _timed(idle_seconds=.004), "idle gaps"),
    (lambda: _timed(hbm_bytes=9e6, hbm_bytes_per_second=1e9), "HBM bandwidth"),
])
def test_the_advisor_ranks_the_planted_cause_first(plant, cause):
  a, before, b, after = plant()
  found = sp.advise(a)
  assert found and found[0].cause == cause, [str(x) for x in found]
  assert found[0].figure and found[0].knob
  assert after < before
  assert cause not in {x.cause for x in sp.advise(b)}
  assert f"gone: {cause}" in sp.compare(a, b) or cause in sp.compare(a, b)


def test_a_profile_is_kept(tmp_path):
  a = _timed(host_seconds=.005)[0]
  a.operations = {"SparseCore 0": {"gather": .2, "scatter": .3, "sort": .1}}
  assert a.longest("SparseCore 0", 2) == [("scatter", .3), ("gather", .2)]
  path = tmp_path / "profile.json"
  a.save(path)
  assert sp.Profile.load(path) == a


def test_hosts_agree_on_minibatches():
  """Two hosts of one job: what one needs, both do."""
  fs, xs = even(2)
  spec = dataclasses.replace(fs[0].table_spec.stacked_table_spec,
                             suggested_coo_buffer_size_per_device=None)
  for f in fs:
    f.table_spec.stacked_table_spec = spec
  halves = [[x[:128] for x in xs], [x[128:] for x in xs]]
  make = lambda agree: sp.Plan(fs, 2, DEVICES, SC, enable_minibatching=True,
                               agree=agree)
  assert make(lambda bits: bits).run(halves[0])[1] == 1
  asked = []
  def other(bits):
    asked.append(bits)
    return bits | (1 if len(asked) == 1 else 1 << 62)
  assert make(other).run(halves[0])[1] == 2 and len(asked) == 2
  def fails(bits):
    raise ConnectionError("the other host is gone")
  with pytest.raises(ConnectionError, match="is gone"):
    make(fails).run(halves[1])


def test_a_trace_is_split_over_the_cores():
  e = lambda core, name, start, end: sp.Event(core, 0, name, start, end - start)
  events = [
      e("module", "step", 0, 10), e("SparseCore", "lookup", 0, 4),
      e("TensorCore", "dot", 3, 9), e("host", "preprocess", 8, 14),
      e("module", "step", 14, 24), e("SparseCore", "lookup", 14, 18),
      e("TensorCore", "dot", 17, 23), e("TensorCore", "add", 23, 24)]
  p = sp.profile_of_events(events)
  assert (p.steps, p.step_seconds) == (2, 14)
  assert (p.sparse_seconds, p.dense_seconds, p.overlap_seconds) == (4, 6.5, 1)
  assert p.host_seconds == 2  # of 4 between the steps, per step
  assert p.idle_seconds == 2.5
  assert p.longest("TensorCore") == [("dot", 12), ("add", 1)]
  assert sp.advise(p)[0].cause == "no overlap"
  with pytest.raises(ValueError, match="no program ran on chip 7"):
    sp.profile_of_events(events, chip=7)


def test_samples_are_minibatched_in_smaller_buffers():
  """Mini-batching on samples: the same ids, each mini-batch a k-th of them."""
  fs, xs = even()
  whole, stats = run(fs, xs)
  n = next(iter(stats.max_ids_per_partition))
  spec = cfg.stacks_of(fs)[n]
  for f in fs:
    f.table_spec.stacked_table_spec = dataclasses.replace(
        spec, max_ids_per_partition=spec.max_ids_per_partition // 2,
        suggested_coo_buffer_size_per_device=None)
  cut, _ = run(fs, xs, enable_minibatching=True, split="sample")
  k = int(cut.num_minibatches[0])
  assert k in (4, 8)  # two halves are not even
  def entries(x, blocks, coo_of):
    got, block = [], max(CORES, 8)
    p, e, s, g = (np.asarray(a[n]).reshape(DEVICES, -1) for a in
                  x.sparse_dense_matmul_input)
    most = 0
    for d in range(DEVICES):
      at = 0
      for c in range(SC):
        base = 0 if blocks > 1 else c * (e.shape[1] // SC)
        at = at if blocks > 1 else base
        for m in range(blocks):
          for o in range(CORES):
            end = base + p[d, (c * blocks + m) * block + o]
            got += [(d, c, o, *z) for z in zip(e[d, at:end].tolist(),
                                               s[d, at:end].tolist(),
                                               g[d, at:end].tolist())]
            most = max(most, end - at)
            at = -(-end // 8) * 8
    return sorted(got), most
  a, most = entries(whole, 1, None)
  b, least = entries(cut, k, None)
  assert a == b
  assert least <= spec.max_ids_per_partition // 2 < most


@pytest.mark.parametrize("wrong, says", [
    (lambda fs: sp.LimitsEstimator().save(), "saved to no file"),
    (lambda fs: sp.LimitsEstimator().apply(fs, SC, headroom=0), "headroom is 0"),
    (lambda fs: sp.LimitsEstimator().apply(fs, SC, headroom=float("nan")), "headroom is nan"),
    (lambda fs: sp.size_report(fs, "v6e:2x2", 0), "on 0 devices")])
def test_wrong_figures_are_named(wrong, says):
  fs = features(2)
  stack(fs)
  with pytest.raises(ValueError, match=says):
    wrong(fs)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"stacks": {}, "odd": 1}', '{"stacks": {"a": {"odd": 1}}}'])
def test_bad_profiles_are_refused(tmp_path, text):
  path = tmp_path / "profile.json"
  path.write_text(text)
  with pytest.raises(ValueError, match="is no profile"):
    sp.Profile.load(str(path))
