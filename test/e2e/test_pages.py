"""Every page that Atoll writes, in a real browser: light, dark and on paper, with what it says, without an error.

AT_SCREENSHOTS names a folder for the pictures of docs/img.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import atoll
import browser as chromium
from pods import ATOLL, LIBRARY, PACKAGE, Pod, environment

TOP = Path(__file__).resolve().parents[2]
SHOTS = os.environ.get("AT_SCREENSHOTS")
pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing())
KERNEL = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl

def softmax_kernel(x, o):
  e = jnp.exp(x[...] - x[...].max(axis=1, keepdims=True))
  o[...] = e / e.sum(axis=1, keepdims=True)

x = jnp.ones((1024, 512))
block = pl.BlockSpec((128, 512), lambda i: (i, 0))
f = pl.pallas_call(softmax_kernel, name="softmax", grid=(8,), in_specs=[block], out_specs=block,
                   out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))
jax.jit(f)(x).block_until_ready()
"""
WORK = """
import jax, jax.numpy as jnp, time
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import numpy as np
mesh = Mesh(np.array(jax.devices()), ("d",))
x = jax.device_put(np.ones((64, 256), np.float32), NamedSharding(mesh, P("d")))
@jax.jit
def train_step(x): return jnp.tanh(x @ x.T @ x)
jax.block_until_ready(train_step(x))
print("here", flush=True)
end = time.time() + 20
while time.time() < end: jax.block_until_ready(train_step(x))
"""


def load(path):
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[path.stem] = module  # dataclasses look there
  spec.loader.exec_module(module)
  return module


def layers(ws, x):
  """Four layers in a loop, recomputed for the gradients, and a head."""
  @jax.checkpoint
  def layer(w, x):
    with jax.named_scope("mlp"):
      return jnp.tanh(x @ w)
  x, _ = jax.lax.scan(lambda x, w: (layer(w, x), None), x, ws)
  with jax.named_scope("head"):
    return jnp.sum(x @ ws[0])


LAYERS = jax.ShapeDtypeStruct((4, 512, 512), jnp.bfloat16), jax.ShapeDtypeStruct((512, 512), jnp.bfloat16)


@pytest.fixture(scope="module")
def browser():
  with chromium.opened() as b:
    yield b


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("pages")


def shoot(browser, name, height=900):
  if SHOTS:
    browser.js("scrollTo(0, 0); document.querySelector('.tip').style.display = 'none'")
    browser.picture(Path(SHOTS) / f"{name}.png", height)


def check_looks(browser, path, canvases=()):
  """Light, dark and paper: colours differ, nothing is dark on paper, the console is silent."""
  colours = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
  seen = {}
  for scheme in ("dark", "light"):
    browser.open(path, scheme)
    seen[scheme] = browser.js(colours)
    assert all(browser.inked(c) > 2 for c in canvases), scheme
    assert not browser.errors()
  assert seen["light"] != seen["dark"]
  assert brightness(seen["dark"][0]) < 60 < 180 < brightness(seen["light"][0])
  browser.media("dark", "print")
  back, ink = browser.js(colours)
  assert brightness(back) > 200 and brightness(ink) < 80, "paper is light"
  assert browser.js("return getComputedStyle(document.querySelector('nav')).display") == "none"
  browser.media("light")
  assert browser.js("return performance.getEntriesByType('resource').length") == 0, "nothing comes from elsewhere"


def brightness(colour):
  return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


# ---- The estimate
@pytest.fixture(scope="module")
def report(folder):
  e = atoll.estimate(jax.jit(jax.grad(layers)), *LAYERS, target="v5e")
  e.html(folder / "report.html", compare="v6e")
  return e, folder / "report.html"


def test_report_looks(browser, report):
  check_looks(browser, report[1], (".flow", ".scopes", ".roofline", "canvas.memory"))


def test_report_says_what_the_estimate_says(browser, report):
  e, path = report
  browser.open(path)
  assert browser.texts("h2") == [
      "Compared", "Compared line by line", *2 * ["Where the time goes", "Timeline of one device",
                                                "Time by scope of the model", "Roofline", "Kernels",
                                                "Memory over time, by value", "Memory at the peak"]]
  rows = browser.rows(".report:first-of-type table.kernels")
  by_name = {op["name"]: op for op in e.ops}
  first = rows[0]
  assert float(first[0]) == pytest.approx(1e6 * by_name[first[5]]["seconds"] * by_name[first[5]]["runs"], abs=0.01)
  assert any("TFLOP" in c or "GFLOP" in c for c in browser.texts(".card"))
  # Model FLOPs leave out what is recomputed: one of the loop's products of four.
  assert 0 < e.model_flops < e.flops and e.mfu < e.hfu
  assert f"{100 * e.mfu:.1f}%\nMFU" in "\n".join(browser.texts(".card")) and f"{100 * e.hfu:.1f}%\nHFU" in "\n".join(
      browser.texts(".card"))


