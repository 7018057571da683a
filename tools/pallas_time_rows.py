#!/usr/bin/env python3
"""The time that Atoll predicts for Pallas kernels beside what the TPU compiler estimates.

    tools/pallas_time_rows.py collect [--target=v5e] [--seconds=S]   asks libtpu, with a Python that has it; goes on where
                                                                     an earlier run stopped
    tools/pallas_time_rows.py compare [--target=v5e] [--each]        Atoll's time over the compiler's, by family

Rows are in data/tpu/pallas_rows.json; --rows=FILE and --kernels=FILE.py (its `variants()`) name others. No test starts libtpu.
"""
import argparse
import glob
import importlib.util
import itertools
import json
import math
import os
import re
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tools")]
TOPOLOGIES = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}


def read_rows(path):
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def write_rows(path, rows):
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(rows, f, indent=1, sort_keys=True)
        f.write("\n")
    os.replace(path + ".new", path)


def kernels_of(path):
    spec = importlib.util.spec_from_file_location("kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.variants())


def in_turns(kernels):
    """One of each family after the other, so that a short run sees all of them."""
    families = {}
    for k in kernels:
        families.setdefault(k[0], []).append(k)
    return [k for turn in itertools.zip_longest(*families.values()) for k in turn if k]


# ---- The compiler's estimates
def set_up(target, folder):
    """libtpu reads its flags when it is loaded; it needs no TPU to compile."""
    os.environ.update(JAX_PLATFORMS="cpu", TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1", TPU_WORKER_ID="0",
                      TPU_WORKER_HOSTNAMES="localhost", TPU_ACCELERATOR_TYPE="v5p-8",
                      LIBTPU_INIT_ARGS=f"--xla_jf_dump_static_llo_profile_to={folder}")
    os.environ.pop("TPU_LIBRARY_PATH", None)
    import jax
    from jax.experimental import topologies
    devices = topologies.get_topology_desc(TOPOLOGIES[target], platform="tpu").devices
    return jax.sharding.SingleDeviceSharding(devices[0])


def estimate(fn, args, sharding, folder):
    """Cycles of the custom call: the largest estimate of the program."""
    import jax
    for path in glob.glob(folder + "/*"):
        os.remove(path)
    jax.jit(fn).lower(*(jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in args)).compile()
    cycles = []
    for path in glob.glob(folder + "/*"):
        with open(path, encoding="utf-8") as f:
            cycles += [int(n) for n in re.findall(r"estimated_cycles: (\d+)", f.read())]
    return max(cycles)


def collect(a):
    from atoll import _tune
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        sharding = set_up(a.target, folder)
        for family, name, fn, args in in_turns(kernels_of(a.kernels)):
            rows = read_rows(a.rows)
            mine = rows.setdefault(a.target, {})
            if name in mine:
                continue
            if time.monotonic() - begin > a.seconds:
                break
            mine[name] = {"family": family, "error": "the compiler ended the process"}
            write_rows(a.rows, rows)
            try:
                with _tune.lowering_for(a.target):
                    mine[name] = {"family": family, "cycles": estimate(fn, args, sharding, folder)}
            except Exception as e:  # a refusal is a row, too
                mine[name] = {"family": family, "error": str(e).splitlines()[0][:200]}
            write_rows(a.rows, rows)
            print(name, mine[name].get("cycles") or mine[name]["error"], flush=True)


# ---- Atoll beside them
def predicted(kernels, target, command):
    """Name to Variant."""
    from atoll import _tune
    by_name = {name: (fn, args) for _, name, fn, args in kernels}
    variants = [_tune.Variant({"name": n}) for n in by_name]
    _tune._sweep(lambda name: by_name[name], variants, target, command, None)
    return {v.params["name"]: v for v in variants}


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    for r, i in enumerate(order):
        out[i] = r
    return out


def rank_correlation(x, y):
    n = len(x)
    return 1 - 6 * sum((p - q) ** 2 for p, q in zip(ranks(x), ranks(y))) / (n * (n * n - 1)) if n > 2 else math.nan


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def summary(pairs):
    ratio = [p / w for w, p in pairs]
    error = [abs(r - 1) for r in ratio]
    return (f"{len(pairs):4d}  {quantile(ratio, .5):6.2f}  {quantile(error, .5):7.1%}  {quantile(error, .9):7.1%}  "
            f"{rank_correlation(*zip(*pairs)):6.3f}")


def compare(a):
    os.environ["JAX_PLATFORMS"] = "cpu"
    from atoll._estimate import command_path
    rows = {n: r for n, r in read_rows(a.rows).get(a.target, {}).items() if "cycles" in r}
    kernels = [k for k in kernels_of(a.kernels) if k[1] in rows]
    found, families = predicted(kernels, a.target, command_path()), {}
    for family, name, *_ in kernels:
        v = found[name]
        if not v.accepted:
            print(f"{name}: no time: {v.stage}: {v.reason.splitlines()[0][:120]}")
            continue
        pair = rows[name]["cycles"], sum(k["cycles"] for k in v.kernels)
        families.setdefault(family, []).append(pair)
        if a.each:
            k = v.kernels[0]
            print(f"{name:32s} {pair[0]:9.0f} {pair[1]:9.0f} {pair[1] / pair[0]:6.2f}  " +
                  " ".join(f"{n} {k[n + '_cycles']:.0f}" for n in ("compute", "dma", "bubble", "wait", "mxu", "vector", "xlu", "load", "store")),
                  k["steps"])
    print(f"{a.target}: {'family':20s} rows   ratio   median      p90   ranks")
    for family, pairs in sorted(families.items()):
        print(f"     {family:20s} {summary(pairs)}")
    pairs = [p for f in families.values() for p in f]
    within = [rank_correlation(*zip(*f)) for f in families.values() if len(f) > 2]
    print(f"     {'all':20s} {summary(pairs)}; in families {sum(within) / max(1, len(within)):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collect", "compare"])
    parser.add_argument("--target", default="v5e", choices=list(TOPOLOGIES))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--rows", default=os.path.join(ROOT, "data", "tpu", "pallas_rows.json"))
    parser.add_argument("--kernels", default=os.path.join(ROOT, "tools", "pallas_time_kernels.py"))
    a = parser.parse_args()
    {"collect": collect, "compare": compare}[a.what](a)


if __name__ == "__main__":
    main()
