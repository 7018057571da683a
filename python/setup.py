"""Puts libatoll.so, libatoll_input.so and the `atoll` command into the wheel.

ATOLL_LIBRARY names a library that is built already; without it, CMake builds one
from the checkout that this folder is part of.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent


def build_library(scratch: Path) -> Path:
  ready = os.environ.get("ATOLL_LIBRARY")
  if ready:
    return Path(ready)
  source = HERE.parent
  if not (source / "CMakeLists.txt").is_file():
    raise SystemExit(
        "no CMakeLists.txt beside the python folder\n"
        "hint: build from a checkout, or set ATOLL_LIBRARY to a libatoll.so")
  build = (scratch / "cmake").resolve()
  subprocess.run(
      ["cmake", "-S", source, "-B", build, "-G", "Ninja",
       "-DCMAKE_BUILD_TYPE=Release", f"-DAT_PYTHON={sys.executable}",
       f"-DCMAKE_C_COMPILER={os.environ.get('CC', 'clang-19')}"],
      check=True)
  subprocess.run(["ninja", "-C", build, "libatoll.so", "libatoll_input.so", "atoll"], check=True)
  return build / "libatoll.so"


class BuildWithLibrary(build_py):

  def run(self):
    super().run()
    scratch = Path(self.get_finalized_command("build").build_temp)
    target = Path(self.build_lib) / "atoll" / "libatoll.so"
    target.parent.mkdir(parents=True, exist_ok=True)
    library = build_library(scratch)
    shutil.copyfile(library, target)
    for name in ("libatoll_input.so", "atoll"):
      beside = library.with_name(name)
      if beside.is_file():
        shutil.copy(beside, target.with_name(name))


class BinaryDistribution(Distribution):

  def has_ext_modules(self):  # the wheel is for one platform
    return True


setup(cmdclass={"build_py": BuildWithLibrary}, distclass=BinaryDistribution)
