"""Wrong inputs of atoll.sparsecore: each is an error that names what is wrong, and where."""

import numpy as np
import pytest

from atoll import sparsecore as sp


def specs(n=2, vocab=100, width=8, batch=32, **kw):
  tables = [sp.TableSpec(f"t{i}", vocab, width, **kw) for i in range(n)]
  fs = [sp.FeatureSpec(f"f{i}", t, (batch, 4)) for i, t in enumerate(tables)]
  sp.stack_tables(fs, global_device_count=2, num_sc_per_device=2)
  return fs


def run(fs, xs, weights=None, **kw):
  return sp.preprocess_sparse_dense_matmul_input(xs, weights, fs, 2, 2, num_sc_per_device=2, **kw)


OK = np.zeros((32, 4), np.int32)
ONES = np.ones((32, 4), np.float32)


def second(x, weights=None):
  """The second feature is wrong."""
  return lambda: run(specs(), [OK, x], None if weights is None else [ONES, weights])


def ragged(splits, ids=10, weights=None):
  return second(sp.Ragged(np.zeros(ids, np.int32), np.asarray(splits), weights))


def coo(rows, columns, values=None, **kw):
  return second(sp.Coo(np.asarray(rows), np.asarray(columns), values, batch_size=32))


def with_value(v):
  w = ONES.copy()
  w[3, 1] = v
  return w


