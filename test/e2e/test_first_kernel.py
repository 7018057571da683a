"""From nothing to a kernel that is checked and timed: the commands that README and the first notebook print, in their order,
in an environment of their own. No more than ten are needed."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ["ATOLL_LIBRARY"])


def commands(text):
  """Those in blocks of "sh": a line each, or one with the text that it is given."""
  for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
    lines = iter(block.splitlines())
    for line in lines:
      end = re.search(r"<<'(\w+)'", line)
      while end and not line.endswith("\n" + end[1]):
        line += "\n" + next(lines)
      if line.strip():
        yield line


def printed():
  """(install, kernel): what README and the notebook print."""
  notebook = json.loads((TOP / "docs" / "notebooks" / "first_kernel.ipynb").read_text())
  texts = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown"]
  return list(commands((TOP / "README.md").read_text())), [c for t in texts for c in commands(t)]


def clean_environment(folder):
  """A user's: nothing of a checkout, and HOME elsewhere."""
  kept = {k: v for k, v in os.environ.items()
          if not k.startswith(("ATOLL", "AT_", "JAX_", "PYTHON", "TPU_", "XLA_", "VIRTUAL_ENV", "PIP_"))}
  return {**kept, "HOME": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
  """The wheel alone, in a folder, with this build's library."""
  folder = tmp_path_factory.mktemp("wheel")
  source = tmp_path_factory.mktemp("source") / "python"
  subprocess.run(["cp", "-r", TOP / "python", source], check=True)
  subprocess.run(["cp", TOP / "LICENSE", source.parent], check=True)
  done = subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source],
                        env={**os.environ, "ATOLL_LIBRARY": str(LIBRARY)}, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return next(folder.glob("atoll-*.whl"))


def test_ten_commands_are_enough():
  install, kernel = printed()
  assert 2 <= len(install) and 3 <= len(kernel) and len(install) + len(kernel) <= 10


def test_what_is_printed_leads_to_a_checked_and_timed_kernel(wheel, tmp_path):
  install, kernel = printed()
  folder = tmp_path / "user"
  folder.mkdir()
  (folder / wheel.name).symlink_to(wheel)
  # The JAX of this interpreter counts as installed, so that nothing is fetched: its folder is put on the path of the
  # environment that the first command makes.
  here = next(p for p in sys.path if p.endswith("site-packages"))
  seen = f"for s in */lib/python3*/site-packages; do echo {here} > $s/jax.pth; done"
  script = "\n".join(["set -e", install[0], seen, *install[1:], *kernel])
  done = subprocess.run(["bash", "-c", script], cwd=folder, env=clean_environment(folder), capture_output=True, text=True,
                        timeout=600)
  assert done.returncode == 0, done.stdout + done.stderr
  assert list(folder.glob("*/lib/python3*/site-packages/atoll/libatoll.so")), "the wheel is installed there"
  difference = re.search(r"largest difference: (\S+)", done.stdout)
  assert difference and float(difference[1]) < 1e-5
  timed = re.search(r"on a v5e: ([\d.]+) us", done.stdout)
  assert timed and 1 < float(timed[1]) < 100
  assert "kernel.py: 0 errors, 0 warnings" in done.stdout
  page = (folder / "pages" / "softmax.html").read_text()
  assert "Bound by:" in page and "v5e" in page and "None." in page
