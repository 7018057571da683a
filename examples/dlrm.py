#!/usr/bin/env python3
"""DLRM with jax-tpu-embedding on SparseCores: 26 embedding tables, synthetic clicks in the shape of Criteo's.

  examples/dlrm.py [--steps 100] [--batch 512] [--tables 26] [--rows 20000] [--width 32] [--sequential] [--check]

Ids follow Zipf's law; labels come from a hidden linear model over ids and dense features, so that there is something to
learn. The train step is written as a plain one; jax-tpu-embedding's auto_pipelining turns it into one whose lookups run
beside the dense part and see gradients that are two steps old. `--sequential` leaves it as it is. `--check` runs the
same training in plain JAX on the CPU (with the same delay) and compares every loss and the tables at the end.
Writes examples-out/dlrm.png.
"""
import argparse
import dataclasses
import functools
import inspect
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TOP = pathlib.Path(__file__).resolve().parents[1]
DENSE = 13


@dataclasses.dataclass
class Options:
    steps: int = 100
    batch: int = 512
    tables: int = 26
    rows: int = 20000
    width: int = 32
    hidden: int = 128
    bag: int = 6  # ids of one feature in one sample: 1 to this
    rate: float = 0.05
    sequential: bool = False


def zipf(rng, rows, count):
    """Ids whose popularity falls as 1 / rank, spread over the table."""
    rank = np.exp(rng.random(count) * np.log(rows)).astype(np.int64) - 1
    return (rank * 2654435761 % rows).astype(np.int32)


