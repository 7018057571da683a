#!/usr/bin/env python3
"""The time that Atoll predicts for Pallas kernels beside what the TPU compiler estimates.

    tools/pallas_time_rows.py collect [--target=v5e] [--made] [--seconds=S]  asks libtpu, with a Python that has it; goes on
                                                                             where an earlier run stopped
    tools/pallas_time_rows.py compare [--target=v5e] [--made=even] [--each]  Atoll's time over the compiler's, by family

    tools/pallas_time_rows.py pick [--target=v5e] [--each]                   of each family of --tuned, what Atoll would pick beside
                                                                             the compiler's fastest

    tools/pallas_time_rows.py layouts [--target=v6e] NAME...                 bundles, spills and VMEM of made kernels, as libtpu
                                                                             dumps them, into data/tpu/pallas_layout_rows.json

Rows of tools/pallas_time_kernels.py are in data/tpu/pallas_rows.json: figures are fitted to them. With --made they are those
of tools/pallas_time_made.py, in data/tpu/pallas_made_rows.json: of even seeds, which no fit has seen, of odd ones, or all.
With --tuned they are those of tools/pallas_tune_kernels.py, in data/tpu/pallas_tune_rows.json: block shapes of one problem each.
--rows=FILE and --kernels=FILE.py (its `variants()`) name others. No test starts libtpu.
"""
import argparse
import glob
import importlib.util
import itertools
import json
import math
import os
import random
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


def in_turns(kernels, shuffled=False):
    """One of each family after the other, so that a short run sees all of them; `shuffled`: block shapes of all sizes, too."""
    families = {}
    for k in kernels:
        families.setdefault(k[0], []).append(k)
    for variants in families.values() if shuffled else ():
        random.Random(0).shuffle(variants)
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
    """Cycles of the longest kernel; ValueError: the compiler has no estimate for any."""
    import jax
    for path in glob.glob(folder + "/*"):
        os.remove(path)
    compiled = jax.jit(fn).lower(*(jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in args)).compile()
    kernels = re.findall(r'%(\S+) = .*custom_call_target="tpu_custom_call"', compiled.as_text())
    cycles = []
    for path in glob.glob(folder + "/*"):
        if os.path.basename(path).rsplit("_TPU", 1)[0] in kernels:
            with open(path, encoding="utf-8") as f:
                cycles += [int(n) for n in re.findall(r"estimated_cycles: (\d+)", f.read())]
    if not cycles:
        raise ValueError(f"no estimate for {', '.join(kernels)}")
    return max(cycles)


ENDED = "the compiler ended the process"


def is_hopeless(rows, family):
    """The compiler ended its process on the family's kernels twice, and has an estimate of none."""
    of = [r for r in rows.values() if r["family"] == family]
    return sum(r.get("error") == ENDED for r in of) > 1 and not any("cycles" in r for r in of)


def collect(a):
    from atoll import _tune
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        sharding = set_up(a.target, folder)
        for family, name, fn, args in in_turns(of_seeds(kernels_of(a.kernels), a.made), shuffled=a.tuned):
            rows = read_rows(a.rows)
            mine = rows.setdefault(a.target, {})
            if name in mine or is_hopeless(mine, family):
                continue
            if time.monotonic() - begin > a.seconds:
                break
            mine[name] = {"family": family, "error": ENDED}
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


WIDE, NEAR = 1.5, 1.05  # families whose median is so much over the fastest count; so near a choice is right


def choices(kernels, rows, found):
    """By family: variants with an estimate, the median over the fastest, the one that Atoll takes for the fastest over
    that, and how well ranks agree."""
    families, out = {}, {}
    for family, name, *_ in kernels:
        mine = found[name]["cycles"] if isinstance(found[name], dict) else math.inf
        families.setdefault(family, []).append((rows[name]["cycles"], mine))
    for family, pairs in sorted(families.items()):
        best, choice = min(w for w, _ in pairs), min(pairs, key=lambda p: p[1])[0]
        timed = [p for p in pairs if p[1] < math.inf]
        out[family] = len(pairs), quantile([w for w, _ in pairs], .5) / best, choice / best, rank_correlation(*zip(*timed))
    return out


def refused(kernels, rows):
    """Those that the compiler refuses."""
    return [k for k in kernels if "RESOURCE_EXHAUSTED" in rows.get(k[1], {}).get("error", "")]


def pick(a):
    os.environ["JAX_PLATFORMS"] = "cpu"
    from atoll._estimate import command_path
    rows = read_rows(a.rows).get(a.target, {})
    every = kernels_of(a.kernels)
    kernels = [k for k in every if "cycles" in rows.get(k[1], {})]
    found = predicted(kernels + refused(every, rows), a.target, command_path())
    for _, name, *_ in refused(every, rows):
        if isinstance(found[name], dict):
            print(f"     {name}: the compiler refuses it, and Atoll takes it")
    for _, name, *_ in sorted(kernels, key=lambda k: (k[0], rows[k[1]]["cycles"])):
        k, cycles = found[name], rows[name]["cycles"]
        if not isinstance(k, dict):
            print(f"     {name}: no time: {k.splitlines()[0][:100]}")
        elif a.each:
            print(f"     {name:40s} {cycles:9.0f} {k['cycles']:9.0f} {k['cycles'] / cycles:6.2f}")
    of = choices(kernels, rows, found)
    print(f"{a.target}: {'family':20s} variants  median/best  pick/best   ranks")
    for family, (n, spread, choice, ranked) in of.items():
        print(f"     {family:20s} {n:8d} {spread:12.2f} {choice:10.3f} {ranked:7.3f}")
    wide = [choice for _, spread, choice, _ in of.values() if spread >= WIDE]
    print(f"within {NEAR - 1:.0%} of the fastest in {sum(c <= NEAR for c in wide)} of {len(wide)} families whose median is at least "
          f"{WIDE} times the fastest, of {len(of)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collect", "compare", "pick", "layouts"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", default="v5e", choices=list(TOPOLOGIES))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--made", nargs="?", const="all", choices=["even", "odd", "all"])
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--rows")
    parser.add_argument("--kernels")
    a = parser.parse_intermixed_args()
    if a.what == "layouts":
        a.made = "all"
        a.rows = a.rows or os.path.join(ROOT, "data", "tpu", "pallas_layout_rows.json")
    if a.tuned or a.what == "pick":
        a.rows = a.rows or os.path.join(ROOT, "data", "tpu", "pallas_tune_rows.json")
        a.kernels = a.kernels or os.path.join(ROOT, "tools", "pallas_tune_kernels.py")
    a.rows = a.rows or os.path.join(ROOT, "data", "tpu", "pallas_made_rows.json" if a.made else "pallas_rows.json")
    a.kernels = a.kernels or os.path.join(ROOT, "tools", "pallas_time_made.py" if a.made else "pallas_time_kernels.py")
    {"collect": collect, "compare": compare, "pick": pick, "layouts": layouts}[a.what](a)


if __name__ == "__main__":
    main()