def test_scopes_of_the_model(browser, report):
  e, path = report
  browser.open(path)
  rows = {r[0]: r for r in browser.rows(".report:first-of-type .by-scope")}
  of_mlp = [op for op in e.ops if "mlp" in op["scope"]]
  assert float(rows["mlp"][1]) == pytest.approx(1e6 * sum(op["seconds"] * op["runs"] for op in of_mlp), abs=0.02)
  again = [op for op in of_mlp if "rematted_computation" in op["scope"]]
  assert again and float(rows["mlp"][3]) == pytest.approx(1e6 * sum(op["seconds"] * op["runs"] for op in again), abs=0.02)
  assert "head" in rows and "while" not in rows


def test_loops_turn_by_turn_zoom_and_hover(browser, report):
  browser.open(report[1])
  folded = browser.js("return document.querySelector('.flow').toDataURL()")
  browser.js("document.querySelector('.turns').click()")
  assert browser.js("return document.querySelector('.flow').toDataURL()") != folded
  # Turn by turn, kernels are where a folded loop has only its first turn.
  hits = [browser.mouse(".flow", "mousemove", 0.09 + 0.9 * i / 40, 0.4) for i in range(40)]
  names = {re.match(r"(copy for )?\w+\.\d+", h)[0] for h in hits if h}
  assert len(names) >= 2 and sum(h.startswith(n) for n in names for h in hits) > len(names)
  before = browser.js("return document.querySelector('.flow').toDataURL()")
  browser.mouse(".flow", "wheel", 0.5, 0.2, deltaY=-500)
  assert browser.js("return document.querySelector('.flow').toDataURL()") != before
  browser.mouse(".flow", "dblclick", 0.5, 0.2)
  assert browser.js("return document.querySelector('.flow').toDataURL()") == before
  assert "bound by" in "".join(hits) and not browser.errors()


def test_search(browser, report):
  browser.open(report[1])
  everything = browser.rows(".report:first-of-type table.kernels")
  browser.search("dot_general")
  found = browser.rows(".report:first-of-type table.kernels")
  assert 0 < len(found) < len(everything) and all("dot_general" in " ".join(r) for r in found)
  browser.search("no such kernel")
  assert not browser.rows(".report:first-of-type table.kernels")
  browser.search("")
  assert browser.rows(".report:first-of-type table.kernels") == everything


def test_memory_over_time(browser, report):
  e, path = report
  browser.open(path)
  said = [browser.mouse("canvas.memory", "mousemove", 0.1 + 0.89 * i / 30, 0.5) for i in range(30)]
  assert all("arguments and results" in s for s in said)
  peaks = browser.js("return JSON.parse(document.querySelector('.report script').textContent)")
  sums = [peaks["kept"]] * max(1, len(peaks["steps"]))
  for _, _, _, size, first, last in peaks["lives"]:
    for s in range(first, last + 1):
      sums[s] += size
  assert max(sums) == e.peak_bytes, "the highest point is the peak that is reported"
  assert len(set(said)) > 1


def test_two_reports_line_by_line(browser, report):
  e, path = report
  browser.open(path)
  lines = {r[0]: r for r in browser.rows("table.lines")}
  spent = {}
  for op in e.ops:
    seconds = op["exposed_seconds"] if op["bound"] == "network" else op["seconds"] * op["runs"]
    spent[op["line"]] = spent.get(op["line"], 0) + seconds
  for line, seconds in spent.items():
    assert float(lines[line][1]) == pytest.approx(1e6 * seconds, abs=0.02)
  assert all(float(r[4]) < 1 for r in lines.values() if float(r[1]) > 10), "v6e is faster than v5e"


def test_page_of_a_kernel(browser, folder):
  program = folder / "softmax.py"
  program.write_text(KERNEL)
  done = subprocess.run([ATOLL, "check", "--html=check", program.name], cwd=folder, capture_output=True, text=True,
                        env=environment(ATOLL_TARGET="v5e", TPU_LIBRARY_PATH=LIBRARY, PYTHONPATH=PACKAGE,
                                        PYTHON=sys.executable))
  assert done.returncode == 0, done.stderr
  check_looks(browser, folder / "check" / "softmax.html")
  assert {"Findings", "Grid", "Memory by address", "Advice"} <= set(browser.texts("h2"))
  assert "step 0" in browser.mouse("svg.time", "mousemove", 0.12, 0.17) + browser.mouse("svg.time", "mousemove", 0.2, 0.5)
  first = "return [...document.querySelectorAll('svg.time rect')].filter(r => +r.getAttribute('width') > 0).length"
  whole = browser.js(first)
  browser.mouse("svg.time", "wheel", 0.9, 0.2, deltaY=-900)
  assert browser.js(first) < whole, "what zooming leaves out is not drawn"
  browser.mouse("svg.time", "dblclick", 0.5, 0.2)
  assert browser.js(first) == whole and not browser.errors()
  shoot(browser, "check", 1000)
  browser.open(folder / "check" / "index.html")
  assert browser.rows("table")[0][0] == "softmax" and not browser.errors()


