"""Nothing is silent: every knob with good, bad, empty and huge values, clients
that cannot be made, and what the Python package says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ATOLL = Path(os.environ["TPU_LIBRARY_PATH"]).with_name("atoll")
TABLE = json.loads(subprocess.run([ATOLL, "config", "--json"], capture_output=True,
                                  text=True, check=True).stdout)

# A client per case, each in a fork of one process: prints what each ended with, and
# what it wrote to stderr.
CASES = r"""
import json, os, sys, tempfile
from jaxlib import xla_client
library, cases = json.loads(sys.stdin.read())
xla_client.load_pjrt_plugin_dynamically("tpu", library)
xla_client.initialize_pjrt_plugin("tpu")
out = []
for name, value in cases:
  with tempfile.TemporaryFile() as said:
    child = os.fork()
    if not child:
      os.dup2(said.fileno(), 2)
      os.environ[name] = value
      code = 0
      try:
        for _ in range(2):  # what is said is said once
          try:
            xla_client.make_c_api_client("tpu", {}, None)
          except Exception as e:
            code = 1
      finally:
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said.seek(0)
    text = said.read().decode().splitlines(True)  # without jaxlib's own log
    out.append((code, "".join(x for x in text if ".cc:" not in x)))
print(json.dumps(out))
"""


def clients(library, cases):
  clean = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
  p = subprocess.run([sys.executable, "-c", CASES], input=json.dumps([library, cases]),
                     capture_output=True, text=True, env=clean, timeout=300)
  assert p.returncode == 0, p.stderr
  return json.loads(p.stdout)


def test_every_knob_at_a_client(library, tmp_path):
  (tmp_path / "file").write_text("{}")
  cases, good = [], []
  for row in TABLE:
    for which in ("good", "bad"):
      for value in row[which].replace("$T", str(tmp_path)).split("|"):
        if row["name"] == "ATOLL_POD" and which == "good": continue  # nobody is there (test_pod.py)
        cases.append((row["name"], value))
        good.append(which == "good")
    for value, fine in (("", True), ("x" * 100000, False), ("9" * 100000, False)):
      cases.append((row["name"], value))
      good.append(fine)
  assert len(cases) > 8 * len(TABLE)
  for (name, value), fine, (code, said) in zip(cases, good, clients(library, cases)):
    if fine:
      if (name, value) == ("ATOLL_BANNER", "on"):
        assert said.startswith("Atoll ") and said.count("\n") == 1, said
        said = ""
      assert (code, said) == (0, ""), (name, value)
    else:
      assert code == 1, (name, value[:80], said)
      assert said.count("atoll error: no client") == 1 and "\nhint: " in said, said
      assert f"{name}={value[:40]}" in said and len(said) < 1000, said


def test_an_unknown_variable_is_a_warning(library):
  (code, said), = clients(library, [("ATOLL_TARGTE", "v5e")])
  assert code == 0 and said.count("ATOLL_TARGTE") == 1 and "ATOLL_TARGET?" in said


def test_jax_is_not_left_in_silence(python):
  """JAX takes its CPU when platforms are not named; the reason is on stderr."""
  p = python("import jax; print(jax.devices()[0].platform, jax.devices()[0].platform)",
             {"JAX_PLATFORMS": "", "ATOLL_TARGET": "v9e"})
  assert p.stdout.split() == ["cpu", "cpu"]
  assert p.stderr.count("atoll error") == 1 and "v9e" in p.stderr and "hint: one of" in p.stderr


# ---- The package
ENTRY = """
import atoll.plugin
from jax._src import xla_bridge
xla_bridge.discover_pjrt_plugins = lambda: atoll.plugin.initialize()
import jax
print(jax.devices()[0].platform)
"""


def entry(python, **env):
  return python("import os; os.environ.pop('TPU_LIBRARY_PATH', None)\nos.environ.update("
                + repr({"JAX_PLATFORMS": "", **env}) + ")\n" + ENTRY)


def needs_another(tmp_path):
  """A shared library that needs one that is not there."""
  source = tmp_path / "a.c"
  source.write_text("int f(void) { return 1; }")
  for name, extra in (("libopenblas.so.99", []), ("libatoll.so", [f"{tmp_path}/libopenblas.so.99"])):
    subprocess.run(["clang-19", "-shared", "-Wl,--no-as-needed", f"-Wl,-soname,{name}", "-o",
                    tmp_path / name, source, *extra], check=True)
  (tmp_path / "libopenblas.so.99").unlink()
  return tmp_path / "libatoll.so"


@pytest.mark.parametrize("case", ["absent", "needs", "other", "named"])
def test_the_package_says_why(python, tmp_path, case):
  (tmp_path / "text").write_text("no library")
  env, said = {
      "absent": ({"ATOLL_LIBRARY": "/nowhere/libatoll.so"}, "no Atoll library at /nowhere"),
      "needs": ({"ATOLL_LIBRARY": str(needs_another(tmp_path))}, "libopenblas0-serial"),
      "other": ({"ATOLL_LIBRARY": str(tmp_path / "text")}, str(tmp_path / "text")),
      "named": ({"ATOLL_LIBRARY": os.environ["TPU_LIBRARY_PATH"], "TPU_LIBRARY_PATH": "/nowhere/l.so"},
                "TPU_LIBRARY_PATH=/nowhere/l.so"),
  }[case]
  p = entry(python, **env)
  assert p.stdout.split() == ["cpu"], p.stderr
  assert p.stderr.count("atoll error") == 1 and said in p.stderr, p.stderr
  assert "Traceback" not in p.stderr
  quiet = entry(python, **{**env, "JAX_PLATFORMS": "cpu"})
  assert "atoll" not in re.sub(r"/\S*", "", quiet.stderr)


ASKED = """
import sys
from jaxlib import xla_client
PROGRAM = "func.func public @main(%a: tensor<f32>) -> tensor<f32> {return %a : tensor<f32>}"
xla_client.load_pjrt_plugin_dynamically("tpu", sys.argv[1])
xla_client.initialize_pjrt_plugin("tpu")
kept = []
for target in sys.argv[2:]:
  try:
    c = xla_client.make_c_api_client("tpu", {"target": target} if target else {}, None)
    kept.append(c)
    c.compile_and_load(PROGRAM, xla_client.DeviceList(tuple(c.devices()[:1])), xla_client.CompileOptions())
    print("made", len(c.devices()), c.devices()[0].device_kind)
  except Exception as e:
    print("failed", str(e).replace("\\n", " "))
