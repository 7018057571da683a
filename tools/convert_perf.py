#!/usr/bin/env python3
"""Converts XLA's published GPU tables, given as JSON lists, to data/perf/*.perf.

usage: convert_perf.py gpu_collectives.json gpu_matmul.json OUT_DIR

One entry of the first list is {device, opcode, dtype, elems, groups, group_size, pairs,
throughput_Bps}, of the second {device, b, m, n, k, dtypes, flops}.
"""
import collections, json, pathlib, sys

SOURCE = ("openxla/xla, xla/service/gpu/model (default collective and matmul performance tables), "
          "Apache-2.0, (c) The OpenXLA Authors; form changed, values not")
DOMAIN = {"sm_90": 8, "sm_100_B200": 8, "sm_100_GB200": 72, "sm_103": 72}


def series_of(e):
    dtype = e["dtype"].lower()
    if e["pairs"]:
        return f"collective {e['opcode']} {dtype} pairs " + " ".join(f"{s}>{t}" for s, t in e["pairs"])
    return f"collective {e['opcode']} {dtype} groups {e['groups']}x{e['group_size']}"


def main():
    collectives, matmul, out = json.load(open(sys.argv[1])), json.load(open(sys.argv[2])), sys.argv[3]
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
    for device, table in tables.items():
        lines = ["atoll-perf 1", f"machine {device}", f"source {SOURCE}", f"domain {DOMAIN[device]}"]
        for key in sorted(table):
            lines.append(key)
            lines += [" ".join(map(str, place + (value,))) for place, value in sorted(table[key])]
        (pathlib.Path(out) / f"{device.lower()}.perf").write_text("\n".join(lines) + "\n")


main()
