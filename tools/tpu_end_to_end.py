#!/usr/bin/env python3
"""Totals of whole programs: `atoll estimate` from their source against the TPU compiler.

    tools/tpu_end_to_end.py PROGRAMS.py ESTIMATES.json BUILD_DIR

PROGRAMS.py defines PROGS: name -> (text, builder of (function, arguments)).
ESTIMATES.json is what tools/fit_tpu.py reads. BUILD_DIR holds the `atoll` command.
Nothing is fitted here: kernels, grids and places of operands are Atoll's own.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

DEVICES = 4
SHARDED = ("ag_", "ar_", "rs_", "a2a_", "cp_", "dp_", "fsdp_", "tp_")


def lower(path, wanted, folder):
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    import jax
    import numpy as np
    spec = importlib.util.spec_from_file_location("programs", path)
    programs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(programs)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    context = dict(s=jax.sharding.SingleDeviceSharding(jax.devices()[0]), mesh=mesh)
    for name in wanted & set(programs.PROGS):
        fn, args = programs.PROGS[name][1](context)
        lowered = jax.jit(fn).trace(*args).lower(lowering_platforms=("tpu",))
        with open(os.path.join(folder, name), "w") as out:
            out.write(lowered.as_text())


def main():
    import numpy as np
    from fit_tpu import Chip
    programs, estimates, build = sys.argv[1:4]
    given = {k: v for k, v in json.load(open(estimates)).items() if v.get("kernels")}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        lower(programs, {k.split("/")[1] for k in given}, folder)
        for key, p in given.items():
            chip, name = key.split("/")
            if p["n_without_estimate"] and not name.startswith(SHARDED):
                continue    # the compiler's total leaves kernels out
            target = chip + (":2x2" if name.startswith(SHARDED) else "")
            done = subprocess.run([os.path.join(build, "atoll"), "estimate", "--json",
                                   f"--target={target}", os.path.join(folder, name)],
                                  capture_output=True, text=True)
            if done.returncode:
                print(key, done.stderr.strip())
                continue
            e = json.loads(done.stdout)
            got = e["kernel_seconds"] * Chip(chip).clock
            rows.append((got / p["total_estimated_cycles"] - 1, chip, name,
                         e["peak_bytes"] / max(1, p["peak_bytes"])))
    for error, chip, name, peak in sorted(rows, key=lambda r: -abs(r[0])):
        print(f"{error:+7.1%} {chip} {name}, peak memory {peak:.2f} of the compiler's")
    for chip in sorted({r[1] for r in rows}):
        e = np.array([abs(r[0]) for r in rows if r[1] == chip])
        print(f"{chip}: {len(e)} programs, median {np.median(e):.1%}, "
              f"p90 {np.quantile(e, .9):.1%}")


if __name__ == "__main__":
    sys.exit(main())
