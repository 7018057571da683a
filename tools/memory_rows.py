#!/usr/bin/env python3
"""How much memory random programs take: the TPU compiler's answer, and ours.

  memory_rows.py ask ROWS.json --seeds 0:40 [--chip v5e,v5p] [--hlo FOLDER]
  memory_rows.py compare ROWS.json [--seeds 0:40]

`ask` compiles the program of each seed with libtpu, which needs no chip, and
adds one row a program to ROWS.json, saved at once: what is there already is
not asked again; with --large, of programs that take 0.7 to 1.4 of the chip's
memory by our plan. `compare` makes the same programs, asks `atoll estimate`
(ATOLL names the program; else the one on PATH) and prints for each row ours
against libtpu's, then median, 90th percentile and worst relative error of the
temporaries where they are at least a fifth of the peak, and of the peaks.

A program depends on its seed and family alone. Rows name seed, kind, chip and
bytes. Several chips take turns, one a program. "learned": its HLO may be looked
at when rules of the plan are written, as that of odd seeds; even seeds judge,
and --hlo never keeps theirs.
"""
import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
for key, value in {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
}.items():
    os.environ.setdefault(key, value)
os.environ.pop("TPU_LIBRARY_PATH", None)  # libtpu's own, from its package
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import jax
import numpy as np

from memory_programs import KINDS, make, make_large

