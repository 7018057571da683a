"""`atoll run` with ATOLL_CHECK=interpret: every pallas_call also runs in JAX's interpret mode, and what differs is told.

Integers must be equal. Floats may differ by what the target's matrix unit rounds: a share of the largest value.
tools/pallas_interpret.py compares the kernels of JAX's tests with the functions that stand here.
"""
import atexit
import functools
import inspect
import json
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


def differences(got, want, share):
    """Where two arrays differ: integers at all, floats by more than a share of the largest value."""
    if share is None:
        return got != want
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    largest = np.abs(b[finite]).max() if finite.any() else 0
    return ~np.isclose(a, b, rtol=share, atol=share * largest, equal_nan=True)


def share_of(dtype, shares=SHARE):
    return shares.get(str(dtype), 0.1 if "float" in str(dtype) else None)


def compare(name, where, got, want):
    compared.append(name)
    for i, (g, w) in enumerate(zip(got, want)):
        g, w = np.asarray(g), np.asarray(w)
        bad = differences(g, w, share_of(w.dtype))
        if bad.any():
            at = tuple(int(d) for d in np.argwhere(bad)[0])
            differing.append(where)
            text = (f"interpret mode differs: output {i} of {name}: {int(bad.sum())} of {bad.size} elements; "
                    f"first at {at}: {g[at]}, interpreted {w[at]}")
            print(f"atoll: {text}\n    kernel at {where}", file=sys.stderr, flush=True)
            note(name, where, text)


def note(name, where, text):
    """A finding for `atoll check`, as the runtime writes them (base/finding.h)."""
    path = os.environ.get("ATOLL_FINDINGS")
    if path:
        line = {"level": "error", "stage": "run", "code": "UNKNOWN", "message": f"kernel {name}: {text}\nat: {where}"}
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")


def unknown(name, where, e):
    print(f"atoll: {name} at {where} has no interpret mode: {type(e).__name__}: {str(e)[:200]}", file=sys.stderr)


def lower(f, operands):
    """What interpret mode does not know is found when it is lowered: here, and not inside a larger program."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), jax.numpy.result_type(x)), operands)
    jax.jit(f).lower(*shapes)


def with_interpreter(modes, told, missing):
    """pallas_call that also runs each kernel in the first of `modes` that knows all that it does.

    told(name, where, outputs, interpreted outputs) hears of each run, missing(name, where, error) of each kernel without.
    """
    def checked(kernel, *args, **kwargs):
        run = native(kernel, *args, **kwargs)
        if kwargs.get("interpret"):
            return run
        where = place(kernel)
        name = kwargs.get("name") or getattr(kernel, "__name__", "kernel")

        @functools.wraps(run)
        def call(*operands):
            got = run(*operands)
            for mode in modes:
                try:
                    slow = native(kernel, *args, **{**kwargs, "interpret": mode})
                    lower(slow, operands)
                    want = slow(*operands)
                    break
                except Exception as e:  # interpret mode does not know all that the chip does
                    error = e
            else:
                missing(name, where, error)
                return got
            jax.debug.callback(functools.partial(told, name, where), jax.tree.leaves(got), jax.tree.leaves(want))
            return got
        return call
    return checked


def end():
    jax.effects_barrier()
    print(f"atoll: {len(compared)} kernel runs compared with interpret mode, {len(differing)} differences", file=sys.stderr)
    sys.stderr.flush()
    if differing:
        os._exit(1)


if __name__ == "__main__":
    pl.pallas_call = with_interpreter([True], compare, unknown)
    atexit.register(end)
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")
