#!/usr/bin/env python3
"""What the TPU compiler estimates for the kernels of SparseCores, for data/tpu/sparsecore_rows.json.

    tools/sparsecore_rows.py collect [--target=v5p]   asks libtpu, with a Python that has it, jax and jax-tpu-embedding;
                                                      goes on where an earlier run stopped. No chip is needed.
    tools/sparsecore_rows.py fit                      the cycles of a launch, and bytes a tile moves per cycle beyond it

Each program is a training step over tables that are not stacked, so that its kernels tell by their shapes whose they are.
No test starts libtpu.
"""
import argparse
import functools
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS = os.path.join(ROOT, "data", "tpu", "sparsecore_rows.json")
CORES, TILES = {"v5p": 4, "v6e": 2}, 16
TOPOLOGIES = {"v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
# Per program: (optimizer, samples of all devices, [(width, ids of a partition)]).
PROGRAMS = {
    "adagrad": ("adagrad", 4096, [(8, 512), (16, 256), (32, 2048), (64, 1024), (128, 256), (128, 1024), (256, 512)]),
    "sgd": ("sgd", 8192, [(8, 2048), (32, 256), (32, 512), (64, 4096), (128, 2048)]),
    "adam": ("adam", 2048, [(16, 1024), (32, 1024), (64, 256), (128, 512)]),
}


def read():
    if not os.path.exists(ROWS):
        return {}
    with open(ROWS, encoding="utf-8") as f:
        return json.load(f)


def write(rows):
    with open(ROWS + ".new", "w", encoding="utf-8") as f:
        json.dump(rows, f, indent=1, sort_keys=True)
        f.write("\n")
    os.replace(ROWS + ".new", ROWS)


# ---- One program, in a process of its own
def step_of(target, optimizer, batch, tables):
    import jax
    import numpy as np
    from jax import numpy as jnp
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from jax_tpu_embedding.sparsecore.lib.nn import embedding, embedding_spec as es
    from jax_tpu_embedding.sparsecore.utils import utils
    devices = topologies.get_topology_desc(TOPOLOGIES[target], platform="tpu").devices
    mesh, n, cores = Mesh(np.array(devices), ("x",)), len(devices), CORES[target]
    specs = {"sgd": es.SGDOptimizerSpec, "adagrad": es.AdagradOptimizerSpec, "adam": es.AdamOptimizerSpec}
    features = {}
    for i, (width, ids) in enumerate(tables):
        t = es.TableSpec(vocabulary_size=1 << 18, embedding_dim=width, initializer=jax.nn.initializers.zeros, name=f"t{i}", combiner="sum",
                         optimizer=specs[optimizer](learning_rate=.01), max_ids_per_partition=ids, max_unique_ids_per_partition=ids)
        features[f"f{i}"] = es.FeatureSpec(table_spec=t, input_shape=(batch, 16), output_shape=(batch, width), name=f"f{i}")
    embedding.prepare_feature_specs_for_training(features, global_device_count=n, num_sc_per_device=cores)
    stacks = embedding.get_stacked_table_specs(features)
    cut, rows = NamedSharding(mesh, P("x")), utils.embedding_table_format(mesh, P("x"))

    def arrays(dtype, size):
        return {name: jax.ShapeDtypeStruct((size(s),), dtype, sharding=cut) for name, s in stacks.items()}

    def ids(s):
        return s.max_ids_per_partition * cores * n * cores * n
    pointers = arrays(jnp.int32, lambda s: max(n * cores, 8) * cores * n)
    given = embedding.PreprocessedInput(
        embedding.SparseDenseMatmulInput(pointers, arrays(jnp.int32, ids), arrays(jnp.int32, ids), arrays(jnp.float32, ids)),
        jax.ShapeDtypeStruct((n,), jnp.int32, sharding=cut))

    def variables(s):
        x = jax.ShapeDtypeStruct((s.stack_vocab_size, s.stack_embedding_dim), jnp.float32, sharding=rows)
        slots = s.optimizer.slot_variables_initializers()
        values = (x,) * len(slots)
        return embedding.EmbeddingVariables(x, type(slots)(*values) if hasattr(slots, "_fields") else values)
    state = {name: variables(s) for name, s in stacks.items()}
    options = dict(feature_specs=features, global_device_count=n, num_sc_per_device=cores)
    first = {"step": jnp.int32(1)} if optimizer == "adam" else {}
    shard_map = functools.partial(jax.shard_map, mesh=mesh, out_specs=P("x"), check_vma=False)
    look_up = shard_map(functools.partial(embedding.tpu_sparse_dense_matmul, **options), in_specs=(P("x"), P("x")))
    update = shard_map(functools.partial(embedding.tpu_sparse_dense_matmul_grad, **options, **first), in_specs=(P("x"), P("x"), P("x")))

    def step(given, state):
        found = look_up(given, state)
        return update(jax.tree.map(lambda x: x * 2, found), given, state)
    form = jax.tree.map(lambda _: rows, state)
    return jax.jit(step, donate_argnums=1, out_shardings=form).trace(given, state).lower(lowering_platforms=("tpu",))


def kernels_of(text):
    """[[name, cycles, shape]] of what runs on SparseCores and has an estimate, without numbers of instances."""
    found = set()
    for line in text.splitlines():
        cycles, m = re.search(r'estimated_cycles":"?(\d+)', line), re.match(r"\s+(?:ROOT )?%(\S+) = (.*?) ([\w\-]+)\(", line)
        shapes = m and re.findall(r"\w+\[[^\]]*\]", re.sub(r"\{[^{}]*\}", "", m[2]))
        if cycles and shapes and int(cycles[1]):
            found.add((re.sub(r"[.\d]+(clone)?[.\d]*$", "", m[1]), int(cycles[1]), shapes[0]))
    return sorted(map(list, found))


def ask(target, name):
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(JAX_PLATFORMS="cpu", TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1", TPU_WORKER_ID="0",
                          TPU_WORKER_HOSTNAMES="localhost", TPU_ACCELERATOR_TYPE=target + "-8",
                          LIBTPU_INIT_ARGS=f"--xla_jf_dump_to={folder} --xla_jf_dump_hlo_text=true")
        os.environ.pop("TPU_LIBRARY_PATH", None)
        step_of(target, *PROGRAMS[name]).compile()
        text = ""
        for path in glob.glob(folder + "/*-TLP-hlo.txt"):
            with open(path, encoding="utf-8") as f:
                text += f.read()
    # Only computations of the SparseCores' thread.
    parts = re.findall(r"^%\S+ \(.*?^\}, execution_thread=\"sparsecore\"", text, re.M | re.S)
    print(json.dumps(kernels_of("\n".join(parts))))


def collect(a):
    for name in PROGRAMS:
        rows = read()
        if name in rows.get(a.target, {}):
            continue
        done = subprocess.run([sys.executable, __file__, "ask", f"--target={a.target}", name], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{name}: no estimates ({done.returncode})")
            continue
        rows.setdefault(a.target, {})[name] = json.loads(done.stdout.splitlines()[-1])
        write(rows)
        print(name, len(rows[a.target][name]), "kernels", flush=True)


# ---- What they say
MOVES = {"gather_for_optimizer": 1, "gathered_gradient_vectors": 1, "accumulated_gradient_vectors_tuple": 2}


def fit(_):
    """Per chip: the cycles of the least kernel, and per kernel how many bytes beyond that a tile moves per cycle."""
    for target, programs in read().items():
        rows = [row for kernels in programs.values() for row in kernels]
        launch, rates = min(cycles for _, cycles, _ in rows), {}
        print(f"{target}: a kernel that does next to nothing takes {launch} cycles")
        for name, cycles, shape in rows:
            size = re.match(r"f32\[<=(\d+),(\d+)\]", shape)
            if size and name in MOVES:
                rates.setdefault(name, []).append(MOVES[name] * int(size[1]) * int(size[2]) * 4 / TILES / (cycles - launch))
        for name, of in sorted(rates.items()):
            of.sort()
            print(f"  {name}: {len(of)} kernels, {of[0]:.1f} to {of[-1]:.1f} bytes a cycle, median {of[len(of) // 2]:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collect", "ask", "fit"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("--target", default="v5p", choices=list(TOPOLOGIES))
    a = parser.parse_intermixed_args()
    if a.what == "ask":
        ask(a.target, a.name)
    else:
        {"collect": collect, "fit": fit}[a.what](a)


if __name__ == "__main__":
    main()