def placed(program, devices):
    """The arguments with the shardings they have on these devices."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    if program.mesh is None:
        one = SingleDeviceSharding(devices[0])
        return jax.tree.map(
            lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=one),
            program.args,
        )
    count = math.prod(program.mesh)
    mesh = Mesh(np.array(devices[:count]).reshape(program.mesh), ("x", "y")[: len(program.mesh)])

    def put(s, axes):
        spec = PartitionSpec(*(None if a == "-" else a for a in axes.strip("@")))
        kind = "pinned_host" if axes == "@" else None
        return jax.ShapeDtypeStruct(
            s.shape, s.dtype, sharding=NamedSharding(mesh, spec, memory_kind=kind)
        )

    return jax.tree.map(put, program.args, program.split)


def topology(chip, program):
    """Of the smallest slice that the program fits on: "v5e:2x2"."""
    count = math.prod(program.mesh or (1,))
    flat, deep = {1: ("2x2", "2x2x1"), 4: ("2x2", "2x2x1"), 8: ("2x4", "2x2x2")}[count]
    return f"{chip}:{deep if chip in ('v4', 'v5p') else flat}"


def read(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return json.load(f)


def save(path, all_rows):
    with open(path + ".new", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in all_rows) + "\n]\n")
    os.replace(path + ".new", path)


def ask_one(row, p, hlo=None):
    """libtpu's answer for the program, in the row; refused: the bytes of its
    temporaries, None where libtpu does not say."""
    from jax.experimental import topologies

    devices = topologies.get_topology_desc(
        topology(row["chip"], p), platform="tpu"
    ).devices
    try:
        lowered = jax.jit(p.function, donate_argnums=p.donated).lower(
            *placed(p, devices)
        )
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as e:
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        used = re.search(r"\(([\d.]+)([KMG])\) exceeds", str(e))
        row["refused"] = used and int(
            float(used[1]) * 2 ** {"K": 10, "M": 20, "G": 30}[used[2]]
        )
        return row
    m = compiled.memory_analysis()
    row["arguments"] = m.argument_size_in_bytes
    row["results"] = m.output_size_in_bytes
    row["shared"] = m.alias_size_in_bytes
    row["temporaries"] = m.temp_size_in_bytes
    if hlo:
        with open(f"{hlo}/{row['seed']}.{row['chip']}.hlo", "w") as f:
            f.write(compiled.as_text())
    return row


def near_limit(seed, chip):
    """How many rows the program needs to take 0.7 to 1.4 of the memory, by our
    plan; the row that says so."""
    share = 0.7 * 2 ** random.Random(-seed - 1).random()
    kind, p, n = make_large(seed)

    def peak(batch):
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as f:
            f.write(lowered_text(make_large(seed, batch)[1]))
            f.flush()
            e = estimate(f.name, chip)
        return e["peak_bytes"], e["memory_bytes"]

    (a, all_), (b, _) = peak(n), peak(4 * n)
    wanted = n + 3 * n * (share * all_ - a) / (b - a)
    unit = 8 if wanted > 64 else 1
    return {"seed": seed, "kind": kind, "chip": chip, "batch": max(1, round(wanted / unit)) * unit}


def ask(o):
    chips = o.chip.split(",")
    for seed in o.seeds:
        chip = chips[(seed + seed // len(KINDS)) % len(chips)]
        known = read(o.rows)
        if any(r["seed"] == seed and r["chip"] == chip for r in known):
            continue
        learned = seed % 2 and not o.large
        if o.large:
            row = near_limit(seed, chip)
            p = make_large(seed, row["batch"])[1]
        else:
            kind, p = make(seed)
            row = {"seed": seed, "kind": kind, "chip": chip}
        if learned:
            row["learned"] = True
        try:
            row = ask_one(row, p, o.hlo if learned else None)
        except jax.errors.JaxRuntimeError as e:
            print(seed, chip, "the compiler fails:", str(e)[:200], flush=True)
            continue
        save(o.rows, known + [row])
        print(row, flush=True)


def lowered_text(p):
    return (
        jax.jit(p.function, donate_argnums=p.donated)
        .trace(*placed(p, jax.devices()))
        .lower(lowering_platforms=("tpu",))
        .as_text(debug_info=True)
    )


def estimate(path, target):
    """Our answer for the program in the file, as a dictionary."""
    out = subprocess.run(
        [os.environ.get("ATOLL", "atoll"), "estimate", path]
        + ["--target", target, "--json"],
        capture_output=True,
        text=True,
    )
    if out.returncode:
        raise RuntimeError(out.stderr)
    return json.loads(out.stdout)


def quantiles(name, errors):
    if not errors:
        return
    e = sorted(abs(x) for x in errors)
    at = lambda q: e[min(len(e) - 1, int(q * len(e)))]
    print(
        f"{name}: {len(e)} programs, median {at(.5):.1%}, p90 {at(.9):.1%}, worst {e[-1]:.1%}"
    )


def compare(o):
    out = {False: ([], []), True: ([], [])}
    wrong, over = [], []
    programs = {}
    for row in read(o.rows):
        if o.seeds is None or row["seed"] in o.seeds:
            key = row["seed"], row["kind"], row.get("batch")
            programs.setdefault(key, []).append(row)
    for (seed, kind, batch), known in sorted(programs.items(), key=str):
        p = make_large(seed, batch)[1] if batch else make(seed, kind)[1]
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as f:
            f.write(lowered_text(p))
            f.flush()
            for row in known:
                target = topology(row["chip"], p) if p.mesh else row["chip"]
                temporaries, peaks = out[row.get("learned", False)]
                compare_one(row, estimate(f.name, target), temporaries, peaks, wrong, over)
    for learned, name in (True, "learned"), (False, "left out"):
        quantiles(f"{name}: temporaries", out[learned][0])
        quantiles(f"{name}: peaks", out[learned][1])
    print("said to fit where libtpu refuses:", wrong or "none")
    print("refused where libtpu does not:", over or "none")


def compare_one(row, e, temporaries, peaks, wrong, over):
    name = f"{row['seed']:4} {row['chip']} {row['kind']:18}"
    fits = e["peak_bytes"] <= e["memory_bytes"]
    if "refused" not in row and not fits:
        over.append(row["seed"])
    if "refused" in row:
        if fits:
            wrong.append(row["seed"])
        print(f"{name} libtpu refuses; ours {'fits' if fits else 'refuses'}")
        return
    whole = row["arguments"] + row["results"] - row["shared"] + row["temporaries"]
    ours, theirs = e["temp_bytes"], row["temporaries"]
    counts = theirs >= 0.2 * whole
    if counts:
        temporaries.append(ours / theirs - 1)
    peaks.append(e["peak_bytes"] / whole - 1)
    print(
        f"{name} arguments {e['argument_bytes'] / max(1, row['arguments']) - 1:+6.1%}"
        f"  temporaries {theirs / 2**20:9.1f} ours {ours / 2**20:9.1f} MiB"
        f" {ours / max(1, theirs) - 1:+7.1%}{' ' if counts else '-'}"
        f"  peak {whole / 2**20:9.1f} {peaks[-1]:+7.1%}",
        flush=True,
    )


def seeds(text):
    """FROM:TO or FROM:TO:STEP"""
    return range(*map(int, text.split(":")))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("mode", choices=["ask", "compare"])
    p.add_argument("rows")
    p.add_argument("--seeds", type=seeds, default=None)
    p.add_argument("--chip", default="v5e")
    p.add_argument("--hlo")
    p.add_argument("--large", action="store_true", help="programs that about fill the chip's memory")
    o = p.parse_args()
    if o.mode == "ask" and o.seeds is None:
        sys.exit("ask needs --seeds FROM:TO")
    (ask if o.mode == "ask" else compare)(o)


if __name__ == "__main__":
    main()