WRONG = {
    "ids of floats": (second(OK * 0.5), "feature 'f1': ids must be integers, not float64"),
    "ids of booleans": (second(OK > 0), "feature 'f1': ids must be integers, not bool"),
    "ids of strings": (second(np.full((32, 4), "a")), "feature 'f1': ids must be integers"),
    "ids without rows": (second(np.array([None] * 32, object)), "feature 'f1': ids must be integers, not object"),
    "ids of three dimensions": (second(OK.reshape(32, 2, 2)), "feature 'f1': ids of rank 3"),
    "an id of 64 bits": (second(np.full((32, 4), 2**63, np.uint64)), "feature 'f1': id 9223372036854775808"),
    "an id over 31 bits": (second(np.full((32, 4), 2**31 + 5)), "table 't1', feature 'f1', sample 0: id 2147483653"),
    "an id below 0": (second(OK - 1), "table 't1', feature 'f1', sample 0: id -1 is outside 0..99"),
    "a feature too few": (lambda: run(specs(), [OK]), "2 features are specified, 1 given"),
    "a feature of another name": (lambda: run({"a": specs(1)[0]}, {"b": OK}), "feature 'a' is specified but not given"),
    "a feature too many": (lambda: run({"a": specs(1)[0]}, {"a": OK, "b": OK}), "feature 'b' is given but not specified"),
    "weights of another feature": (lambda: run({"a": specs(1)[0]}, {"a": OK}, {"b": ONES}), "weights of feature 'a' is"),
    "a batch that does not divide": (lambda: run(specs(), [OK[:30], OK[:30]]), r"batch size \(30\) must be divisible"),
    "a weight that is NaN": (second(OK, with_value(np.nan)), "feature 'f1', sample 3: the weight of id 0 is nan"),
    "a weight that is infinite": (second(OK, with_value(np.inf)), "feature 'f1', sample 3: the weight of id 0 is inf"),
    "weights that are 0": (lambda: run(specs(combiner="mean"), [OK, OK], [ONES, ONES * np.r_[0, np.ones(31)][:, None]]),
                           "feature 'f1', sample 0: combiner mean divides by what its 4 weights come to, 0"),
    "masked ids": (second(np.ma.array(OK, mask=True)), "feature 'f1': a masked array"),
    "a limit over 31 bits": (lambda: run(specs(1, max_ids_per_partition=2**40), [OK]), "per_partition is 1099511627776"),
    "a batch over 31 bits": (second(sp.Coo([0], [0], batch_size=2**40)), "'f1': a batch of 1099511627776 samples"),
    "weights of another shape": (second(OK, ONES[:, :3]), r"feature 'f1': ids \(32, 4\) but weights \(32, 3\)"),
    "complex weights": (second(OK, ONES * 1j), "feature 'f1': weights must be real"),
    "splits that run backward": (ragged([0, 5, 3] + [10] * 30), "sample 1: row splits run backward, 5 to 3"),
    "splits past the ids": (ragged([0] * 32 + [11]), "past the 10 ids"),
    "splits of floats": (ragged([0.5] * 33), "feature 'f1': indices must be integers, not float64"),
    "no splits": (ragged(np.zeros(0, np.int64)), r"feature 'f1': ragged ids \(10,\) with row splits \(0,\)"),
    "fewer weights than ids": (ragged([0] * 32 + [10], weights=np.ones(9)), "feature 'f1': 10 ids but 9 weights"),
    "a row below 0": (coo([-1], [0]), "feature 'f1': element 0 is of sample -1, of 32 samples"),
    "a row past the batch": (coo([32], [0]), "feature 'f1': element 0 is of sample 32"),
    "fewer columns than rows": (coo([1, 2], [0]), r"feature 'f1': raw COO with \(2,\) rows, \(1,\) columns"),
    "more values than ids": (coo([1, 2], [0, 1], np.ones(3)), r"feature 'f1': raw COO .*, \(3,\) values"),
    "rows of floats": (coo([0.5], [0]), "feature 'f1': indices must be integers"),
    "a sparse tensor's indices": (second(sp.SparseTensor(np.zeros((3, 3), int), np.zeros(3, int), (32, 4))),
                                  r"feature 'f1': a sparse tensor with indices \(3, 3\)"),
    "a sparse tensor's column": (second(sp.SparseTensor(np.array([[1, 9]]), np.zeros(1, int), (32, 4))),
                                 "feature 'f1', sample 1: column 9 of 4"),
    "a sparse tensor with weights": (second(sp.SparseTensor(np.array([[1, 0]]), np.zeros(1, int), (32, 4)), ONES),
                                     "feature 'f1': weights of a sparse tensor"),
    "a feature in no stack": (lambda: run([sp.FeatureSpec("f", sp.TableSpec("t", 10, 8), (32, 4))], [OK]),
                              "feature 'f' of table 't' is in no stack"),
    "more local devices than there are": (
        lambda: sp.preprocess_sparse_dense_matmul_input([OK], None, specs(1), 4, 2, num_sc_per_device=2),
        "4 local devices, 2 global devices"),
    "stacks of other SparseCores": (lambda: sp.Plan(specs(), 2, 2, 4),
                                    "stack 't0_t1' was made for 4 SparseCores, not for 2 devices of 4"),
    "three SparseCores": (
        lambda: sp.preprocess_sparse_dense_matmul_input([OK], None, specs(1), 1, 1, num_sc_per_device=3),
        "must be a power of 2"),
    "no SparseCores": (lambda: sp.stack_tables(specs(), global_device_count=2, num_sc_per_device=0),
                       "2 devices of 0 SparseCores"),
    "another sharding": (lambda: run(specs(), [OK, OK], sharding_strategy="DIV"), "'DIV': only MOD"),
    "another split": (lambda: run(specs(), [OK, OK], split="nothing"), "split 'nothing': one of"),
    "a limit of a sample below 0": (lambda: run(specs(), [OK, OK], max_ids_per_chip_per_sample=-1), "sample is -1"),
    "a limit of 0": (lambda: run(specs(max_ids_per_partition=0), [OK, OK]), "max_ids_per_partition 0"),
    "a buffer below 0": (lambda: specs(suggested_coo_buffer_size_per_device=-8), "table 't0': suggested_coo.* is -8"),
    "no vocabulary": (lambda: specs(vocab=0), "table 't0': vocabulary_size is 0"),
    "no width": (lambda: specs(width=0), "table 't0': embedding_dim is 0"),
    "another combiner": (lambda: specs(combiner="max"), "table 't0': combiner 'max' is none of sum, mean, sqrtn"),
    "levels from NaN": (lambda: sp.QuantizationConfig(float("nan"), 1.0, 256), "quantisation from nan"),
    "levels to infinity": (lambda: sp.QuantizationConfig(0.0, float("inf"), 256), "quantisation from 0.0 to inf"),
    "two and a half levels": (lambda: sp.QuantizationConfig(0.0, 1.0, 2.5), "num_buckets is 2.5"),
    "two tables of one name": (
        lambda: sp.stack_tables([sp.FeatureSpec("a", sp.TableSpec("t", 8, 8), (8, 1)),
                                 sp.FeatureSpec("b", sp.TableSpec("t", 9, 8), (8, 1))],
                                global_device_count=1, num_sc_per_device=2), "two tables are named 't'"),
    "an unknown chip": (lambda: sp.size_report(specs(), "v9z", 2), "no such machine: \"v9z\""),
    "a chip without SparseCores": (lambda: sp.size_report(specs(), "v5e", 1), "Only Megachip mode"),
    "a batch that does not divide over the chips": (lambda: sp.size_report(specs(), "v5p:2x2x1", 3), "must be divisible"),
    "an empty vocabulary to shuffle": (lambda: sp.IdShuffle(0), "a vocabulary of 0 ids"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_inputs_are_named(wrong):
  call, says = WRONG[wrong]
  with pytest.raises((ValueError, TypeError, sp.SparseCoreError), match=says):
    call()
  run(specs(), [OK, OK])  # nothing is left behind
