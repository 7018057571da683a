#!/usr/bin/env python3
"""Bytes that collectives move in sharded layers: Atoll's partitioner beside the TPU compiler's.

  tools/sharded_bytes.py oracle FILE.json   compiles tools/sharded_layers.py's programs with the
                                            installed libtpu, without a chip; goes on where it was
  tools/sharded_bytes.py table [FILE.json]  partitions them with Atoll: docs/sharded_bytes.md
  tools/sharded_bytes.py check [FILE.json]  that the page is what table would write, and the ratios in bounds
  tools/sharded_bytes.py show NAME          one program: both sides by kind, Atoll's collectives
  tools/sharded_bytes.py equal [NAME...]    runs programs on eight chips of Atoll and on one

Both sides are counted alike: what one chip receives when each collective is done in the
way that moves least. Of an all-reduce 2(g-1)/g of its size in groups of g, of an all-gather
(g-1)/g of its result, of a reduce-scatter and an all-to-all (g-1)/g of their operand, of a
permutation its operand, for the share of chips that get another's. What is in a loop counts
once a turn. Both multiply matrices of f32 at default precision as the chip does, of operands
rounded to bf16 (ATOLL_NUMERICS=tpu): parts of such operands travel rounded.
"""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[1]
ORACLE = TOP / "test" / "sharded" / "libtpu_bytes.json"
PAGE = TOP / "docs" / "sharded_bytes.md"
TOPOLOGY = "v5e:2x4"
DEVICES = 8
NEAR, MAY_BE_OVER, FAR = 1.05, 4, 1.25  # what `check` asks of the ratios
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
BITS = {"pred": 8, "i1": 8, "s4": 4, "u4": 4, "bf16": 16, "f16": 16, "i64": 64}


def shape_bytes(text):
    total = 0
    for dtype, dims in re.findall(r"\b([a-z]+\d*\w*)\[([\d,]*)\]", text):
        bits = BITS.get(dtype) or int(re.search(r"\d+", dtype).group())
        n = 1
        for d in filter(None, dims.split(",")):
            n *= int(d)
        total += n * bits // 8
    return total


def moved(kind, operand, result, group):
    share = (group - 1) / group
    return {"all-reduce": 2 * share * result, "all-gather": share * result, "collective-permute": operand}.get(
        kind, share * operand)


def pairs_share(pairs):
    return sum(a != b for a, b in re.findall(r"(\d+),\s*(\d+)", pairs)) / DEVICES


# ---- The TPU compiler's text ----------------------------------------------------------
def groups_of(line):
    m = re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", line)
    if m:
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", m.group(1)))
        n = 1
        for name, part in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", m.group(2)):
            n *= int(part or sizes[name])
        return n
    m = re.search(r"replica_groups=\[(\d+),(\d+)\]<=", line)
    if m:
        return int(m.group(2))
    m = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if m:
        return len(m.group(1).split(","))
    raise ValueError("no groups: " + line[:200])


def computations(text):
    """name -> lines; the entry's name."""
    out, entry, name = {}, None, None
    for line in text.splitlines():
        m = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line)
        if m and not line.startswith(" "):
            name = m.group(2)
            entry = name if m.group(1) else entry
            out[name] = []
        elif name and line.startswith("  "):
            out[name].append(line)
    return out, entry


def turns_of(line, comps):
    m = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
    if m:
        return int(m.group(1))
    cond = comps[re.search(r"condition=%?([\w.\-]+)", line).group(1)]
    found = {int(n) for l in cond for n in re.findall(r"s32\[\][^=]* constant\((\d+)\)", l)}
    if len(found) != 1:
        raise ValueError(f"turns of a loop: {found}")
    return found.pop()


def xla_counts(text):
    comps, entry = computations(text)
    out = collections.defaultdict(lambda: [0, 0.0])
    seen = set()

    def walk(name, times, loop, scatter):
        for line in comps[name]:
            m = re.search(r"^\s*(?:ROOT )?%?[\w.\-]+ = (.*?) ([a-z\-]+)\(", line)
            if not m:
                continue
            types, op = m.groups()
            kind = op.removesuffix("-start")
            if kind in KINDS:
                chain = re.search(r'channel_id=(\d+).*chain_id="(\d+)"', line)
                if chain and (loop, *chain.groups()) in seen:  # a part of one that is spread over fusions
                    continue
                seen.add((loop, *chain.groups()) if chain else line)
                if kind == "collective-permute":
                    share = pairs_share(re.search(r"source_target_pairs=\{(.*?)\}\}", line).group(1) + "}")
                    size = shape_bytes(types.split("),")[0]) if op == kind else shape_bytes(types) / 2
                    value = size * share
                elif op != kind:
                    raise ValueError("an asynchronous form: " + line[:200])
                else:
                    g, size = groups_of(line), shape_bytes(types)
                    kind = "reduce-scatter" if scatter and kind == "all-reduce" else kind
                    operand = size * g if op == "reduce-scatter" else size
                    value = moved(kind, operand, size, g)
                out[kind][0] += times
                out[kind][1] += value * times
            elif op == "while":
                walk(re.search(r"body=%?([\w.\-]+)", line).group(1), times * turns_of(line, comps), line, False)
            elif op in ("fusion", "call", "async-start"):
                callee = re.search(r"(?:calls|to_apply)=%?([\w.\-]+)", line).group(1)
                walk(callee, times, loop, scatter or callee.startswith("all-reduce-scatter"))
            elif op == "conditional":
                for callee in re.findall(r"%([\w.\-]+)", line.split("branch_computations=")[1].split("}")[0]):
                    walk(callee, times, loop, scatter)
    walk(entry, 1, "", False)
    return {k: v for k, v in out.items() if v[1]}


