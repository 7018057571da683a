#!/usr/bin/env python3
"""What the checks cost: kernels of the corpus with ATOLL_CHECK and without, on the same random operands.

  tools/pallas_check_cost.py [--library build/release/libatoll.so] [--step 25] [--check all] [-j 1]

Prints the geometric mean of the ratios of kernels that ran to their end both times, and the worst of them.
"""
import argparse
import json
import math
import os
import pathlib

import pallas_corpus

TOP = pathlib.Path(__file__).resolve().parents[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--step", type=int, default=25)
    parser.add_argument("--check", default="all")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60)
    options = parser.parse_args()
    folder = pallas_corpus.unpack()
    entries = [json.loads(l) for l in open(folder / "index.jsonl")][::options.step]
    library = pathlib.Path(options.library).resolve()
    os.environ["PALLAS_CORPUS_REPEATS"] = "3"
    times = []
    for check in ("", options.check):
        os.environ["ATOLL_CHECK"] = check
        times.append(pallas_corpus.run_all(entries, library, options.jobs, options.timeout))
    ratios = sorted((times[1][s][2] / times[0][s][2], s) for s in times[0]
                    if times[0][s][0] == "ok" and times[1].get(s, [""])[0] == "ok")
    if not ratios:
        raise SystemExit("no kernel ran to its end both times")
    mean = math.exp(sum(math.log(r) for r, _ in ratios) / len(ratios))
    print(f"{len(ratios)} of {len(entries)} kernels: geometric mean {mean:.2f}, median {ratios[len(ratios) // 2][0]:.2f}")
    for r, sha in ratios[-5:]:
        entry = next(e for e in entries if e["sha"] == sha)
        print(f"  {r:8.1f}  {times[0][sha][2]:.2f} ms  {sha}  {entry['kernel']}  {entry['test'][:80]}")


if __name__ == "__main__":
    main()
