"""Checks what dist.sh made: python tools/dist_check.py WHEEL TARBALL

What each file needs of a machine (libc and libm alone, nothing of glibc after 2.34), what
it exports, sizes, licences; then installs the wheel into an environment of its own, with
the JAX of this interpreter, and runs a program, the command and a C program.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

GLIBC = (2, 34)
NEEDED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
WHEEL_BYTES, INSTALLED_BYTES = 40 << 20, 100 << 20
EXPORTS = {"libatoll.so": r"GetPjrtApi$", "libatoll_tiles.so": r"atoll_tiles_\w+$",
           "libatoll_input.so": r"atoll_input_\w+$"}
LICENCES = ("llvm", "openblas", "zlib", "zstd", "gcc")

PROGRAM = """
import jax, jax.numpy as jnp
assert jax.default_backend() == "tpu", jax.devices()
print(float(jax.jit(lambda x: jnp.tanh(x @ x.T).sum())(jnp.ones((8, 128)))))
print(float(jnp.linalg.eigvalsh(jnp.eye(4)).sum()))
import atoll, atoll.sparsecore, atoll.tiles
print(atoll.tiles.Graph("mk2").num_tiles)
"""
C_PROGRAM = """
#include <atoll_input.h>
#include <atoll_tiles.h>
#include <stdio.h>
int main(void) {
  at_tiles_graph *g;
  if (atoll_tiles_open("mk2", &g)) return puts(atoll_tiles_error()), 1;
  printf("%lld\\n", (long long)atoll_tiles_num_tiles(g));
  atoll_tiles_close(g);
  char message[200];
  return atoll_input_start(1, message, sizeof message);
}
"""


def output(*command, **kw) -> str:
  p = subprocess.run(command, capture_output=True, text=True, **kw)
  if p.returncode:
    sys.exit(f"{' '.join(map(str, command))}: exit {p.returncode}\n{p.stdout}{p.stderr}")
  return p.stdout


def check(ok: bool, what: str) -> None:
  print(f"  {'ok' if ok else 'FAILED':6} {what}")
  if not ok:
    sys.exit(1)


def check_binary(path: Path) -> None:
  dynamic = output("readelf", "-dW", path)
  needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
  own = {"libatoll.so"} if path.name == "atoll" else set()
  check(needed <= NEEDED | own, f"{path.name} needs {', '.join(sorted(needed))}")
  paths = set(re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic))
  check(paths == ({"$ORIGIN"} if own else set()), f"{path.name} looks in {paths or 'no folder'}")
  versions = {tuple(map(int, v.split(".")))
              for v in re.findall(r"GLIBC_([\d.]+)", output("readelf", "-VW", path))}
  check(max(versions) <= GLIBC, f"{path.name} runs with glibc {'.'.join(map(str, max(versions)))}")
  # Else the same sources give other bytes in another build folder, or with a compiler cache.
  named = set(re.findall(rb"\.\./src/\w+/\w+\.[ch]\b", path.read_bytes()))
  check(not named, f"{path.name} names sources as the checkout has them")
  names = [line.split()[-1].split("@")[0]
           for line in output("nm", "-D", "--defined-only", path).splitlines()]
  pattern = EXPORTS.get(path.name)
  wrong = [n for n in names if not pattern or not re.match(pattern, n)]
  check(not wrong and (names or not pattern), f"{path.name} exports {len(names)} functions {wrong or ''}")


def check_wheel(wheel: Path, scratch: Path) -> None:
  with zipfile.ZipFile(wheel) as z:
    files = z.infolist()
    z.extractall(scratch / "wheel")
  installed = sum(f.file_size for f in files)
  check(wheel.stat().st_size <= WHEEL_BYTES, f"the wheel has {wheel.stat().st_size / 1e6:.1f} MB")
  check(installed <= INSTALLED_BYTES, f"installed it has {installed / 1e6:.1f} MB")
  folder = scratch / "wheel" / "atoll"
  for name in (*EXPORTS, "atoll"):
    check_binary(folder / name)
  texts = [f.name for f in (folder / "licenses").iterdir()]
  for name in LICENCES:
    check(any(name in t for t in texts), f"the licence of {name}")


def clean_environment() -> dict:
  return {k: v for k, v in os.environ.items()
          if not k.startswith(("ATOLL_", "JAX_", "PYTHON", "TPU_", "XLA_"))}


def check_installed(wheel: Path, scratch: Path) -> None:
  venv.create(scratch / "venv", with_pip=True)
  python = scratch / "venv" / "bin" / "python"
  output(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
         "--no-index", wheel)
  # The JAX that this interpreter has, not its atoll.
  here = next(Path(p) for p in sys.path if p.endswith("site-packages"))
  site = next((scratch / "venv" / "lib").glob("python*/site-packages"))
  (site / "jax.pth").write_text(f"{here}\n")
  env = {**clean_environment(), "ATOLL_CACHE_DIR": str(scratch / "cache")}
  got = output(python, "-c", PROGRAM, env=env, cwd=scratch).split()
  check(got == ["64.0", "4.0", "1472"], f"a JAX program on the installed wheel: {got}")
  command = scratch / "venv" / "bin" / "atoll"
  version = output(command, "--version", env=env).strip()
  check(version == output(python, "-m", "atoll", "--version", env=env).strip(),
        f"the command: {version}")
  program = scratch / "hello.py"
  program.write_text("import jax\nprint(len(jax.devices()))\n")
  got = output(command, "run", program, env={**env, "ATOLL_TARGET": "v5e:2x2"}).strip()
  check(got == "4", f"atoll run on {got} chips")


def check_tarball(tarball: Path, scratch: Path) -> None:
  with tarfile.open(tarball) as t:
    t.extractall(scratch / "tar")
  prefix = next((scratch / "tar").iterdir())
  (scratch / "t.c").write_text(C_PROGRAM)
  env = {**clean_environment(), "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
  flags = [f"-I{prefix}/include", f"-L{prefix}/lib", "-latoll_tiles", "-latoll_input"]
  try:
    flags = output("pkg-config", "--cflags", "--libs", "atoll_tiles", "atoll_input",
                   env=env).split()
  except FileNotFoundError:
    print("  no pkg-config here: flags by hand")
  compile = (os.environ.get("CC", "clang-19"), "-std=c17", "-Wall", "-Wextra", "-Werror",
             "-pedantic")
  output(*compile, scratch / "t.c", *flags, f"-Wl,-rpath,{prefix}/lib", "-o", scratch / "t")
  check(output(scratch / "t", env=env).strip() == "1472", "a C program on the tarball")
  examples = prefix / "examples"
  output(*compile, examples / "run_program.c", f"-I{prefix}/include", "-ldl", "-o",
         scratch / "run")
  got = output(scratch / "run", prefix / "lib" / "atoll" / "libatoll.so",
               examples / "twice.mlir", "1", env=env).split("\n")
  check(got[1].split() == ["2"] * 8, f"examples/run_program.c: {got[1]}")
  check(output(prefix / "bin" / "atoll", "--version", env=env).startswith("atoll "),
        "the tarball's command")


def main() -> None:
  wheel, tarball = (Path(p).resolve() for p in sys.argv[1:3])
  with tempfile.TemporaryDirectory() as t:
    scratch = Path(t)
    check_wheel(wheel, scratch)
    check_installed(wheel, scratch)
    check_tarball(tarball, scratch)


if __name__ == "__main__":
  if len(sys.argv) != 3:
    sys.exit(__doc__)
  main()
