#!/usr/bin/env python3
"""What SparseCore programs take in memory: three claims, one command each.

  bench/sparsecore_memory.py serialised    1 to 7 tables one after the other: the peak falls, results stay bit-equal
  bench/sparsecore_memory.py narrow        100 M rows of one element: memory of this process beside the accounting
  bench/sparsecore_memory.py samples       mini-batches of samples: equal results from k-th parts of the buffers

TPU_LIBRARY_PATH names the library. Ends with 1 when a claim does not hold.
"""
import argparse
import functools
import os
import pathlib
import sys

os.environ.setdefault("JAX_PLATFORMS", "tpu,cpu")
os.environ.setdefault("ATOLL_TARGET", "v6e")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from atoll import sparsecore as sp
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_csr as csr
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_grad_with_adagrad as adagrad
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_grad_with_sgd as sgd
from sparsecore import wrapped

SCS = 2  # of a v6e
failures = []


def claim(text, holds):
    print(f"{'ok  ' if holds else 'FAIL'}  {text}")
    if not holds:
        failures.append(text)


def inputs(rng, rows, batch, most=8):
    """Bags of ids, wrapped for one chip."""
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, most + 1, batch))])
    ids = rng.integers(0, rows, offsets[-1])
    return ids, offsets, [jnp.asarray(b) for b in wrapped(rows, ids, offsets, SCS, batch)] + [jnp.int32(1)]


def serialised():
    rng, batch = np.random.default_rng(0), 256
    rows = [4096 * (i + 1) for i in range(7)]
    widths = [8, 16, 32, 64, 32, 16, 8]
    # Each table a stack of its own.
    features = [sp.FeatureSpec(f"f{i}", sp.TableSpec(f"t{i}", r, w, optimizer="adagrad", max_ids_per_partition=1024,
                                                     max_unique_ids_per_partition=1024), (batch, 8))
                for i, (r, w) in enumerate(zip(rows, widths))]
    sp.stack_tables(features, global_device_count=1, num_sc_per_device=SCS,
                    config=sp.SparsecoreConfig(disable_table_stacking=True))
    peaks = [sp.size_report(features, "v6e", 1, serialized_tables=n).peak_bytes for n in range(1, 8)]
    for n, p in enumerate(peaks, 1):
        print(f"  {n} serialised: peak {p:,} bytes")
    claim("the peak falls from 1 to 7", all(a > b for a, b in zip(peaks, peaks[1:])))
    batches = [inputs(rng, r, batch)[2] for r in rows]
    limits = dict(max_ids_per_partition=1024, max_unique_ids_per_partition=1024)
    tables = [rng.normal(size=(r, w)).astype(np.float32) for r, w in zip(rows, widths)]

    def step(tables, batches):
        new = []
        for i, (t, x) in enumerate(zip(tables, batches)):
            out = csr.tpu_sparse_dense_matmul_csr_primitive.bind(*x, t, device_batch_size=batch, **limits)
            new.append(adagrad.tpu_sparse_dense_matmul_grad_with_adagrad_primitive.bind(
                *x, t, jnp.full_like(t, .1), out, jnp.float32(.1), computation_name=f"a{i}", **limits))
        return new
    lowered, results = jax.jit(step).lower(tables, batches), []
    for n in range(1, 8):
        compiled = lowered.compile(compiler_options={"xla_sc_num_serialized_tables_to_optimize_hbm": str(n)})
        results.append(jax.tree.leaves(jax.device_get(compiled(tables, batches))))
    claim("results are bit-equal", all(np.array_equal(a, b) for r in results[1:] for a, b in zip(results[0], r)))


def status(field):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field))


