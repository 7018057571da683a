"""The tutorials: every notebook's cells of code run, in order, in a Python of their own, without Jupyter."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(os.environ["AT_SOURCE_DIR"]) / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NEEDS = {"pytorch": "torch_xla", "dlrm": "jax_tpu_embedding"}
RUN = """
import json, sys
cells = [c for c in json.load(open(sys.argv[1]))["cells"] if c["cell_type"] == "code"]
names = {"__name__": "__main__"}
for i, cell in enumerate(cells, 1):
    exec(compile("".join(cell["source"]), f"{sys.argv[1]} cell {i}", "exec"), names)
print("ran", len(cells), "cells")
"""


def test_there_are_all():
    assert len(NOTEBOOKS) == 7


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook(path, tmp_path):
    needs = NEEDS.get(path.stem)
    if needs and not importlib.util.find_spec(needs):
        pytest.skip(f"{needs} is not installed")
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4 and notebook["cells"][0]["cell_type"] == "markdown"
    assert not any(c.get("outputs") for c in notebook["cells"]), "save it without outputs"
    # Source lines of kernels in errors want a file.
    script = tmp_path / "run.py"
    script.write_text(RUN)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ATOLL_CHECK", "ATOLL_TARGET", "JAX_PLATFORMS"))}
    done = subprocess.run([sys.executable, script, path], cwd=FOLDER, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("cells")
