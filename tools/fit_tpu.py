#!/usr/bin/env python3
"""The model of one TPU kernel: features, formula, fit, errors, plots.

    tools/fit_tpu.py ESTIMATES.json             fit, write data/tpu/ and docs/img/
    tools/fit_tpu.py ESTIMATES.json --evaluate  only predict, with the coefficients
                                                that data/tpu/kernel_model.json holds

ESTIMATES.json holds what the TPU compiler says of the kernels of compiled programs
({"v5e/program": {"kernels": [{"cycles", "out", "ins", "ops", "window", ...}]}}).
The same formula in C is src/cost/tpu_kernel.c; cost_tpu_test compares the two on
every kernel of data/tpu/kernel_vectors.json, which this script writes.
"""
import argparse
import json
import math
import os
import re
import sys

import numpy as np
from scipy import optimize, stats

import plot

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = {"f64": 8, "s64": 8, "u64": 8, "c64": 8, "f32": 4, "s32": 4, "u32": 4,
         "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "s8": 1, "u8": 1, "pred": 1}
LANES, SUBLANES = 128, 8
MODEL = os.path.join(ROOT, "data", "tpu", "kernel_model.json")
VECTORS = os.path.join(ROOT, "data", "tpu", "kernel_vectors.json")
TILE = 4 * LANES * SUBLANES          # bytes of one vector register
# Coefficients: start, bounds, what it is. All are free of a chip's speed: times are
# in microseconds, traffic in units of the chip's HBM rate, compute in cycles of a unit.
COEFFICIENTS = {
    "dma_us": (1.2, .6, 2.0, "latency of one window's DMA, paid per grid step"),
    "expand": (1.0, .3, 2.0, "narrow types, and what is reduced, pass through 32-bit windows: "
                             "bytes at HBM rate"),
    "vmem_read": (1.0, .0, 2.0, "VMEM operands where kernels copy them, at HBM rate"),
    "vmem_write": (1.0, .0, 2.0, "VMEM results of matmuls on such chips, at HBM rate"),
    "tile": (.5, .0, 3.0, "cycles per tile of a copy that the last step does not hide"),
    "tile_op": (.05, .0, .1, "cycles per tile and vector operation"),
    "tile_reduce": (1.2, .0, 6.0, "cycles per tile reduced next to a matmul"),
    "fill": (256, 64, 1024, "cycles to fill and drain a 128-wide array, per grid step"),
    "fill_wide": (1024, 128, 4096, "the same for a 256-wide array"),
    "start": (200, 0, 2000, "cycles around a matmul that has DMAs"),
    "load": (512, 128, 2048, "weights loaded into an array per cycle"),
}


# ---- What a kernel is ----------------------------------------------------------

def shape_of(text):
    """'bf16[8, 128]S1' -> (element bytes, dims, memory space)."""
    m = re.match(r"(\w+)\[([^\]]*)\]S(\d+)", text)
    if m is None or m[1] not in SIZES:
        return None
    dims = [int(x) for x in m[2].split(",") if x.strip()]
    return SIZES[m[1]], dims, int(m[3])


def ints(text):
    return [int(x) for x in re.findall(r"\d+", text or "")]


def tiles_of(dims):
    """8 x 128 tiles of the layout that pads least; a scalar takes none."""
    if not dims:
        return 0
    if len(dims) == 1:
        return math.ceil(dims[0] / (LANES * SUBLANES))
    lead = int(np.prod(dims[:-2], dtype=np.int64))
    a, b = dims[-2], dims[-1]
    return lead * min(math.ceil(a / SUBLANES) * math.ceil(b / LANES),
                      math.ceil(b / SUBLANES) * math.ceil(a / LANES))


# Names of ops that cost a vector unit nothing of their own.
STRUCTURE = {"parameter", "fusion", "bitcast", "convolution", "constant", "tuple",
             "get-tuple-element", "copy", "reduce", "reduce-window", "dot"}


def features(k):
    """A kernel as the formula sees it; the fields of at_tpu_kernel (cost/tpu.h)."""
    shapes_in = [s for s in map(shape_of, k["ins"]) if s and s[2] < 2]
    shapes_out = [s for s in map(shape_of, k["out"]) if s and s[2] < 2]
    ops = k["ops"] or {}
    steps = int(np.prod(ints(k["iters"]) or [1]))
    f = dict(kind="loop", steps=steps, out_windows=steps, hbm_in=0., hbm_out=0.,
             vmem_in=0., in_tiles=0., out_tiles=0., vmem_out_narrow=0., hbm_out_narrow=0., tiles=0., narrow_tiles=0.,
             ops=float(sum(n for o, n in ops.items() if o not in STRUCTURE)),
             reduces=float(ops.get("reduce", 0) + ops.get("reduce-window", 0)),
             rows=0., cols=0., depth=0., batch=0., operand_bytes=4., repeat=1.)
    if k["op"] != "fusion":
        f["ops"] = .5     # a kernel of one operation keeps more units busy
        f["reduces"] = float(k["op"] == "reduce")
    moves = k["op"] in ("copy", "transpose", "slice", "dynamic-slice", "pad", "reshape")
    if moves:
        f["kind"], f["ops"] = "copy", 0.
    out_tiles = max([tiles_of(s[1]) for s in shapes_out] + [0])
    for size, dims, space in shapes_in:
        t = tiles_of(dims)
        if k["op"] in ("slice", "dynamic-slice") or ops.get("dynamic-slice"):
            t = min(t, out_tiles)     # a slice reads what it keeps
        f["tiles"] = max(f["tiles"], t)
        f["in_tiles"] += t
        if size < 4:
            f["narrow_tiles"] = max(f["narrow_tiles"], t)
        f["vmem_in" if space else "hbm_in"] += t * TILE / 4 * size
    for size, dims, space in shapes_out:
        t = tiles_of(dims)
        f["tiles"] = max(f["tiles"], t)
        if size < 4:
            f["narrow_tiles"] = max(f["narrow_tiles"], t)
        f["out_tiles"] += t
        if space:
            f["vmem_out_narrow"] += t if size < 4 else 0
        else:
            f["hbm_out"] += t * TILE / 4 * size
            f["hbm_out_narrow"] += t if size < 4 else 0
    if not k["nconv"] and max([s[0] for s in shapes_in + shapes_out] + [1]) < 4:
        f["ops"] /= 2     # in registers of narrow elements
    if k["nconv"]:
        contraction(k, shapes_in, shapes_out, f)
    elif f["reduces"]:
        f["kind"] = "reduce"
    return f


def contraction(k, shapes_in, shapes_out, f):
    f["kind"] = "matmul"
    f["repeat"] = float(k["nconv"])
    big = max(shapes_out, key=lambda s: np.prod(s[1], dtype=np.int64))
    d = [1] * (2 - len(big[1])) + list(big[1])
    main = [s for s in shapes_in if len(s[1]) >= 2]
    f["operand_bytes"] = float(min([s[0] for s in main] + [4]))
    depth = k["flops"] / 2 / k["nconv"] / max(1, np.prod(d, dtype=np.int64))
    counts = ints(k["iters"])
    if len(counts) > len(d) and counts[-1] > 1:     # the last grid axis splits the sum
        f["out_windows"] = f["steps"] // counts[-1]
    for s in main:
        c = s[1]
        if len(d) == len(c) == 4 and c[3] == d[3] and max(c[0], c[1]) <= 11 and \
                abs(np.prod(c[:3]) - depth) < 1.5:
            act = max((o for o in main if len(o[1]) == 4 and o is not s),
                      key=lambda o: np.prod(o[1], dtype=np.int64), default=None)
            stride = max(1, round(act[1][1] / d[1])) if act else 1
            taps = c[0] * c[1]
            if stride > 1:     # space to depth
                taps = math.ceil((c[0] + 1) / stride) * math.ceil((c[1] + 1) / stride)
            f.update(rows=float(np.prod(d[:3])), cols=float(d[3]), batch=float(taps),
                     depth=float(c[2] * stride * stride), kind="conv")
            return
    lead = list(d[:-2])
    batched = len(d) > 2 and all(len(s[1]) > 2 for s in main if s[1][-1] > 1) and \
        sum(list(s[1][:len(lead)]) == lead for s in main) >= 2
    f["batch"] = float(np.prod(lead)) if batched else 1.
    f["rows"] = float(d[-2] * (1 if batched else np.prod(lead)))
    f["cols"] = float(d[-1])
    f["depth"] = float(max(1., depth))


# ---- The formula -----------------------------------------------------------------

class Chip:
    def __init__(self, name):
        path = os.path.join(ROOT, "data", "hw", name + ".json")
        figures = json.load(open(path))
        get = lambda key: figures[key]["value"]
        self.name = name
        self.clock = get("clock_hz")
        self.cores = get("cores_per_device")
        self.rate = get("hbm_achieved_bytes_per_second_per_chip") / self.clock
        self.mxu = get("mxu_columns")
        # Arrays that the published peaks amount to, and how much faster bytes go.
        self.mxus = get("bf16_flops_per_second_per_chip") / (2 * self.clock * self.mxu ** 2)
        self.byte_speed = max(1., get("int8_ops_per_second_per_chip") /
                              get("bf16_flops_per_second_per_chip"))
        self.direct_vmem = get("direct_vmem")


def array_cycles(f, chip, c):
    """Cycles of the matrix units: rows stream through arrays of weights."""
    n = chip.mxu
    batch = f["batch"]
    if f["kind"] == "conv" and n > 128 and f["depth"] <= n / 2:
        batch /= 2                    # two taps side by side
    def passes(rows, cols):
        rows = math.ceil(rows / SUBLANES) * SUBLANES
        return math.ceil(f["depth"] / n) * math.ceil(cols / n) * max(rows, n * n / c["load"])
    least = passes(f["rows"], f["cols"])
    if f["kind"] == "matmul":
        least = min(least, passes(f["cols"], f["rows"]))
    rate = chip.mxus * (chip.byte_speed if f["operand_bytes"] == 1 else 1)
    return least * batch * f["repeat"] / rate


def cycles(f, chip, c):
    if f["tiles"] == 0 or f["hbm_in"] + f["vmem_in"] == 0 and f["kind"] != "matmul" and \
            f["kind"] != "conv":
        return c["tile"] * f["tiles"] + f["hbm_out"] / chip.rate   # nothing to wait for
    latency = c["dma_us"] * 1e-6 * chip.clock
    steps = math.ceil(f["steps"] / chip.cores)
    tile = TILE / chip.rate           # cycles that one 32-bit tile takes at HBM rate
    vector = c["tile_op"] * f["ops"] * f["tiles"] / chip.cores
    if f["kind"] in ("matmul", "conv"):
        return matmul_cycles(f, chip, c, latency, steps, tile, vector)
    traffic = (f["hbm_in"] + f["hbm_out"]) / chip.rate + c["expand"] * tile * expanded(f)
    if not chip.direct_vmem and f["kind"] != "copy":
        traffic += c["vmem_read"] * f["vmem_in"] / chip.rate
    elif f["kind"] == "copy" and f["hbm_in"] + f["hbm_out"] == 0 and not f["narrow_tiles"]:
        traffic += f["vmem_in"] / chip.rate
    dma = latency + traffic / steps
    work = window_work(f, chip, c) / steps
    return dma + (steps - 1) * max(work, dma) + work


def expanded(f):
    """Tiles that pass through 32-bit windows."""
    narrow = f["hbm_out_narrow"] + f["vmem_out_narrow"]
    if f["kind"] == "reduce":
        return f["tiles"]
    if f["kind"] == "copy":
        return f["narrow_tiles"]
    return min(narrow, f["tiles"]) if narrow == f["out_tiles"] else 0


def window_work(f, chip, c):
    """Of the vector unit, on all windows."""
    if f["kind"] == "copy":
        return c["tile"] * f["tiles"] / chip.cores
    work = c["window_in"] * f["in_tiles"] + c["window_op"] * f["ops"] * f["tiles"]
    if f["narrow_tiles"]:
        work += c["window_narrow"] * expanded(f)
    return work / chip.cores


def matmul_cycles(f, chip, c, latency, steps, tile, vector):
    """A pipeline over grid steps: first window in, steps, last window out."""
    windows = max(1, f["out_windows"] // chip.cores)
    moved_in = f["hbm_in"] / chip.rate
    out = f["hbm_out"] / chip.rate + c["expand"] * tile * min(f["hbm_out_narrow"], f["tiles"])
    kept = 0. if chip.direct_vmem else c["vmem_write"] * tile * f["vmem_out_narrow"]
    dmas = f["hbm_in"] + f["hbm_out"] > 0 or not chip.direct_vmem and f["narrow_tiles"] > 0
    fill = c["fill"] if chip.mxu <= 128 else c["fill_wide"]
    if steps == 1 and dmas and chip.direct_vmem:
        fill = 0.                     # hidden behind the exposed DMAs
    array = array_cycles(f, chip, c)
    compute = max(array, vector) / steps + fill
    dma = (latency if dmas else 0.) + (moved_in + out + kept) / steps
    total = compute + (steps - 1) * max(compute, dma)
    if f["reduces"]:
        total += c["tile_reduce"] * f["out_tiles"] / chip.cores
    if dmas:
        total += 2 * latency + c["start"] + moved_in / steps + out / windows
        total += (windows - 1) * latency if windows < steps else 0.
        total += kept / windows if dma > compute else 0.
    return total


# ---- Samples, fit, errors ----------------------------------------------------------

LEAST_CYCLES = 1000     # smaller kernels are not judged


class Sample:
    def __init__(self, chip, program, name, f, given, judged):
        self.chip, self.program, self.name = chip, program, name
        self.features, self.given, self.judged = f, given, judged


def read_samples(path, chips):
    samples = []
    for key, p in json.load(open(path)).items():
        chip, program = key.split("/", 1)
        seen = set()
        for k in p.get("kernels", []):
            same = (k["cycles"], str(k["out"]), str(k["ins"]), str(k["ops"]))
            judged = same not in seen and k["cycles"] >= LEAST_CYCLES
            seen.add(same)
            chips.setdefault(chip, None)
            chips[chip] = chips[chip] or Chip(chip)
            samples.append(Sample(chip, program, k["name"], features(k),
                                  float(k["cycles"]), judged))
    return samples


def read_model():
    rows = json.load(open(MODEL))["coefficients"]
    return {n: r["value"] for n, r in rows.items()}


def predict(samples, chips, c):
    return np.array([cycles(s.features, chips[s.chip], c) for s in samples])


def fit(samples, chips, start=None):
    """Least squares of the logarithm, soft on outliers, with a pull to the start."""
    fixed = read_model()
    names = list(COEFFICIENTS)
    spec = [COEFFICIENTS[n] for n in names]
    lo, hi = np.array([s[1] for s in spec], float), np.array([s[2] for s in spec], float)
    prior = np.array([s[0] for s in spec], float)
    used = [s for s in samples if s.judged]
    given = np.log([s.given for s in used])

    def residuals(x):
        c = dict(fixed, **dict(zip(names, x * (hi - lo) + lo)))
        r = np.log(np.maximum(predict(used, chips, c), 1)) - given
        return np.concatenate([r, .02 * (x - (prior - lo) / (hi - lo))])
    x0 = (prior - lo) / (hi - lo) if start is None else \
        (np.array([start[n] for n in names]) - lo) / (hi - lo)
    best = optimize.least_squares(residuals, np.clip(x0, 1e-3, 1 - 1e-3), bounds=(0, 1),
                                  loss="soft_l1", f_scale=.05, diff_step=1e-3, max_nfev=40)
    return dict(fixed, **dict(zip(names, (best.x * (hi - lo) + lo).tolist())))


def errors(samples, predicted):
    """Median and p90 per kernel, median of program totals, rank correlation."""
    e = np.array([abs(p / s.given - 1) for s, p in zip(samples, predicted) if s.judged])
    totals = {}
    for s, p in zip(samples, predicted):
        t = totals.setdefault((s.chip, s.program), [0., 0.])
        t[0] += s.given
        t[1] += p
    given, got = np.array(list(totals.values())).T
    return dict(kernels=len(e), median=float(np.median(e)), p90=float(np.quantile(e, .9)),
                worst=float(e.max()), programs=len(given),
                total_median=float(np.median(abs(got / given - 1))),
                rank=float(stats.spearmanr(given, got)[0]) if len(given) > 2 else 1.)


def left_out(samples, chips, c):
    """Each program (on every chip) predicted by a fit that has not seen it."""
    out = np.zeros(len(samples))
    for program in sorted({s.program for s in samples}):
        rest = fit([s for s in samples if s.program != program], chips, c)
        at = [i for i, s in enumerate(samples) if s.program == program]
        out[at] = predict([samples[i] for i in at], chips, rest)
    return out


def report(title, samples, predicted):
    rows = {}
    for chip in sorted({s.chip for s in samples}):
        at = [i for i, s in enumerate(samples) if s.chip == chip]
        rows[chip] = errors([samples[i] for i in at], predicted[at])
        r = rows[chip]
        print(f"{title:28s} {chip:4s} {r['kernels']:3d} kernels: median {r['median']:6.1%} "
              f"p90 {r['p90']:6.1%} worst {r['worst']:6.1%}; {r['programs']} programs: "
              f"median {r['total_median']:6.1%} rank {r['rank']:.4f}")
    return rows


# ---- What is written ---------------------------------------------------------------

def write_model(path, c, found):
    # The rest were read off tools/time_rows.py's rows and single kernels; they stay.
    rows = json.load(open(path))["coefficients"]
    rows.update({n: dict(value=float(f"{c[n]:.6g}"), meaning=COEFFICIENTS[n][3])
                 for n in COEFFICIENTS})
    with open(path, "w") as out:
        json.dump(dict(source="tools/fit_tpu.py on estimated_cycles of the TPU compiler",
                       coefficients=rows, errors=found), out, indent=1)
        out.write("\n")


def write_vectors(path, samples, chips, c):
    rows, seen = [], set()
    for s in samples:
        row = dict(chip=s.chip, given=s.given, **s.features)
        row["cycles"] = float(f"{cycles(s.features, chips[s.chip], c):.9g}")
        text = json.dumps(row)
        if text not in seen:
            seen.add(text)
            rows.append(text)
    with open(path, "w") as out:
        out.write("[\n" + ",\n".join(rows) + "\n]\n")


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("estimates")
    args.add_argument("--evaluate", action="store_true")
    args.add_argument("--vectors", action="store_true",
                      help="with --evaluate: write the vectors of these coefficients")
    args.add_argument("--worst", type=int, default=0, help="print the worst kernels")
    args = args.parse_args()
    chips = {}
    samples = read_samples(args.estimates, chips)
    if args.evaluate:
        c = read_model()
        got = predict(samples, chips, c)
        report("as fitted", samples, got)
        if args.vectors:
            write_vectors(VECTORS, samples, chips, c)
    else:
        c = fit(samples, chips)
        found = dict(fitted=report("fitted on all", samples, predict(samples, chips, c)))
        got = left_out(samples, chips, c)
        found["program_left_out"] = report("one program left out", samples, got)
        for chip in sorted(chips):
            others = fit([s for s in samples if s.chip != chip], chips)
            mine = [s for s in samples if s.chip == chip]
            rows = report("fitted on the other chip", mine, predict(mine, chips, others))
            found.setdefault("chip_left_out", {}).update(rows)
        write_model(MODEL, c, found)
        write_vectors(VECTORS, samples, chips, read_model())
        points = [(s.given, p, s.chip) for s, p in zip(samples, got) if s.judged]
        plot.write(os.path.join(ROOT, "docs", "img", "tpu_kernels.svg"),
                   "TPU kernels, each program left out of the fit", points)
        totals = {}
        for s, p in zip(samples, got):
            t = totals.setdefault((s.chip, s.program), [0., 0., s.chip])
            t[0] += s.given
            t[1] += p
        plot.write(os.path.join(ROOT, "docs", "img", "tpu_programs.svg"),
                   "Sums over programs, each left out of the fit",
                   [tuple(t) for t in totals.values()])
    order = sorted(range(len(samples)), key=lambda i: -abs(got[i] / samples[i].given - 1))
    for i in [i for i in order if samples[i].judged][:args.worst]:
        s = samples[i]
        print(f"{got[i] / s.given - 1:+7.1%} {s.chip} {s.program} {s.name}: "
              f"given {s.given:.0f}, predicted {got[i]:.0f}")


if __name__ == "__main__":
    sys.exit(main())
