#!/usr/bin/env python3
"""The time that Atoll predicts for Pallas kernels beside what the TPU compiler estimates.

    tools/pallas_time_rows.py collect [--target=v5e] [--made] [--seconds=S]  asks libtpu, with a Python that has it; goes on
                                                                             where an earlier run stopped
    tools/pallas_time_rows.py compare [--target=v5e] [--made=even] [--each]  Atoll's time over the compiler's, by family

    tools/pallas_time_rows.py layouts [--target=v6e] NAME...                 bundles, spills and VMEM of made kernels, as libtpu
                                                                             dumps them, into data/tpu/pallas_layout_rows.json

Rows of tools/pallas_time_kernels.py are in data/tpu/pallas_rows.json: figures are fitted to them. With --made they are those
of tools/pallas_time_made.py, in data/tpu/pallas_made_rows.json: of even seeds, which no fit has seen, of odd ones, or all.
--rows=FILE and --kernels=FILE.py (its `variants()`) name others. No test starts libtpu.
"""
import argparse
import glob
import importlib.util
import itertools
import json
import math
import os
import re
import subprocess
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


def of_seeds(kernels, made):
    """Of made ones, those whose seed is even or odd, or all."""
    if made not in ("even", "odd"):
        return kernels
    return [k for k in kernels if int(k[1].rsplit("_", 1)[1]) % 2 == (made == "odd")]


def estimated(kernels, rows, made):
    """Those that have an estimate."""
    return [k for k in of_seeds(kernels, made) if "cycles" in rows.get(k[1], {})]


def in_turns(kernels):
    """One of each family after the other, so that a short run sees all of them."""
    families = {}
    for k in kernels:
        families.setdefault(k[0], []).append(k)
    return [k for turn in itertools.zip_longest(*families.values()) for k in turn if k]


# ---- The compiler's estimates
def set_up(target, folder, more=""):
    """libtpu reads its flags when it is loaded; it needs no TPU to compile."""
    os.environ.update(JAX_PLATFORMS="cpu", TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1", TPU_WORKER_ID="0",
                      TPU_WORKER_HOSTNAMES="localhost", TPU_ACCELERATOR_TYPE="v5p-8",
                      LIBTPU_INIT_ARGS=f"--xla_jf_dump_static_llo_profile_to={folder} {more}")
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
        for family, name, fn, args in in_turns(of_seeds(kernels_of(a.kernels), a.made)):
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


def layout(folder, name):
    """Of a kernel whose dump lies in the folder: bundles, registers spilled, and the VMEM allocations in order."""
    def text(what):
        path, = glob.glob(os.path.join(folder, f"*-{name}.1-{what}"))
        with open(path, encoding="utf-8") as f:
            return f.read()
    rows = [line.split() for line in text("*-final_hlo-static-per-bundle-utilization.txt").split("UTILIZATION:")[1].splitlines()]
    rows = [[int(n) for n in r] for r in rows if r and r[0].isdigit()]
    vmem = re.findall(r"#allocation\d+ \[.*space=vmem, size = (0x[0-9a-f]+)", text("[0-9][0-9]-post-ra.txt"))
    return {"bundles": len(rows), "spills": sum(r[9] for r in rows), "vmem": [int(n, 16) for n in vmem]}


def layouts(a):
    from atoll import _tune
    rows = read_rows(a.rows)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as dump:
        sharding = set_up(a.target, folder, f"--xla_jf_dump_to={dump} --xla_jf_dump_llo_text=true")
        for _, name, fn, args in kernels_of(a.kernels):
            if name in a.names:
                with _tune.lowering_for(a.target):
                    estimate(fn, args, sharding, folder)
                rows.setdefault(a.target, {})[name] = layout(dump, name)
                print(name, rows[a.target][name], flush=True)
                write_rows(a.rows, rows)


# ---- Atoll beside them
def predicted(kernels, target, command, *options):
    """Name to what `atoll dump --timing` says of the longest kernel, or to why it says nothing. Data are zeros, as the
    compiler's estimate has them."""
    from atoll import _tune
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for _, name, fn, args in kernels:
            with _tune.lowering_for(target), open(os.path.join(folder, name), "wb") as f:
                f.write(_tune.lower(fn, args))
        paths = [os.path.join(folder, name) for _, name, *_ in kernels]
        for i in range(0, len(paths), 100):
            done = subprocess.run([command, "dump", "--mosaic", "--timing", "--zeros", "--json", *options, f"--target={target}", *paths[i:i + 100]],
                                  capture_output=True, text=True, check=True)
            for call in map(json.loads, done.stdout.splitlines()):
                name = os.path.basename(call["file"])
                if not call.get("timings"):
                    out[name] = call.get("untimed") or call["message"]
                    continue
                longest = max(call["timings"], key=lambda k: k["cycles"])
                if isinstance(out.get(name), dict):
                    longest = max(longest, out[name], key=lambda k: k["cycles"])
                out[name] = longest
    return out


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
    median, p90 = errors(pairs)
    return (f"{len(pairs):4d}  {quantile([p / w for w, p in pairs], .5):6.2f}  {median:7.1%}  {p90:7.1%}  "
            f"{rank_correlation(*zip(*pairs)):6.3f}")


def errors(pairs):
    """Median and 90th percentile of how far predictions are from what they should be, as a share of that."""
    off = [abs(p / w - 1) for w, p in pairs]
    return quantile(off, .5), quantile(off, .9)


def compare(a):
    os.environ["JAX_PLATFORMS"] = "cpu"
    from atoll._estimate import command_path
    rows = read_rows(a.rows).get(a.target, {})
    kernels, families = estimated(kernels_of(a.kernels), rows, a.made), {}
    found = predicted(kernels, a.target, command_path())
    for family, name, *_ in kernels:
        k = found[name]
        if not isinstance(k, dict):
            print(f"{name}: no time: {k.splitlines()[0][:120]}")
            continue
        pair = rows[name]["cycles"], k["cycles"]
        families.setdefault(family, []).append(pair)
        if a.each:
            print(f"{name:32s} {pair[0]:9.0f} {pair[1]:9.0f} {pair[1] / pair[0]:6.2f}  " +
                  " ".join(f"{n} {k[n + '_cycles']:.0f}" for n in ("compute", "dma", "bubble", "wait", "mxu", "vector", "xlu", "eup", "load", "store")),
                  k["steps"])
    print(f"{a.target}: {'family':20s} rows   ratio   median      p90   ranks")
    for family, pairs in sorted(families.items()):
        print(f"     {family:20s} {summary(pairs)}")
    pairs = [p for f in families.values() for p in f]
    within = [rank_correlation(*zip(*f)) for f in families.values() if len(f) > 2]
    print(f"     {'all':20s} {summary(pairs)}; in families {sum(within) / max(1, len(within)):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collect", "compare", "layouts"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", default="v5e", choices=list(TOPOLOGIES))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--made", nargs="?", const="all", choices=["even", "odd", "all"])
    parser.add_argument("--rows")
    parser.add_argument("--kernels")
    a = parser.parse_intermixed_args()
    if a.what == "layouts":
        a.made = "all"
        a.rows = a.rows or os.path.join(ROOT, "data", "tpu", "pallas_layout_rows.json")
    a.rows = a.rows or os.path.join(ROOT, "data", "tpu", "pallas_made_rows.json" if a.made else "pallas_rows.json")
    a.kernels = a.kernels or os.path.join(ROOT, "tools", "pallas_time_made.py" if a.made else "pallas_time_kernels.py")
    {"collect": collect, "compare": compare, "layouts": layouts}[a.what](a)


if __name__ == "__main__":
    main()