def test_report_of_a_kernel(browser, folder):
  from jax.experimental import pallas as pl

  def add(x, y, o):
    o[...] = x[...] + jnp.tanh(y[...])
  block = pl.BlockSpec((256, 1024), lambda i: (i, 0))
  f = pl.pallas_call(add, name="add_tanh", grid=(16,), in_specs=[block, block], out_specs=block,
                     out_shape=jax.ShapeDtypeStruct((4096, 1024), jnp.float32))
  x = jax.ShapeDtypeStruct((4096, 1024), jnp.float32)
  atoll.estimate(lambda x, y: f(x @ x[:1024], y), x, x, target="v5e").html(folder / "kernel.html")
  check_looks(browser, folder / "kernel.html", (".flow", ".scopes"))
  assert any("add_tanh" in " ".join(r) or "custom_call" in " ".join(r) for r in browser.rows("table.kernels"))
  shoot(browser, "report_kernel")


def test_report_of_a_gpt_step(browser, folder):
  sys.path.insert(0, str(TOP / "demo"))
  gpt, common = load(TOP / "demo" / "gpt.py"), load(TOP / "demo" / "common.py")
  params = jax.eval_shape(lambda: gpt.init(jax.random.key(0), 96))
  state = jax.eval_shape(common.adam_init, params)
  tokens = jax.ShapeDtypeStruct((gpt.BATCH, gpt.CONTEXT + 1), jnp.int32)
  e = atoll.estimate(gpt.train_step, params, state, jax.ShapeDtypeStruct((), jnp.float32), tokens, target="v6e")
  e.html(folder / "gpt.html")
  check_looks(browser, folder / "gpt.html", (".flow", ".scopes", ".roofline", "canvas.memory"))
  assert f"of {len(e.ops)}" in browser.texts(".shown")[0]
  shoot(browser, "report_gpt")


def test_report_of_70b_on_256_chips(browser, folder):
  from atoll import _estimate, _plan, _plan_space
  llama = load(TOP / "examples" / "plan_llama.py")
  plan = llama.plan()
  search = _plan.Search(plan)
  machine = _plan.machine_of("v5p", 256, {})
  lowered = search.lower(_plan_space.Choice((1, machine.devices // 4, 4), "tensor+sequence", "full", 2))
  program = folder / "llama.mlirbc"
  program.write_bytes(_estimate.program_of(lowered))
  done = subprocess.run([ATOLL, "estimate", f"--target={machine.target}", "--json", f"--html={folder / 'llama.html'}", program],
                        capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  e = json.loads(done.stdout)
  check_looks(browser, folder / "llama.html", (".flow", ".scopes", ".roofline", "canvas.memory"))
  assert "Overlap of compute and network" in browser.texts("h2")
  said = " ".join(browser.texts(".key"))
  assert "communication alone: exposed" in said and e["model_flops"] < e["flops"]
  assert "does not fit" not in " ".join(browser.texts(".card")) and e["peak_bytes"] < e["memory_bytes"]
  assert browser.mouse(".flow", "mousemove", 0.5, 0.1) is not None and not browser.errors()
  shoot(browser, "report_70b", 1000)


def test_page_of_a_pod(browser, folder):
  with Pod("--hosts=2", "--target=2*v5e:2x2") as pod:
    work = subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE, text=True,
                            env=environment(ATOLL_POD=pod.address, TPU_LIBRARY_PATH=LIBRARY, PYTHONPATH=PACKAGE))
    try:
      assert work.stdout.readline() == "here\n"
      done = subprocess.run([ATOLL, "pod", "page", f"--out={folder / 'pod.html'}", "--seconds=1"], capture_output=True,
                            text=True, env=environment(ATOLL_POD=pod.address))
      assert done.returncode == 0, done.stderr
    finally:
      work.kill()
      work.wait()
  check_looks(browser, folder / "pod.html")
  assert {"Slice 0", "Slice 1", "What ran last", "Hosts", "Clients"} <= set(browser.texts("h2"))
  assert len(browser.texts(".chips .card")) == 8
  assert browser.js("return document.querySelectorAll('svg.time [data-title]').length") > 0
  browser.search("host 1")
  browser.search("")
  shoot(browser, "pod")


def test_page_of_tiles(browser, folder):
  from atoll import tiles
  x = jnp.ones((64, 128), jnp.float32)
  tiles.profile(lambda x: jnp.tanh(x @ x.T).sum(), x).html(folder / "tiles.html")
  check_looks(browser, folder / "tiles.html")
  assert "Where the cycles go" in browser.texts("h2") and len(browser.texts(".thirds h3")) >= 2
  assert browser.mouse(".thirds svg", "mousemove", 0.004, 0.01).startswith("tile 0:")
  assert not browser.errors()
