#!/usr/bin/env python3
"""Converts XLA's published GPU tables, given as JSON lists, to data/perf/*.perf.

usage: convert_perf.py gpu_collectives.json gpu_matmul.json gpu_op_cycles.txtpb OUT_DIR

One entry of the first list is {device, opcode, dtype, elems, groups, group_size, pairs,
throughput_Bps}, of the second {device, b, m, n, k, dtypes, flops}.
"""
import collections, json, pathlib, re, sys

SOURCE = ("openxla/xla, xla/service/gpu/model (default collective and matmul performance tables, op "
          "profiles), "
          "Apache-2.0, (c) The OpenXLA Authors; form changed, values not")
DOMAIN = {"sm_90": 8, "sm_100_B200": 8, "sm_100_GB200": 72, "sm_103": 72}


def series_of(e):
    dtype = e["dtype"].lower()
    if e["pairs"]:
        return f"collective {e['opcode']} {dtype} pairs " + " ".join(f"{s}>{t}" for s, t in e["pairs"])
    return f"collective {e['opcode']} {dtype} groups {e['groups']}x{e['group_size']}"


def main():
    collectives, matmul, out = json.load(open(sys.argv[1])), json.load(open(sys.argv[2])), sys.argv[4]
    tables = collections.defaultdict(lambda: collections.defaultdict(list))
    for e in collectives:
        assert e["dtype"] == "F32"
        size = e["elems"] * 4 * (e["group_size"] if e["opcode"] == "reduce-scatter" else 1)
        tables[e["device"]][series_of(e)].append(((size,), e["throughput_Bps"]))
    for e in matmul:
        lhs, rest = e["dtypes"].split("x", 1) if not e["dtypes"].startswith("x") else ("", "")
        rhs, result = rest.split("->")
        tables[e["device"]][f"gemm {lhs} {rhs} {result}"].append(
            ((e["b"], e["m"], e["n"], e["k"]), e["flops"]))
    cycles = collections.defaultdict(list)
    device = ""
    for key, op, dtype, count in re.findall(
            r'key: "([^"]+)"|opcode: "([^"]+)"\s*shape \{ element_type: (\w+) \}\s*\}\s*clock_cycles: (\d+)',
            open(sys.argv[3]).read()):
        device = key or device
        if op:
            dtype = re.sub(r"^s(\d+)$", r"i\1", re.sub(r"^u(\d+)$", r"ui\1", dtype.lower()))
            dtype = {"c64": "complex<f32>", "c128": "complex<f64>"}.get(dtype, dtype)
            cycles[device].append(f"cycles {op.replace('-', '_')} {dtype} {count}")
    for device in {**tables, **cycles}:
        table = tables[device]
        lines = ["atoll-perf 1", f"machine {device}", f"source {SOURCE}"]
        if device in DOMAIN:
            lines.append(f"domain {DOMAIN[device]}")
        lines += sorted(cycles[device])
        for key in sorted(table):
            lines.append(key)
            lines += [" ".join(map(str, place + (value,))) for place, value in sorted(table[key])]
        (pathlib.Path(out) / f"{device.lower()}.perf").write_text("\n".join(lines) + "\n")


main()