"""


@pytest.mark.parametrize("targets, says", [
    (["mk2"], ["made 1 MK2"]),
    (["v5e:2x2", "v5e:2x2", "v4"], ["made 4 TPU v5 lite", "made 4 TPU v5 lite", "failed .*v4.*v5e:2x2"]),
    (["v9", "v5e:2x2", ""], ["failed .*v9", "made 4 TPU v5 lite", "made 4 TPU v5 lite"]),
    (["", "v5e"], ["made 1 TPU v6 lite", "failed .*v5e.*v6e"]),
])
def test_the_target_that_a_client_asks_for_is_what_programs_are_compiled_for(library, tmp_path, targets, says):
  clean = {k: v for k, v in os.environ.items() if not k.startswith(("ATOLL_", "JAX_", "TPU_"))}
  p = subprocess.run([sys.executable, "-c", ASKED, library, *targets], capture_output=True, text=True, timeout=120,
                     env={**clean, "ATOLL_DUMP": str(tmp_path), "ATOLL_CACHE": "off"})
  assert p.returncode == 0, p.stderr
  lines = p.stdout.splitlines()
  assert len(lines) == len(says) and all(map(re.match, says, lines)), p.stdout + p.stderr
  assert (targets == ["mk2"]) == bool(list(tmp_path.rglob("*tiles.txt")))
