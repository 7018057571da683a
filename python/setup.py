"""Puts the libraries and the `atoll` command into the wheel.

ATOLL_LIBRARY names a libatoll.so that is built already, with the other files beside it;
without it, they are built in ATOLL_BUILD, or in a folder of its own from the checkout that
this folder is part of.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
  from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
  from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
BESIDE = ("libatoll_input.so", "libatoll_tiles.so", "atoll")
# Debian's packages of what is linked into libatoll.so.
LINKED = ("llvm-19-dev", "libopenblas-serial-dev", "zlib1g-dev", "libzstd-dev",
          "gcc-12-base")  # the runtimes of C and C++


def built(scratch: Path) -> tuple[Path, Path]:
  """libatoll.so, and the folder of the other files."""
  ready = os.environ.get("ATOLL_LIBRARY")
  if ready:
    return Path(ready), Path(ready).parent
  build = Path(os.environ.get("ATOLL_BUILD") or (scratch / "cmake").resolve())
  if not (build / "build.ninja").is_file():
    source = HERE.parent
    if not (source / "CMakeLists.txt").is_file():
      raise SystemExit(
          "no CMakeLists.txt beside the python folder\n"
          "hint: build from a checkout, or set ATOLL_LIBRARY to a libatoll.so")
    subprocess.run(
        ["cmake", "-S", source, "-B", build, "-G", "Ninja",
         "-DCMAKE_BUILD_TYPE=Release", f"-DAT_PYTHON={sys.executable}",
         f"-DCMAKE_C_COMPILER={os.environ.get('CC', 'clang-19')}"],
        check=True)
  subprocess.run(["ninja", "-C", build, "atoll_portable", "atoll_input", "atoll_tiles",
                  "atoll_cli"], check=True)
  return build / "portable" / "libatoll.so", build


class BuildWithLibrary(build_py):

  def run(self):
    super().run()
    scratch = Path(self.get_finalized_command("build").build_temp)
    target = Path(self.build_lib) / "atoll"
    target.mkdir(parents=True, exist_ok=True)
    library, folder = built(scratch)
    shutil.copy(library, target / "libatoll.so")
    for name in BESIDE:
      shutil.copy(folder / name, target / name)
      subprocess.run(["strip", "--strip-unneeded", target / name], check=True)
    self.licenses(target / "licenses")

  def licenses(self, target: Path):
    target.mkdir(exist_ok=True)
    for name in LINKED:
      text = Path("/usr/share/doc") / name / "copyright"
      if text.is_file():
        shutil.copyfile(text, target / f"{name}.txt")
      else:
        self.warn(f"no {text}: the wheel lacks that licence")


class BinaryDistribution(Distribution):

  def has_ext_modules(self):  # the wheel is for one platform
    return True


class ForEveryPython(bdist_wheel):
  """One wheel for all versions: ctypes loads the libraries. What they need of glibc is
  what 2.34 has (dist.sh checks it)."""

  def get_tag(self):
    return "py3", "none", "manylinux_2_34_x86_64"


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": ForEveryPython},
      distclass=BinaryDistribution)
