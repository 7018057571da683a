#!/usr/bin/env python3
"""Plots of docs/cost.md: what is predicted of left-out points of the GPU tables.

  tools/plot_gpu.py path/to/atoll
"""
import pathlib
import subprocess
import sys
import tempfile

import plot

IMAGES = pathlib.Path(__file__).resolve().parents[1] / "docs" / "img"
NAMES = {"sm_90": "H100", "sm_100_B200": "B200"}
# What, file, title, dashed lines, radius, every how many points
PLOTS = [("collective, size left out", "gpu_collectives.svg", "Collectives, each size left out", 1.4, 3, 1),
         ("GEMM, size left out", "gpu_products.svg", "Products, each size left out (every fifth)", 1.1, 2, 5)]


def main():
    with tempfile.NamedTemporaryFile("r") as file:
        subprocess.run([sys.argv[1], "cost", "evaluate", f"--points={file.name}", *NAMES], check=True)
        rows = [line.rstrip("\n").split("\t") for line in file]
    for what, name, title, band, radius, step in PLOTS:
        points = [(float(given) * 1e6, float(got) * 1e6, NAMES[machine])
                  for kind, mode, machine, given, got in rows if kind == what and mode == "atoll"]
        plot.write(IMAGES / name, title, points[::step], unit="us", lo=0, band=band, radius=radius)


if __name__ == "__main__":
    main()
