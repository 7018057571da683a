#!/usr/bin/env python3
"""SparseCore input preprocessing, interleaved with jax-tpu-embedding's C++ code.

  bench/sparsecore_input.py [--library build/release/libatoll.so] [--rounds 7]

26 tables of 1e5 to 1e6 rows, widths 16 to 128, batch 4096 with 1 to 30 ids of a bounded
Zipf distribution (1.05) a sample: 1.65 M ids, on four chips of four SparseCores. Both get the
same ragged arrays of NumPy arrays, take turns in one process, and minima are compared.
"""
import argparse
import os
import pathlib
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
TABLES, BATCH, DEVICES, CORES, MOST = 26, 4096, 4, 4, 30
ZIPF = 1.05


def workload(seed=0):
    """Rows, widths, and per table the ids of every sample."""
    import numpy as np
    r = np.random.default_rng(seed)
    rows = np.exp(r.uniform(np.log(1e5), np.log(1e6), TABLES)).astype(np.int64)
    rows = -(-rows // 256) * 256
    widths = np.resize([16, 32, 64, 128], TABLES)[r.permutation(TABLES)]
    batches = []
    for n in rows.tolist():
        lens = r.integers(1, MOST + 1, BATCH)
        s = 1 - ZIPF  # the inverse of the distribution, then spread over the rows
        rank = ((r.random(lens.sum()) * (n**s - 1) + 1) ** (1 / s)).astype(np.int64) - 1
        ids = (np.clip(rank, 0, n - 1) * 2654435761 + 12345) % n
        batches.append(np.split(ids.astype(np.int32), np.cumsum(lens)[:-1]))
    return rows, widths, batches


def specs(rows, widths, limit):
    import jax
    from jax_tpu_embedding.sparsecore.lib.nn import embedding, embedding_spec as es
    features = {}
    for t, (n, w) in enumerate(zip(rows, widths)):
        table = es.TableSpec(
            name=f"t{t}", vocabulary_size=int(n), embedding_dim=int(w),
            initializer=jax.nn.initializers.zeros, optimizer=es.AdagradOptimizerSpec(learning_rate=.01),
            combiner="sum", max_ids_per_partition=limit, max_unique_ids_per_partition=limit)
        features[f"f{t}"] = es.FeatureSpec(name=f"f{t}", table_spec=table, input_shape=(BATCH, MOST),
                                           output_shape=(BATCH, int(w)))
    embedding.prepare_feature_specs_for_training(features, global_device_count=DEVICES,
                                                 num_sc_per_device=CORES)
    return features


def compare(name, theirs, ours, ids, rounds):
    best, cpu = [float("inf")] * 2, [float("inf")] * 2
    for i in range(rounds + 1):
        for k, call in enumerate((theirs, ours)):
            wall, used = time.perf_counter(), time.process_time()
            kept = call(i + 1)
            wall, used = time.perf_counter() - wall, time.process_time() - used
            if i:  # the first round warms up
                best[k], cpu[k] = min(best[k], wall), min(cpu[k], used)
            del kept
    print(f"{name:18s} C++ {best[0] * 1e3:7.1f} ms ({cpu[0] * 1e3:6.1f} CPU)   "
          f"Atoll {best[1] * 1e3:7.1f} ms ({cpu[1] * 1e3:6.1f} CPU), "
          f"{ids / best[1] / 1e6:6.1f} M ids/s   ratio {best[0] / best[1]:.2f}")
    return best[0] / best[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--library", default=str(TOP / "build/release/libatoll.so"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=int, default=256, help="of a partition, with mini-batching")
    args = parser.parse_args()
    os.environ["ATOLL_LIBRARY"] = args.library
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.path.insert(0, str(TOP / "python"))
    import numpy as np
    try:
        from jax_tpu_embedding.sparsecore.lib.nn import embedding
    except ImportError:
        sys.exit("jax_tpu_embedding is absent\nhint: pip install jax_tpu_embedding==0.1.0")
    from atoll import sparsecore
    rows, widths, batches = workload()
    data, ids = {}, 0
    for t, samples in enumerate(batches):
        data[f"f{t}"] = np.empty(BATCH, object)
        data[f"f{t}"][:] = samples
        ids += sum(map(len, samples))
    print(f"{TABLES} tables, {rows.sum() / 1e6:.1f} M rows, batch {BATCH}, {ids / 1e6:.2f} M ids")

    def calls(features, minibatching):
        kw = dict(num_sc_per_device=CORES, enable_minibatching=minibatching)
        return [lambda n, m=m: m.preprocess_sparse_dense_matmul_input(
            data, None, features, DEVICES, DEVICES, batch_number=n, **kw)
            for m in (embedding, sparsecore)]

    features = specs(rows, widths, 65536)
    _, stats = calls(features, False)[0](1)
    embedding.update_preprocessing_parameters(features, stats, CORES)  # buffers as needed
    plain = compare("plain", *calls(features, False), ids, args.rounds)
    features = specs(rows, widths, args.limit)
    cut = compare("mini-batching", *calls(features, True), ids, args.rounds)
    print(f"ratios: plain {plain:.2f} (aim 2), mini-batching {cut:.2f} (aim 5)")


if __name__ == "__main__":
    main()
