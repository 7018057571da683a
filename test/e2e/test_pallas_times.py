"""The time that Atoll predicts for Pallas kernels is the TPU compiler's own estimate, within bounds.

Rows of even seeds have not been looked at while figures were fitted. The compiler is not asked here: its estimates are
in data/tpu/pallas_made_rows.json (tools/pallas_time_rows.py collect).
"""
import os
import sys

import pytest

ROOT = os.environ.get("AT_SOURCE_DIR", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import pallas_time_rows as tool  # noqa: E402
from atoll._estimate import command_path  # noqa: E402

KERNELS = os.path.join(ROOT, "tools", "pallas_time_made.py")
LAYOUTS = os.path.join(ROOT, "data", "tpu", "pallas_layout_rows.json")
PIPELINE = 95  # bundles of the compiler's that move windows
ROWS = os.path.join(ROOT, "data", "tpu", "pallas_made_rows.json")
MOST = 60  # kernels of a chip, to be done in time


@pytest.mark.parametrize("target", ["v5e", "v5p", "v6e"])
def test_rows_left_out_of_the_fit(target):
    rows = tool.read_rows(ROWS)[target]
    kernels = tool.estimated(tool.kernels_of(KERNELS), rows, "even")
    assert len({family for family, *_ in kernels}) >= 14
    kernels = kernels[::max(1, -(-len(kernels) // MOST))]
    assert len(kernels) >= 40
    found = tool.predicted(kernels, target, command_path())
    untimed = {n: k for n, k in found.items() if not isinstance(k, dict)}
    assert not untimed
    median, p90 = tool.errors([(rows[name]["cycles"], found[name]["cycles"]) for _, name, *_ in kernels])
    assert median <= .15, f"{median:.1%}"
    assert p90 <= .40, f"{p90:.1%}"


def test_layouts_are_the_compilers():
    """Bundles are near those of the compiler's code, large spills are seen, and VMEM is the same, in its order."""
    rows = tool.read_rows(LAYOUTS)["v6e"]
    kernels = [k for k in tool.kernels_of(KERNELS) if k[1] in rows]
    assert len(kernels) == len(rows) >= 10
    found, pairs = tool.predicted(kernels, "v6e", command_path(), "--lines"), []
    for name, row in rows.items():
        mine = found[name]
        regions = [r["bytes"] for r in mine["vmem"]]
        assert regions == row["vmem"][:len(regions)], name  # behind them lies what was spilled
        pairs.append((row["bundles"], sum(line["bundles"] for line in mine["lines"]) + PIPELINE))
        if row["spills"] > 3 * 64:
            assert max(line["spills"] for line in mine["lines"]) > 64, name
        if row["spills"] == 0:
            assert max(line["spills"] for line in mine["lines"]) < 32, name
    median, p90 = tool.errors(pairs)
    assert median <= .25, f"{median:.1%}"
    assert p90 <= .50, f"{p90:.1%}"
