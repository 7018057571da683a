"""The `atoll` command, as `python -m atoll` and as the script that the wheel installs."""

import os
import sys
from pathlib import Path

import atoll


def main() -> None:
  """Becomes the command, with this process's arguments."""
  program = Path(atoll.library_path()).with_name("atoll")
  if not program.is_file():
    sys.exit(f"atoll: no command beside {program.parent}/libatoll.so\n"
             "hint: build the target `atoll`, or install the wheel")
  # `atoll run train.py` starts the Python that it was installed for.
  os.environ.setdefault("PYTHON", sys.executable)
  os.execv(program, ["atoll", *sys.argv[1:]])


if __name__ == "__main__":
  main()
