#!/usr/bin/env python3
"""Compares Atoll's verdicts on small Pallas kernels with those of the TPU compiler.

usage: pallas_verdicts.py [--build=build/release] [--facts=../shared/facts/pallas]
                          [--kernels=FILE.py --verdicts=FILE.json] [--topology=v5e:2x2] [--list]

FILE.py has CASES: name -> (function that returns (callable, argument structs), flags);
FILE.json has "name/topology" -> {verdict, stage, message}. Every kernel is lowered by
JAX for every topology on Atoll's platform; what JAX lowers goes to
`atoll dump --mosaic --check --target=...`. Two figures per target: refusals that are
refused for the same cause, and accepted kernels that are accepted. Exits with 1 where
a figure is below what is asked (85% and 95%), with 77 where there is nothing to compare.
"""
import argparse, collections, json, os, pathlib, re, subprocess, sys, tempfile

LOWER = r'''
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("kernels", sys.argv[1])
kernels = importlib.util.module_from_spec(spec)
sys.modules["kernels"] = kernels
spec.loader.exec_module(kernels)
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
results = {}

def lower(make, flags):
    fn, args = make()
    if flags.get("mesh"):
        mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
        fn = jax.shard_map(fn, mesh=mesh, in_specs=(P(),) * len(args), out_specs=P(), check_vma=False)
    return jax.jit(fn).trace(*args).lower(lowering_platforms=("tpu",)).as_text()

for name, (make, flags) in kernels.CASES.items():
    try:
        jax.config.update("jax_enable_x64", bool(flags.get("x64")))
        text = lower(make, flags)
        path = f"{sys.argv[2]}/{name}.mlir"
        open(path, "w").write(text)
        results[name] = {"path": path, "devices": 4 if flags.get("mesh") else 1}
    except Exception as e:
        results[name] = {"message": f"{type(e).__name__}: {e}"}
json.dump(results, open(sys.argv[2] + "/lowered.json", "w"))
'''


def lower(build, topology, kernels, folder):
    env = dict(os.environ, ATOLL_TARGET=topology, TPU_LIBRARY_PATH=str(build / "libatoll.so"))
    env.pop("JAX_PLATFORMS", None)
    subprocess.run([sys.executable, "-c", LOWER, str(kernels), folder], env=env, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.load(open(folder + "/lowered.json"))


def judge(build, topology, lowered):
    """name -> (verdict, message) of the kernels that JAX lowered."""
    by_devices = collections.defaultdict(list)
    for name, r in lowered.items():
        if "path" in r:
            by_devices[r["devices"]].append((name, r["path"]))
    env = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    out = {}
    for devices, rows in by_devices.items():
        names = {path: name for name, path in rows}
        done = subprocess.run(
            [str(build / "atoll"), "dump", "--mosaic", "--check", f"--target={topology.split(':')[0]}",
             f"--devices={devices}", *names], capture_output=True, text=True, env=env)
        if done.returncode:
            sys.exit(f"atoll dump failed: {done.stderr}")
        for line in done.stdout.splitlines():
            r = json.loads(line)
            if out.get(names[r["file"]], ("ok",))[0] == "ok":
                out[names[r["file"]]] = (r["verdict"], r["message"])
    return out


def cause(message):
    """The part of a message that says why, without names, places and numbers."""
    text = re.sub(r"^(?:\w+Error|LoweringException|MosaicError|JaxRuntimeError)?:?\s*", "", message)
    text = re.sub(r"^[A-Z_]+: ", "", text)
    text = re.sub(r"^Mosaic failed to compile TPU kernel with MLIR module name `[^`]*` HLO name `[^`]*`: ", "", text)
    text = re.sub(r"\S*\.py:\d+\S*", "", text.lstrip())
    text = re.sub(r"[0-9]+(\.[0-9]+[KMG]?)?", "#", text)
    text = re.sub(r"%\S+", "%", text)
    first, _, second = text.partition("\n")
    if first.startswith("E#"):
        first = second.partition("\n")[0] or first
    return " ".join(first.split())


def same_cause(ours, theirs):
    a, b = cause(ours), cause(theirs)
    n = min(len(a), len(b), 50)
    return n > 0 and a[:n] == b[:n] or a[:12] == b[:12] and len(set(a.split()[:8]) & set(b.split()[:8])) >= 5


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=str(here / "build/release"))
    p.add_argument("--facts", default=str(here / "../shared/facts/pallas"))
    p.add_argument("--kernels")
    p.add_argument("--verdicts")
    p.add_argument("--topology", help="only this one")
    p.add_argument("--list", action="store_true", help="name every kernel that differs")
    a = p.parse_args()
    build, facts = pathlib.Path(a.build), pathlib.Path(a.facts)
    kernels = pathlib.Path(a.kernels or facts / "kernels_dev.py")
    verdicts = pathlib.Path(a.verdicts or facts / "verdicts_dev.json")
    if not kernels.exists() or not verdicts.exists():
        print(f"{verdicts} is not here: nothing is compared")
        return 77
    wanted = json.load(open(verdicts))
    failed = False
    for topology in [a.topology] if a.topology else sorted({k.split("/")[1] for k in wanted}):
        with tempfile.TemporaryDirectory() as folder:
            lowered = lower(build, topology, kernels, folder)
            judged = judge(build, topology, lowered)
        n = collections.Counter()
        for name, r in lowered.items():
            want = wanted.get(f"{name}/{topology}")
            if not want:
                continue
            verdict, message = judged.get(name, ("refused", r.get("message", "")))
            if want["verdict"] == "ok":
                n["ok"] += 1
                n["accepted"] += verdict == "ok"
                if verdict != "ok" and a.list:
                    print(f"  {topology} {name}: refused, should pass: {cause(message)[:150]}")
                continue
            stage = want["stage"]
            n[stage] += 1
            n["refusals"] += 1
            good = verdict == "refused" and same_cause(message, want["message"])
            n["refused"] += good
            n[stage + " refused"] += good
            n["other cause"] += verdict == "refused" and not good
            if not good and a.list:
                print(f"  {topology} {name} ({stage}): {verdict}: {cause(message)[:100]}\n"
                      f"      should be: {cause(want['message'])[:150]}")
        refused, accepted = n["refused"] / max(1, n["refusals"]), n["accepted"] / max(1, n["ok"])
        print(f"{topology}: refused {n['refused']}/{n['refusals']} = {refused:.1%} for the same cause "
              f"({n['other cause']} for another; by the compiler {n['compiler refused']}/{n['compiler']}); "
              f"accepted {n['accepted']}/{n['ok']} = {accepted:.1%}")
        failed |= refused < 0.85 or accepted < 0.95
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
