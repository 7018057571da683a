#!/usr/bin/env python3
"""Records update programs of the installed jax-tpu-embedding, for tests that run without that version.

usage: tools/sparsecore_record.py OUT.npz          (TPU_LIBRARY_PATH names the library, JAX_PLATFORMS=tpu,cpu)

Each program is the StableHLO that JAX hands to the compiler, with its arguments and results. Results are recorded only
when they have the bits of NumPy's evaluation (test/e2e/test_sparsecore_bits.py). The package's version is in the file:
0.2.0 needs Python 3.12, clips tables (embedding_var_limits) and takes custom optimizers as StableHLO.
"""
import importlib.metadata
import pathlib
import sys

import numpy as np

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "test" / "e2e"))
import test_sparsecore_bits as bits  # noqa: E402
from jax import numpy as jnp  # noqa: E402
from jax_tpu_embedding.sparsecore.lib.nn import embedding_spec as es  # noqa: E402


def normalised(g, table, state, rate):
    state = state + g * g
    return table - rate * g / (jnp.sqrt(state) + 1), state


def cases():
    for name, kind in bits.OPTIMIZERS.items():
        for minibatching in (False, True):
            yield f"{name}-{'mini' if minibatching else 'whole'}", kind(learning_rate=bits.RATES["divided"]), None, minibatching
            yield f"{name}-{'mini' if minibatching else 'whole'}-clipped", kind(learning_rate=0.1), (-0.25, 0.75), minibatching
    zeros = bits.jax.nn.initializers.zeros
    for limits in (None, (0.6, None), (None, 0.9)):
        custom = es.CustomOptimizerSpec(learning_rate=0.1, custom_computation_fn=normalised, short_name_str="normalised",
                                        slot_variable_initializers_tuple=(zeros,))
        yield f"custom-{limits}", custom, limits, False
        yield f"custom-{limits}-mini", custom, limits, True


def without_garbage(args, cores, minibatching):
    """What the preprocessing leaves uninitialised behind the ids is set."""
    g, pointers, ids, samples, gains, count, *rest = map(np.array, args)
    blocks = cores * (int(count.reshape(-1)[0]) if minibatching else 1)
    size = max(cores, 8)
    pointers[blocks * size:] = 0
    ends = pointers[:blocks * size].reshape(blocks, size).max(axis=1)
    width = len(ids) if minibatching else len(ids) // cores
    for k, end in enumerate([ends.max()] if minibatching else ends):
        tail = slice(k * width + -(-int(end) // 8) * 8, (k + 1) * width)
        ids[tail], samples[tail], gains[tail] = 2**31 - 1, 2**31 - 1, np.nan
    return [g, pointers, ids, samples, gains, count, *rest]


def main():
    out, recorded = pathlib.Path(sys.argv[1]), {}
    for name, optimizer, limits, minibatching in cases():
        step = bits.Step(optimizer, 8, 16, limits=limits, minibatching=minibatching)
        want, got, args, text = bits.compare(step, optimizer, 5, np.random.default_rng(len(recorded)))
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g.view(np.int32), w.view(np.int32), name)
        recorded[f"{name}/text"] = np.frombuffer(text.encode(), np.uint8)
        for i, a in enumerate(without_garbage(args, step.cores, minibatching)):
            recorded[f"{name}/in{i}"] = a
        for i, g in enumerate(got):
            recorded[f"{name}/out{i}"] = g
        print(name, flush=True)
    recorded["version"] = np.array(importlib.metadata.version("jax_tpu_embedding"))
    np.savez_compressed(out, **recorded)


if __name__ == "__main__":
    main()