# ---- Atoll's text -----------------------------------------------------------------------
def atoll_counts(text, show=None):
    out = collections.defaultdict(lambda: [0, 0.0])
    stack = [(1, None)]  # times, the collective whose type comes behind its region

    def note(line, types, times):
        kind = next(k for k in KINDS if f"= {k.replace('-', '_')} " in line)
        size = shape_bytes(types)
        if kind == "collective-permute":
            value = size * pairs_share(line.split("source_target_pairs=")[1].split("]]")[0])
        else:
            g = len(re.search(r"replica_groups=\[\[([\d,]*)\]", line).group(1).split(","))
            value = moved(kind, size * g if kind == "reduce-scatter" else size, size, g)
        out[kind][0] += times
        out[kind][1] += value * times
        if show and value:
            show(f"{times * value / 1024:9.1f} KiB  {times:g} x {line.strip()[:150]} : {types.strip()}")

    for line in text.splitlines():
        start, end = line.lstrip().startswith("}"), line.rstrip().endswith("{")
        is_collective = any(f"= {k.replace('-', '_')} " in line for k in KINDS)
        if start and not end:
            times, pending = stack.pop() if len(stack) > 1 else (1, None)
            if pending:
                note(pending, line.rsplit(" : ", 1)[1], times)
        elif end and not start:
            times = stack[-1][0]
            if re.search(r"= while ", line):
                times *= int(re.search(r"trip_count=(\d+)", line).group(1))
            stack.append((times, line if is_collective else None))
        elif is_collective:
            note(line, line.rsplit(" : ", 1)[1], stack[-1][0])
    return {k: v for k, v in out.items() if v[1]}


def partitioned(atoll, text):
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as f:
        f.write(text)
        f.flush()
        done = subprocess.run([atoll, "dump", "--stage=optimized", f.name], capture_output=True, text=True,
                              env={**os.environ, "ATOLL_NUMERICS": "tpu"})
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


# ---- Both -------------------------------------------------------------------------------
def lowered(program, devices):
    import sharded_layers
    f, args = sharded_layers.build(program, devices)
    return f.trace(*args).lower(lowering_platforms=("tpu",))


def host_devices():
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    import jax
    return jax.devices()


def digest(low):
    return hashlib.sha256(low.as_text().encode()).hexdigest()[:16]


def oracle(path):
    os.environ.update(JAX_PLATFORMS="cpu", TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1")
    import sharded_layers
    from importlib.metadata import version
    from jax.experimental import topologies
    devices = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGY).devices
    known = json.loads(path.read_text()) if path.exists() else {"programs": {}}
    known.update(compiler="libtpu " + version("libtpu"), topology=TOPOLOGY)
    known["programs"] = {k: v for k, v in known["programs"].items() if k in sharded_layers.PROGRAMS}
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, program in sharded_layers.PROGRAMS.items():
        low = lowered(program, devices)
        if known["programs"].get(name, {}).get("of") == digest(low):
            continue
        counts = xla_counts(low.compile().as_text())
        known["programs"][name] = {"of": digest(low), "kinds": {k: [n, round(b)] for k, (n, b) in counts.items()}}
        path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        print(name, {k: round(b) for k, (_, b) in counts.items()}, flush=True)


def compare(atoll, path, only=None):
    """(name, the compiler's, ours) for every program, each {kind: [number, bytes]}."""
    devices = host_devices()
    import sharded_layers
    known = json.loads(path.read_text())["programs"]
    for name, program in sharded_layers.PROGRAMS.items():
        if only is not None and name not in only:
            continue
        low = lowered(program, devices)
        if known.get(name, {}).get("of") != digest(low):
            raise SystemExit(f"{name}: is another program than {path.name} knows; run the oracle again")
        yield name, known[name]["kinds"], atoll_counts(partitioned(atoll, low.as_text()))