class Clicks:
    """Batches: ids per feature (ragged), dense features, labels."""

    def __init__(self, options):
        self.o, rng = options, np.random.default_rng(1)
        # A third of the tables are small, as Criteo's are.
        self.rows = [max(64, options.rows // (1, 4, 64)[i % 3]) for i in range(options.tables)]
        self.taste = [rng.normal(size=r).astype(np.float32) for r in self.rows]
        self.slope = rng.normal(size=DENSE).astype(np.float32)

    def batch(self, step):
        o, rng = self.o, np.random.default_rng([2, step])
        ids, score = [], np.zeros(o.batch, np.float32)
        for rows, taste in zip(self.rows, self.taste):
            lengths = rng.integers(1, o.bag + 1, o.batch)
            flat = zipf(rng, rows, int(lengths.sum()))
            ids.append(np.split(flat, np.cumsum(lengths)[:-1]))
            score += np.add.reduceat(taste[flat], np.concatenate([[0], np.cumsum(lengths)[:-1]])) / lengths
        dense = rng.normal(size=(o.batch, DENSE)).astype(np.float32)
        score = score / len(self.rows) ** 0.5 + dense @ self.slope / DENSE ** 0.5
        labels = (rng.random(o.batch) < 1 / (1 + np.exp(-score))).astype(np.float32)
        return ids, dense, labels


# ---- The dense part
def init_dense(o):
    sizes = {"bottom": (DENSE, o.hidden, o.width),
             "top": (o.width + (o.tables + 1) * o.tables // 2, o.hidden, o.hidden, 1)}
    rng, params = np.random.default_rng(3), {}
    for name, widths in sizes.items():
        params[name] = [((rng.normal(size=(a, b)) / a ** 0.5).astype(np.float32), np.zeros(b, np.float32))
                        for a, b in zip(widths, widths[1:])]
    return params


def mlp(layers, x):
    for i, (w, b) in enumerate(layers):
        x = x @ w + b
        x = jax.nn.relu(x) if i + 1 < len(layers) else x
    return x


def loss_fn(params, activations, dense, labels):
    """Products of all pairs of feature vectors, then the top layers."""
    bottom = mlp(params["bottom"], dense)
    vectors = jnp.stack([bottom, *activations], 1)
    pairs = jnp.einsum("bid,bjd->bij", vectors, vectors)
    i, j = np.tril_indices(vectors.shape[1], -1)
    logits = mlp(params["top"], jnp.concatenate([bottom, pairs[:, i, j]], 1))[:, 0]
    return jnp.mean(jnp.logaddexp(0, logits) - labels * logits)


def dense_step(params, activations, dense, labels, rate):
    loss, (grads, act_grads) = jax.value_and_grad(loss_fn, argnums=(0, 1))(params, activations, dense, labels)
    return loss, jax.tree.map(lambda p, g: p - rate * g, params, grads), act_grads


# ---- The whole, on SparseCores
def pipelined(train_step):
    """auto_pipelining donates the argument that is called `carry`, and looks for it in the signature of what it wraps,
    where the state is not yet in front. Said so, tables are updated where they are; otherwise each step copies them."""
    from jax_tpu_embedding.sparsecore.lib.auto_pipelining import auto_pipelining as pipe

    @functools.wraps(train_step)
    def step(carry, *batch):
        return train_step(carry, *batch)
    step.__signature__ = inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD)
                                            for n in ("state", "carry", "wrapped", "dense", "labels")])
    return pipe.auto_pipelining(step, out_shardings=None), pipe.init_state()


class Dlrm:
    def __init__(self, options):
        from jax_tpu_embedding.sparsecore.lib.nn import embedding, embedding_spec as es, table_stacking
        from jax_tpu_embedding.sparsecore.utils import utils
        o = self.o = options
        self.embedding, self.clicks = embedding, Clicks(o)
        devices = jax.devices()
        self.mesh = Mesh(np.array(devices), ("x",))
        self.shard = NamedSharding(self.mesh, P("x"))
        self.whole = NamedSharding(self.mesh, P())
        self.scs = utils.num_sparsecores_per_device(devices[0])
        ids_limit, unique_limit = self.limits(len(devices) * self.scs)
        self.features = {}
        for i, rows in enumerate(self.clicks.rows):
            table = es.TableSpec(vocabulary_size=rows, embedding_dim=o.width, name=f"table{i:02}", combiner="mean",
                                 initializer=jax.nn.initializers.normal(0.1),
                                 optimizer=es.AdagradOptimizerSpec(learning_rate=o.rate),
                                 max_ids_per_partition=ids_limit,
                                 max_unique_ids_per_partition=unique_limit)
            self.features[f"f{i:02}"] = es.FeatureSpec(table_spec=table, name=f"f{i:02}", input_shape=(o.batch, o.bag),
                                                       output_shape=(o.batch, o.width))
        if o.tables > 1:  # one stack, so one lookup and one update
            table_stacking.stack_tables(
                self.features, [f.table_spec.name for f in self.features.values()], global_device_count=len(devices),
                num_sc_per_device=self.scs, stack_to_max_ids_per_partition=lambda *_: ids_limit,
                stack_to_max_unique_ids_per_partition=lambda *_: unique_limit, stack_name="all")
        embedding.prepare_feature_specs_for_training(self.features, global_device_count=len(devices),
                                                     num_sc_per_device=self.scs)
        common = dict(feature_specs=self.features, global_device_count=len(devices), num_sc_per_device=self.scs)

        def mapped(function, operands, **more):
            return jax.shard_map(functools.partial(function, **common, **more), mesh=self.mesh, check_vma=False,
                                 in_specs=(P("x"),) * operands, out_specs=P("x"))
        # auto_pipelining wants one array of activations and one of gradients where it takes lookup and update apart:
        # features are cut out of them, and put together, beside.
        self.lookup = mapped(embedding.tpu_sparse_dense_matmul, 2, perform_unstacking=False)
        self.update = mapped(embedding.tpu_sparse_dense_matmul_grad, 3, perform_stacking=False)
        self.unstack = mapped(embedding.unstack_embedding_activations, 1)
        self.stack = mapped(embedding.stack_embedding_gradients, 1)
        self.stats = {"ids": 0, "unique": 0, "limit": unique_limit}

    def limits(self, cores):
        """Ids and different ids that a SparseCore sends to one other: what some batches need, and a quarter more."""
        most = np.zeros(2)
        for step in range(4):
            ids, _, _ = self.clicks.batch(step)
            counts = np.zeros((2, cores, cores))
            for i, f in enumerate(ids):
                for source, samples in enumerate(np.array_split(np.array(f, dtype=object), cores)):
                    pairs = np.unique([(s, x) for s, bag in enumerate(samples) for x in bag], axis=0)[:, 1]
                    for n, x in enumerate((pairs, np.unique(pairs))):
                        np.add.at(counts[n, source], (x + i * self.scs) % cores, 1)
            most = np.maximum(most, counts.max((1, 2)))
        return [int(np.ceil(1.25 * m / 8)) * 8 for m in most]

    def carry(self):
        tables = self.embedding.init_embedding_variables(
            jax.random.key(4), {f.table_spec.name: f.table_spec for f in self.features.values()},
            NamedSharding(self.mesh, P("x", None)), self.scs)
        return jax.device_put(init_dense(self.o), self.whole), tables

    def batch(self, step):
        ids, dense, labels = self.clicks.batch(step)
        wrapped, stats = self.embedding.preprocess_sparse_dense_matmul_input(
            {f"f{i:02}": np.array(x, dtype=object) for i, x in enumerate(ids)}, None, self.features, self.mesh.size,
            self.mesh.size, num_sc_per_device=self.scs, batch_number=step)
        self.stats["ids"] += sum(len(x) for f in ids for x in f)
        self.stats["unique"] = max(self.stats["unique"],
                                   max(int(np.max(v)) for v in stats.max_unique_ids_per_partition.values()))
        return jax.tree.map(lambda a: jax.device_put(a, self.shard), (wrapped, dense, labels))

    def train_step(self, carry, wrapped, dense, labels):
        params, tables = carry
        activations = self.lookup(wrapped, tables)
        loss, params, grads = self.dense_part(params, activations, dense, labels)
        return (params, self.update(grads, wrapped, tables)), loss

    def dense_part(self, params, activations, dense, labels):
        by_feature = self.unstack(activations)
        loss, params, grads = dense_step(params, list(by_feature.values()), dense, labels, self.o.rate)
        return loss, params, self.stack(dict(zip(by_feature, grads)))

    def train(self, report=lambda step, loss: None):
        """Losses by step, the carry at the end, seconds per step."""
        o, carry, losses, times = self.o, self.carry(), [], []
        if o.sequential:
            step_fn = jax.jit(self.train_step, donate_argnums=0)
        else:
            step_fn, state = pipelined(self.train_step)
        for step in range(o.steps):
            batch = self.batch(step)
            jax.block_until_ready((batch, carry))
            start = time.perf_counter()
            if o.sequential:
                carry, loss = step_fn(carry, *batch)
            else:
                state, (carry, loss) = step_fn(state, carry, *batch)
            jax.block_until_ready((carry, loss))
            times.append(time.perf_counter() - start)
            if loss is not None:  # the first call of a pipeline only looks up
                losses.append(float(loss))
                report(len(losses), losses[-1])
        if not o.sequential:
            _, (carry, last) = self.drain(step_fn, state, carry)
            losses.append(last)
            report(len(losses), last)
        return losses, carry, times

    def drain(self, step_fn, state, carry):
        """The epilogue: the last dense step and its update."""
        state, (carry, loss) = step_fn.finalize(state, carry)
        state, (carry, _) = step_fn.finalize(state, carry)
        return state, (carry, float(loss))

    # ---- Plain JAX
    def plain(self):
        """The same in plain JAX on the CPU: losses and whole tables. Pipelined, lookup t sees updates up to t - 2."""
        o, delay = self.o, 0 if self.o.sequential else 1
        start = self.carry()
        with jax.default_device(jax.devices("cpu")[0]):
            tables, sums = self.unstacked(start[1])
            params = jax.device_get(start[0])
            step = jax.jit(functools.partial(dense_step, rate=o.rate))
            losses, waiting = [], []

            @jax.jit
            def look(table, ids, bag, weight):
                return jax.ops.segment_sum(table[ids] * weight[:, None], bag, o.batch)

            @jax.jit
            def adagrad(table, total, grad, ids, bag, weight):
                g = jnp.zeros_like(table).at[ids].add(grad[bag] * weight[:, None])
                seen = jnp.zeros(len(table), bool).at[ids].set(True)[:, None]
                total = jnp.where(seen, total + g * g, total)
                return jnp.where(seen, table - o.rate * g / jnp.sqrt(total), table), total

            def apply(grads, flat):
                for i, (g, f) in enumerate(zip(grads, flat)):
                    tables[i], sums[i] = adagrad(tables[i], sums[i], g, *f)

            for t in range(o.steps):
                ids, dense, labels = self.clicks.batch(t)
                flat = []
                for f in ids:
                    lengths = np.array([len(x) for x in f])
                    bag = np.repeat(np.arange(o.batch, dtype=np.int32), lengths)
                    # Shapes repeat, so that nothing is compiled twice: id 0 with weight 0 fills up. It counts as
                    # seen then, which does not change a row whose gradient is zero.
                    room = o.batch * o.bag - len(bag)
                    flat.append((np.pad(np.concatenate(f), (0, room)), np.pad(bag, (0, room)),
                                 np.pad((1 / lengths[bag]).astype(np.float32), (0, room))))
                while len(waiting) > delay:
                    apply(*waiting.pop(0))
                activations = [look(table, *f) for table, f in zip(tables, flat)]
                loss, params, grads = step(params, activations, dense, labels)
                losses.append(float(loss))
                waiting.append((grads, flat))
            for w in waiting:
                apply(*w)
        return losses, [np.asarray(t) for t in tables]

    def unstacked(self, stacked):
        """Tables and Adagrad's sums by feature, as vocabulary times width: row r of a table is row r // N, behind the
        tables before it, of the SparseCore that the table's rotation gives."""
        cores, parts = self.mesh.size * self.scs, []
        for pick in (lambda v: v.table, lambda v: jax.tree.leaves(v.slot)[0]):
            whole = {k: np.asarray(pick(v)).reshape(cores, -1, self.o.width) for k, v in stacked.items()}
            parts.append([])
            for f, rows in zip(self.features.values(), self.clicks.rows):
                at, r = f.table_spec.setting_in_stack, np.arange(rows)
                parts[-1].append(whole[at.stack_name][(r + at.shard_rotation) % cores,
                                                      at.row_offset_in_shard + r // cores])
        return parts


def compare(model, losses, carry):
    """The largest relative difference of a loss, and the largest of a table's element."""
    want, tables = model.plain()
    got, _ = model.unstacked(carry[1])
    loss = max(abs(a - b) / abs(b) for a, b in zip(losses, want, strict=True))
    return loss, max(float(np.abs(np.asarray(a) - b).max()) for a, b in zip(got, tables))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for f in dataclasses.fields(Options):
        if f.type is not bool:
            parser.add_argument(f"--{f.name}", type=f.type, default=f.default)
    parser.add_argument("--sequential", action="store_true")
    parser.add_argument("--check", action="store_true", help="compare with plain JAX")
    args = vars(parser.parse_args())
    check = args.pop("check")
    sys.path.insert(0, str(TOP / "demo"))
    from common import banner, save_plot
    banner()
    model = Dlrm(Options(**args))
    o = model.o
    print(f"DLRM: {o.tables} tables, {sum(model.clicks.rows):,} rows of {o.width}, batch {o.batch}, "
          f"{model.mesh.size} x {model.scs} SparseCores, {'sequential' if o.sequential else 'pipelined'}")

    def report(step, loss):
        if step % max(1, o.steps // 10) == 0 or step == 1:
            print(f"  step {step:4d}  loss {loss:.4f}", flush=True)

    losses, carry, times = model.train(report)
    steady = sorted(times[3:] or times)
    print(f"  {1e3 * steady[len(steady) // 2]:.2f} ms a step (median), {model.stats['ids'] / o.steps:,.0f} ids a batch, "
          f"{model.stats['ids'] / o.steps / steady[len(steady) // 2] / 1e6:.1f} M ids/s; "
          f"at most {model.stats['unique']} different ids in a partition, limit {model.stats['limit']}")
    save_plot("examples-out/dlrm.png", "DLRM on synthetic clicks", {"loss": list(enumerate(losses, 1))})
    print("  plot: examples-out/dlrm.png")
    if check:
        loss, table = compare(model, losses, carry)
        print(f"  plain JAX: losses within {loss:.1e} (relative), tables within {table:.1e}")
        if loss > 1e-5:
            sys.exit("the losses differ")


if __name__ == "__main__":
    main()
