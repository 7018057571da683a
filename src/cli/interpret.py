"""`atoll run` with ATOLL_CHECK=interpret: every pallas_call also runs in JAX's interpret mode, and what differs is told.

Integers must be equal. Floats may differ by what the target's matrix unit rounds: a share of the largest value.
"""
import atexit
import functools
import inspect
import os
import runpy
import sys

import jax
import numpy as np
from jax.experimental import pallas as pl

SHARE = {"float32": 1e-2, "bfloat16": 2e-2, "float16": 1e-2, "float64": 1e-2}
native = pl.pallas_call
differing, compared = [], []


def place(kernel):
    while isinstance(kernel, functools.partial):
        kernel = kernel.func
    try:
        return f"{inspect.getsourcefile(kernel)}:{inspect.getsourcelines(kernel)[1]}"
    except (OSError, TypeError):
        return "?"


def tell(where, text):
    differing.append(where)
    print(f"atoll: interpret mode differs: {text}\n    kernel at {where}", file=sys.stderr, flush=True)


def compare(name, where, got, want):
    compared.append(name)
    for i, (g, w) in enumerate(zip(got, want)):
        g, w = np.asarray(g), np.asarray(w)
        share = SHARE.get(str(w.dtype), 0.1 if "float" in str(w.dtype) else None)
        if share is None:
            bad = g != w
        else:
            a, b = g.astype(np.float64), w.astype(np.float64)
            finite = np.isfinite(b)
            largest = np.abs(b[finite]).max() if finite.any() else 0
            bad = ~(np.isclose(a, b, rtol=share, atol=share * largest, equal_nan=True))
        if bad.any():
            at = tuple(int(d) for d in np.argwhere(bad)[0])
            tell(where, f"output {i} of {name}: {int(bad.sum())} of {bad.size} elements; first at {at}: {g[at]}, interpreted {w[at]}")


def checked(kernel, *args, **kwargs):
    run = native(kernel, *args, **kwargs)
    if kwargs.get("interpret"):
        return run
    slow = native(kernel, *args, **{**kwargs, "interpret": True})
    where = place(kernel)
    name = kwargs.get("name") or getattr(kernel, "__name__", "kernel")

    @functools.wraps(run)
    def call(*operands):
        got = run(*operands)
        try:
            want = slow(*operands)
        except Exception as e:  # interpret mode does not know all that the chip does
            print(f"atoll: {name} at {where} has no interpret mode: {type(e).__name__}: {str(e)[:200]}", file=sys.stderr)
            return got
        jax.debug.callback(functools.partial(compare, name, where), jax.tree.leaves(got), jax.tree.leaves(want))
        return got
    return call


def end():
    jax.effects_barrier()
    print(f"atoll: {len(compared)} kernel runs compared with interpret mode, {len(differing)} differences", file=sys.stderr)
    sys.stderr.flush()
    if differing:
        os._exit(1)


pl.pallas_call = checked
atexit.register(end)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")