def total(counts):
    return sum(b for _, b in counts.values())


def ratio(ours, theirs):
    return ours / theirs if theirs else 1.0 if not ours else float("inf")


def table(path, rows, ratios):
    known = json.loads(path.read_text())
    text = [f"""# Bytes that sharded layers move

Written by `tools/sharded_bytes.py table`: the programs of `tools/sharded_layers.py` on eight chips, partitioned
by Atoll and by {known['compiler']} for {known['topology']}. KiB that one chip receives, Atoll's / the compiler's;
how they are counted is in the tool's head. {sum(r <= 1.05 for r in ratios)} of {len(ratios)} move at most 1.05 times
what the compiler's do, {sum(r <= 1.25 for r in ratios)} at most 1.25 times; the most is {ratios[-1]:.2f}.

| program | all | ratio | {' | '.join(KINDS)} |
|---|---|---|{'---|' * len(KINDS)}"""]
    kib = lambda x: f"{x / 1024:.0f}"
    for name, theirs, ours in rows:
        cells = [f"{kib(ours[k][1] if k in ours else 0)} / {kib(theirs[k][1] if k in theirs else 0)}"
                 if k in ours or k in theirs else "" for k in KINDS]
        text.append(f"| {name} | {kib(total(ours))} / {kib(total(theirs))} | {ratio(total(ours), total(theirs)):.2f} | "
                    + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def check(path, text, ratios):
    over = sum(r > NEAR for r in ratios)
    if over > MAY_BE_OVER or ratios[-1] > FAR:
        raise SystemExit(f"{over} of {len(ratios)} programs move over {NEAR} times the compiler's bytes, "
                         f"at most {ratios[-1]:.2f}: 'tools/sharded_bytes.py table' lists them")
    if PAGE.read_text() != text:
        raise SystemExit(f"{PAGE} is old: run tools/sharded_bytes.py table")


# ---- Equality -----------------------------------------------------------------------------
def tolerances():
    """Of whole programs, as the random programs have them: units in the last place."""
    rows = re.findall(r"AT_TOLERANCE\(PROGRAM, (\w+), (\d+)", (TOP / "test" / "random" / "tolerance.def").read_text())
    return {dtype.lower(): int(ulp) for dtype, ulp in rows}


def equal(names):
    import dataclasses
    import jax
    import jax.numpy as jnp
    import numpy as np
    import sharded_layers
    devices = jax.devices()
    ulps, worst = tolerances(), 0
    for name in names or sharded_layers.PROGRAMS:
        program = sharded_layers.PROGRAMS[name]
        alone = dataclasses.replace(program, mesh=dict.fromkeys(program.mesh, 1))
        results = []
        for p in (program, alone):
            f, args = sharded_layers.build(p, devices)
            results.append([np.asarray(x, np.float64) for x in jax.tree.leaves(f(*sharded_layers.values(p, args)))])
        # Units of the largest element: the sums of a gradient are in another order.
        unit = float(jnp.finfo(program.dtype).eps)
        off = max(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30) / unit for a, b in zip(*results))
        limit = ulps[{"float32": "f32", "bfloat16": "bf16"}[program.dtype]]
        print(f"{name}: {off:.1f} of {limit} units", flush=True)
        worst = max(worst, off / limit) if off == off else float("inf")
    return int(worst > 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("oracle", "table", "check", "show", "equal"))
    parser.add_argument("of", nargs="*")
    parser.add_argument("--atoll", default=TOP / "build" / "release" / "atoll")
    o = parser.parse_args()
    path = pathlib.Path(o.of[0]) if o.of and o.what in ("oracle", "table", "check") else ORACLE
    if o.what == "oracle":
        return oracle(path)
    if o.what == "equal":
        return equal(o.of)
    if o.what in ("table", "check"):
        rows = list(compare(o.atoll, path))
        ratios = sorted(ratio(total(b), total(a)) for _, a, b in rows)
        text = table(path, rows, ratios)
        if o.what == "check":
            return check(path, text, ratios)
        PAGE.write_text(text)
        return print(text)
    for name, theirs, ours in compare(o.atoll, ORACLE, o.of):
        for k in KINDS:
            print(f"{k:20} Atoll {ours.get(k, [0, 0])[0]:4g} x, {ours.get(k, [0, 0])[1] / 1024:8.0f} KiB   "
                  f"compiler {theirs.get(k, [0, 0])[0]:4g} x, {theirs.get(k, [0, 0])[1] / 1024:8.0f} KiB")
        import sharded_layers
        atoll_counts(partitioned(o.atoll, lowered(sharded_layers.PROGRAMS[name], host_devices()).as_text()), print)


if __name__ == "__main__":
    sys.exit(main())
