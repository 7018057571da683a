"""SparseCore input: the bytes of jax-tpu-embedding's C++ preprocessing on random
configurations, limits against a count in NumPy, forms against each other."""

import numpy as np
import pytest

from atoll import sparsecore as sp

CONFIGS = 200


def package():
  pytest.importorskip("jax_tpu_embedding", reason="jax_tpu_embedding is absent")
  from jax_tpu_embedding.sparsecore.lib.nn import embedding
  from jax_tpu_embedding.sparsecore.lib.nn import embedding_spec
  from jax_tpu_embedding.sparsecore.lib.nn import table_stacking
  return embedding, embedding_spec, table_stacking


class Config:
  """One configuration and its batch, all from the seed."""

  def __init__(self, seed):
    embedding, es, table_stacking = package()
    r = self.rng = np.random.default_rng(seed)
    self.sc = int(r.choice([2, 4]))
    self.devices = int(r.choice([1, 2, 4, 8]))
    self.minibatching = bool(r.random() < .4)
    self.local = self.devices if self.minibatching or r.random() < .7 else max(
        1, self.devices // 2)
    self.dropping = bool(r.random() < .5)
    self.n = self.devices * self.sc
    part = self.devices * self.sc
    self.form = str(r.choice(["dense", "ragged", "sparse"]))
    self.weighted = self.form != "sparse" and bool(r.random() < .5)
    stacking = str(r.choice(["none", "auto", "manual"]))
    combiner = str(r.choice(["sum", "mean", "sqrtn"]))
    limit = int(r.choice([1, 3, 8, 17, 40, 200, 1000]))
    unique = max(1, int(limit * r.choice([.3, .7, 1, 2])))
    self.features, dims = [], int(r.choice([5, 8, 16]))
    for t in range(int(r.integers(1, 5))):
      table = es.TableSpec(
          name=f"t{t}", vocabulary_size=int(np.exp(r.uniform(0, 9))) + 1,
          embedding_dim=dims, initializer=None,
          optimizer=es.SGDOptimizerSpec(), combiner=combiner,
          max_ids_per_partition=limit, max_unique_ids_per_partition=unique)
      for f in range(int(r.integers(1, 4))):
        batch = part * int(r.integers(1, 9)) * int(r.choice([1, 1, 4]))
        self.features.append(es.FeatureSpec(
            name=f"f{t}_{f}", table_spec=table, input_shape=(batch, 4),
            output_shape=(batch, dims)))
    names = list(dict.fromkeys(f.table_spec.name for f in self.features))
    if stacking == "manual" and len(names) > 1:
      table_stacking.stack_tables(
          self.features, names[:-1], self.devices, self.sc,
          rotation=int(r.integers(0, self.n)),
          stack_to_max_ids_per_partition=lambda *_: limit,
          stack_to_max_unique_ids_per_partition=lambda *_: unique)
    elif stacking == "auto":
      embedding.auto_stack_tables(
          self.features, self.devices, self.sc,
          stack_to_max_ids_per_partition=lambda *_: limit,
          stack_to_max_unique_ids_per_partition=lambda *_: unique)
    embedding.prepare_feature_specs_for_training(
        self.features, self.devices, self.sc)
    self.kwargs = dict(num_sc_per_device=self.sc,
                       allow_id_dropping=self.dropping,
                       enable_minibatching=self.minibatching)
    self.make_batch()

  def limits(self, **kw):
    """Sets limits of every stack."""
    done = {}
    for f in self.features:
      s = f.table_spec.stacked_table_spec
      new = {k: v[s.stack_name] if isinstance(v, dict) else v
             for k, v in kw.items()}
      done.setdefault(s.stack_name, s.replace(**new))
      f.table_spec.stacked_table_spec = done[s.stack_name]

  def make_batch(self):
    r, self.ids, self.gains = self.rng, [], []
    most = int(r.choice([1, 4, 30]))
    for f in self.features:
      rows = f.input_shape[0] * self.local // self.devices
      lens = (np.full(rows, most) if self.form == "dense"
              else r.integers(0, most + 1, rows))
      skew = r.choice([1, 3])
      v = f.table_spec.vocabulary_size
      self.ids.append([
          (v * r.random(n) ** skew).astype(np.int32) for n in lens])
      self.gains.append([r.uniform(.1, 2, n).astype(np.float32) for n in lens])

  def arrays(self, rows):
    if self.form == "dense":
      return [np.stack(x) for x in rows]
    out = []
    for x in rows:
      a = np.empty(len(x), dtype=object)
      a[:] = x
      out.append(a)
    return out

  def sparse(self):
    index = [np.array([(i, j) for i, x in enumerate(rows) for j in
                       range(len(x))], np.int64).reshape(-1, 2)
             for rows in self.ids]
    values = [np.concatenate(rows).astype(np.int32) for rows in self.ids]
    return index, values, [np.array([len(rows), 30]) for rows in self.ids]

  def run(self, m, **kw):
    """Through the module `m`: ours or the package's."""
    where = self.features, self.local, self.devices
    if self.form == "sparse":
      return m.preprocess_sparse_dense_matmul_input_from_sparse_tensor(
          *self.sparse(), *where, **self.kwargs, **kw)
    return m.preprocess_sparse_dense_matmul_input(
        self.arrays(self.ids),
        self.arrays(self.gains) if self.weighted else None, *where,
        **self.kwargs, **kw)


def defined(c, pointers, coo, minibatches):
  """Which elements of a device's buffers mean something."""
  mask, at, block = np.zeros(coo, bool), 0, max(c.n, 8)
  for k in range(c.sc):
    limit = coo if c.minibatching else (k + 1) * coo // c.sc
    base = 0 if c.minibatching else k * coo // c.sc
    at = at if c.minibatching else base
    for m in range(minibatches):
      start = (k * minibatches + m) * block
      for end in pointers[start:start + c.n]:
        aligned = min(-(-(base + end) // 8) * 8, limit)
        mask[at:aligned] = True
        at = aligned
  return mask


def compare(c, theirs, ours):
  (their, their_stats), (our, our_stats) = theirs, ours
  np.testing.assert_array_equal(their.num_minibatches, our.num_minibatches)
  m = int(our.num_minibatches[0])
  used = max(c.n, 8) * m * c.sc
  for s, pointers in our.sparse_dense_matmul_input.lhs_row_pointers.items():
    for field in ("max_ids_per_partition", "max_unique_ids_per_partition",
                  "required_buffer_size_per_sc", "id_drop_counters"):
      np.testing.assert_array_equal(
          np.ravel(getattr(their_stats, field)[s]),
          np.ravel(getattr(our_stats, field)[s]), err_msg=f"{field} of {s}")
    a = np.asarray(their.lhs_row_pointers[s]).reshape(c.local, -1)
    b = pointers.reshape(c.local, -1)
    assert a.shape == b.shape
    np.testing.assert_array_equal(a[:, :used], b[:, :used])
    parts = our.sparse_dense_matmul_input
    for x, y in ((their.lhs_embedding_ids[s], parts.lhs_embedding_ids[s]),
                 (their.lhs_sample_ids[s], parts.lhs_sample_ids[s]),
                 (their.lhs_gains[s], parts.lhs_gains[s])):
      x = np.asarray(x).reshape(c.local, -1).view(np.int32)
      y = y.reshape(c.local, -1).view(np.int32)
      assert x.shape == y.shape
      for d in range(c.local):
        mask = defined(c, b[d], y.shape[1], m)
        np.testing.assert_array_equal(x[d][mask], y[d][mask])


def count(c):
  """Per stack: ids and unique ids by (source core, partition), from the batch
  alone: split over cores, merged by (row, col), rotated, counted."""
  cores = c.local * c.sc
  seen = {}
  for f, rows in zip(c.features, c.ids):
    t, part = f.id_transformation, len(rows) // cores
    stack = seen.setdefault(f.table_spec.stacked_table_spec.stack_name,
                            [[set() for _ in range(c.n)] for _ in range(cores)])
    for i, x in enumerate(rows):
      for id_ in set(x.tolist()):
        owner = (id_ + t.col_shift) % c.n
        stack[i // part][owner].add((f.name, i, f.table_spec.name, id_))
  ids = {s: np.array([[len(p) for p in core] for core in v])
         for s, v in seen.items()}
  unique = {s: np.array([[len({x[2:] for x in p}) for p in core] for core in v])
            for s, v in seen.items()}
  return ids, unique


def prepared(seed):
  """A configuration that the package takes: where it would end the process for
  ids over the limits, the limits are those of the batch."""
  c = Config(seed)
  if not c.dropping:
    try:
      ours = c.run(sp)
    except sp.SparseCoreError:
      ids, unique = count(c)
      c.limits(max_ids_per_partition={s: int(x.max()) or 1
                                      for s, x in ids.items()},
               max_unique_ids_per_partition={s: int(x.max()) or 1
                                             for s, x in unique.items()})
      ours = c.run(sp)
  else:
    ours = c.run(sp)
  if c.rng.random() < .4:
    need = {s: max(8, int(np.max(x)) * c.sc) for s, x in
            ours[1].required_buffer_size_per_sc.items()}
    if c.dropping and c.rng.random() < .5:
      need = {s: max(8, x // 2) for s, x in need.items()}
    embedding = package()[0]
    most = {f.table_spec.stacked_table_spec.stack_name:
            embedding.compute_theoretical_max_coo_buffer_size(
                f.table_spec.stacked_table_spec.max_ids_per_partition,
                c.devices, c.sc, c.minibatching) for f in c.features}
    c.limits(suggested_coo_buffer_size_per_device={
        s: min(x, most[s]) for s, x in need.items()})
    try:
      ours = c.run(sp)
    except sp.SparseCoreError:  # mini-batches take more padding
      c.limits(suggested_coo_buffer_size_per_device=None)
      ours = c.run(sp)
  return c, ours


def test_bytes_of_the_package():
  embedding = package()[0]
  kinds = dict.fromkeys(("minibatches", "dropped", "truncated", "dense",
                         "ragged", "sparse", "weighted", "stacked"), 0)
  for seed in range(CONFIGS):
    c, ours = prepared(seed)
    try:
      compare(c, c.run(embedding), ours)
    except AssertionError as e:
      raise AssertionError(f"configuration {seed}") from e
    kinds[c.form] += 1
    kinds["weighted"] += c.weighted
    kinds["minibatches"] += int(ours[0].num_minibatches[0]) > 1
    kinds["dropped"] += sum(ours[1].id_drop_counters.values()) > 0
    kinds["stacked"] += any(f.id_transformation.col_offset for f in c.features)
    kinds["truncated"] += any(
        f.table_spec.stacked_table_spec.suggested_coo_buffer_size_per_device
        is not None for f in c.features)
  print(kinds)
  assert all(v >= 10 for v in kinds.values()), kinds


def test_limits_equal_a_count():
  for seed in range(60):
    c = Config(10_000 + seed)
    c.kwargs.update(allow_id_dropping=True)
    _, stats = c.run(sp)
    ids, unique = count(c)
    for s in ids:
      top = lambda x: x.reshape(c.local, c.sc, c.n).max(1).ravel()
      np.testing.assert_array_equal(stats.max_ids_per_partition[s], top(ids[s]))
      np.testing.assert_array_equal(stats.max_unique_ids_per_partition[s],
                                    top(unique[s]))
      np.testing.assert_array_equal(stats.required_buffer_size_per_sc[s],
                                    (-(-ids[s] // 8) * 8).sum(1))


def same(a, b, c):
  compare(c, (_Flat(a[0]), a[1]), b)


class _Flat:
  """Our result with the package's attribute names."""

  def __init__(self, x):
    self.num_minibatches = x.num_minibatches
    self.__dict__.update(x.sparse_dense_matmul_input._asdict())


def test_forms_agree():
  """int64 ids, row splits and raw COO in any order give what ragged rows give."""
  for seed in range(40):
    c = Config(20_000 + seed)
    c.kwargs.update(allow_id_dropping=True)
    c.form = "ragged"
    want = c.run(sp)
    where = c.features, c.local, c.devices
    run = lambda xs: sp.preprocess_sparse_dense_matmul_input(
        xs, None, *where, **c.kwargs)
    gains = c.gains if c.weighted else [None] * len(c.ids)
    splits = [np.cumsum([0] + [len(x) for x in rows]) for rows in c.ids]
    flat = [np.concatenate(rows) for rows in c.ids]
    flat_gains = [None if g is None else np.concatenate(g) for g in gains]
    same(want, run([sp.Ragged(i.astype(np.int64), s, g) for i, s, g in
                    zip(flat, splits, flat_gains)]), c)
    coo = []
    for i, s, g in zip(flat, splits, flat_gains):
      # Any order of samples; ids of one sample keep theirs.
      row = np.repeat(np.arange(len(s) - 1), np.diff(s))
      place = np.argsort(c.rng.permutation(len(s) - 1)[row], kind="stable")
      coo.append(sp.Coo(row[place], i[place], None if g is None else g[place],
                        batch_size=len(s) - 1))
    same(want, run(coo), c)
    wide = [[x.astype(np.int64) for x in rows] for rows in c.ids]
    same(want, sp.preprocess_sparse_dense_matmul_input(
        c.arrays(wide), c.arrays(c.gains) if c.weighted else None, *where,
        **c.kwargs), c)