def narrow():
    rng, rows, batch = np.random.default_rng(0), 100_000_000, 1024
    limits = dict(max_ids_per_partition=4096, max_unique_ids_per_partition=4096)
    device = jax.devices()[0]
    table_format = Format(Layout(major_to_minor=(0, 1), tiling=((8,),)), jax.sharding.SingleDeviceSharding(device))
    ids, offsets, x = inputs(rng, rows, batch)

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=(table_format, None))
    def step(table, x):
        out = csr.tpu_sparse_dense_matmul_csr_primitive.bind(*x, table, device_batch_size=batch, **limits)
        new = sgd.tpu_sparse_dense_matmul_grad_with_sgd_primitive.bind(
            *x, table, jnp.ones_like(out), jnp.float32(.5), computation_name="sgd", **limits)
        return new, out
    make = jax.jit(lambda: jnp.full((rows, 1), 2, jnp.float32), out_shardings=table_format)
    made, step = make.lower().compile(), step.lower(jax.ShapeDtypeStruct((rows, 1), jnp.float32, sharding=table_format),
                                                    x).compile()
    before = status("VmRSS")
    table = made()
    for _ in range(3):
        table, out = step(table, x)
    jax.block_until_ready((table, out))
    grown, peak = status("VmRSS") - before, status("VmHWM") - before
    counted = device.memory_stats()["bytes_in_use"]
    print(f"  the process grew by {grown / 1e6:.1f} MB, at most {peak / 1e6:.1f} MB; the chip counts {counted / 1e9:.3f} GB")
    claim("memory of the process <= 1.1 x 400 MB", max(grown, peak) <= 1.1 * 4 * rows)
    claim("the accounting shows 3.2 GB", abs(counted / 3.2e9 - 1) < .01)
    f = [sp.FeatureSpec("f", sp.TableSpec("t", rows, 1, optimizer="sgd", max_ids_per_partition=4096,
                                          max_unique_ids_per_partition=4096), (batch, 8))]
    sp.stack_tables(f, global_device_count=1, num_sc_per_device=SCS)
    report = sp.size_report(f, "v6e", 1)
    claim(f"so does the report: {report.table_bytes:,} bytes, {report.waste_bytes / report.table_bytes:.1%} padding",
          abs(report.table_bytes / 3.2e9 - 1) < .01)
    # A row that was asked for k times (gain k in all) has lost 1.5 k after three steps.
    some = np.unique(ids)[:1000]
    want = 2 - 1.5 * np.array([np.sum(ids == i) for i in some])
    at = some % SCS * (rows // SCS) + some // SCS
    claim("rows hold what they should", np.array_equal(np.asarray(table[jnp.asarray(at), 0]), want))


def samples():
    rng, batch, rows, width = np.random.default_rng(0), 1024, 20000, 32
    ids = rng.integers(0, rows, (batch, 8)).astype(np.int32)
    table = jnp.asarray(rng.normal(size=(rows + -rows % (8 * SCS), width)).astype(np.float32))

    def lookup(limit, **how):
        f = [sp.FeatureSpec("f", sp.TableSpec("t", rows, width, optimizer="sgd", max_ids_per_partition=limit,
                                              max_unique_ids_per_partition=limit), (batch, 8))]
        sp.stack_tables(f, global_device_count=1, num_sc_per_device=SCS)
        spec = next(iter(f)).table_spec.stacked_table_spec
        x, k, stats = sp.Plan(f, 1, 1, SCS, **how).run([ids])
        name = spec.stack_name
        arrays = [jnp.asarray(np.asarray(a[name]).reshape(-1)) for a in x]
        mini = bool(how)
        bind = functools.partial(csr.tpu_sparse_dense_matmul_csr_primitive.bind, device_batch_size=batch,
                                 max_ids_per_partition=limit, max_unique_ids_per_partition=limit,
                                 enable_minibatching=mini)
        out = jax.jit(lambda *a: bind(*a[:4], a[4], a[5]))(*arrays, jnp.int32(k), table)
        update = jax.jit(lambda *a: sgd.tpu_sparse_dense_matmul_grad_with_sgd_primitive.bind(
            *a[:4], a[4], a[5], a[6], jnp.float32(.1), computation_name="s", max_ids_per_partition=limit,
            max_unique_ids_per_partition=limit, enable_minibatching=mini))(*arrays, jnp.int32(k), table, out)
        size = sp.size_report(f, "v6e", 1)
        return np.asarray(out), np.asarray(update), int(k), size.forward_bytes

    out, new, _, whole = lookup(4096)
    for limit in (2048, 1024, 512):
        got, table_got, k, part = lookup(limit, enable_minibatching=True, split="sample")
        print(f"  limit {limit}: {k} mini-batches, buffers of a lookup {part:,} of {whole:,} bytes")
        claim("the lookup is equal", np.array_equal(out, got))
        claim("the update is equal", np.array_equal(new, table_got))
        claim(f"its buffers are at most 1/{k}", part * k <= whole)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["serialised", "narrow", "samples"])
    globals()[parser.parse_args().which]()
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
