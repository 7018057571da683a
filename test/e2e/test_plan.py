"""`atoll plan`: the frontier, the wall of memory, prices, and the code to paste, which runs on Atoll's chips."""

import dataclasses
import json
import sys
from pathlib import Path

import pods
import pytest

import atoll
from atoll import _plan, _plan_report, _plan_space

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODEL = f"""
import dataclasses, sys
sys.path.insert(0, {str(EXAMPLES)!r})
import plan_llama

def plan():
  return dataclasses.replace(plan_llama.plan_tiny(), mesh_axes=("fsdp", "tensor"), microbatches=(1, 2),
                             remat=("none", "full"), rules={{"both": {{**plan_llama.plan_tiny().rules["tensor"],
                                                                     "batch": "fsdp"}}}})

def wrong():
  return 3
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
  path = tmp_path_factory.mktemp("plan") / "model.py"
  path.write_text(MODEL)
  return str(path)


def command(*words):
  return pods.atoll("plan", *words, timeout=300, PYTHONPATH=pods.PACKAGE, PYTHON=sys.executable)


@pytest.fixture(scope="module")
def said(model):
  done = command(model, "--target=v5e", "--chips=4,8", "--json", "--budget=1000")
  assert done.returncode == 0, done.stderr
  assert "programs" in done.stderr and "left" in done.stderr  # progress
  return json.loads(done.stdout)


@pytest.fixture(scope="module")
def search(model):
  from atoll import _plan_command
  return _plan.Search(_plan_command.load(model))


def machine(chips=8):
  return _plan.machine_of("v5e", chips, _plan.PRICES)


def test_every_choice_is_accounted_for(said):
  for found, meshes in zip(said["slices"], (3, 3)):  # of 8 chips one has eight parts of four heads
    forms = [r for r in found["refused"] if r["remat"]]
    assert len(found["fit"]) + len(forms) == meshes * 2 * 2
    assert found["estimated"] <= meshes * 2 * 2 and not found["not_reached"]
    assert all(r["why"] for r in found["refused"])
  eight = said["slices"][1]
  assert any("kv_heads of 4 is not a multiple of 8" in r["why"] for r in eight["refused"])


def test_the_frontier_trades_time_for_memory(said):
  for found in said["slices"]:
    times = [r["seconds"] for r in found["frontier"]]
    peaks = [r["peak_bytes"] for r in found["frontier"]]
    assert times == sorted(times) and peaks == sorted(peaks, reverse=True) and len(set(peaks)) == len(peaks)
    for r in found["fit"]:  # nothing beats the frontier in both
      assert any(f["seconds"] <= r["seconds"] and f["peak_bytes"] <= r["peak_bytes"] for f in found["frontier"])
    assert found["frontier"][0]["seconds"] == min(r["seconds"] for r in found["fit"])


def test_figures_agree(said):
  for found in said["slices"]:
    for r in found["fit"]:
      assert 0 < r["mfu"] < 1 and r["peak_bytes"] <= found["usable_bytes"]
      price = 1.20 * r["chips"] / 3600 * r["seconds"] / (16 * 64) * 1e6
      assert r["price_per_million_tokens"] == pytest.approx(price)
      kernels = sum(v for k, v in r["seconds_by_bound"].items() if not k.startswith("exposed"))
      assert kernels == pytest.approx(r["kernel_seconds"])
      exposed = sum(v for k, v in r["seconds_by_bound"].items() if k.startswith("exposed"))
      assert exposed == pytest.approx(r["exposed_seconds"], abs=1e-9)
    most = max(found["fit"], key=lambda r: r["hfu"] * r["seconds"])
    assert most["remat"] == "full"  # recomputation is work of the hardware, not of the model
  assert said["best"]["price_per_million_tokens"] == min(
      r["price_per_million_tokens"] for f in said["slices"] for r in f["fit"])


def test_memory_is_a_wall(search):
  free = search.run(machine(), 1 << 40, 1000)
  peaks = sorted(r.peak for r in free.results)
  wall = (peaks[len(peaks) // 2 - 1] + peaks[len(peaks) // 2]) // 2
  assert peaks[0] < wall < peaks[-1]
  tight = search.run(machine(), wall, 1000)
  assert {r.choice for r in tight.results} == {r.choice for r in free.results if r.peak <= wall}
  refused = {_plan_space.Choice(r.mesh, r.rules, r.remat, r.microbatches) for r in tight.refused if r.remat}
  assert refused == {r.choice for r in free.results if r.peak > wall}
  state_only = search.state.bytes_of_chip(search.plan.rules["both"], {"fsdp": 8, "tensor": 1})
  nothing = search.run(machine(), state_only // 2, 1000)
  assert not nothing.results and not nothing.programs
  assert any("the state alone" in r.why for r in nothing.refused)


def test_programs_are_estimated_once_and_the_budget_ends_the_search(search, monkeypatch):
  again = search.run(machine(), 1 << 40, 1000)
  asked = []
  monkeypatch.setattr(_plan._estimate, "run_command", lambda *a: asked.append(a))
  assert len(search.run(machine(), 1 << 40, 1000).results) == len(again.results) and not asked
  late = search.run(machine(), 1 << 40, -1)
  assert not late.results and late.unreached == len(again.results)
  assert "not reached in time" in _plan_report.text(search, [late], [1 << 40])


def test_the_report_says_why(model, tmp_path):
  prices = tmp_path / "prices.json"
  prices.write_text('{"v6e": 1}')
  done = command(model, "--target=v5e:2x2", f"--prices={prices}", "--budget=1000")
  assert done.returncode == 0, done.stderr
  for words in ("v5e:2x2 (4 chips", "bound by", "why the fastest is the fastest", "remat ", "microbatches ",
                "to paste", "No time was extrapolated", "MFU"):
    assert words in done.stdout
  row = done.stdout.splitlines()[2]
  assert row.split("%")[2].split()[0] == "-"  # v5e has no price in that table


RUN = """
import sys
sys.path.insert(0, {examples!r})
import jax, json, numpy as np, plan_llama
found = json.load(open({path!r}))
config = plan_llama.TINY
tokens = np.random.default_rng(0).integers(0, config.vocab, (config.batch, config.length), dtype=np.int32)
first = plan_llama.init(config)
alone = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
_, expected = jax.jit(plan_llama.make_step(config, alone, (), lambda f: f, 1))(first, tokens)
assert len(jax.devices()) == 8
for r in found:
  room = dict(init=lambda: plan_llama.init(config), make_step=lambda *a: plan_llama.make_step(config, *a))
  exec(r["code"], room)
  batch = jax.device_put(tokens, room["shardings"](tokens, room["batch_specs"]))
  state, losses = room["state"], []
  for _ in range(3):
    state, loss = room["step"](state, batch)
    losses.append(float(loss))
  assert room["microbatches"] == r["microbatches"] and room["mesh"].size == 8
  w = state["params"]["blocks"]["gate"]
  assert w.addressable_shards[0].data.size * 8 == w.size, w.sharding
  assert abs(losses[0] - float(expected)) < 2e-3, (losses, expected)
  assert losses[2] < losses[1] < losses[0], losses
print("ran", len(found))
"""


def test_the_code_to_paste_runs(said, tmp_path):
  fit = said["slices"][1]["fit"]
  for form in ({"remat": "full", "microbatches": 2}, {"remat": "none", "microbatches": 1}):
    assert any(form.items() <= r.items() for r in fit)
  frontier = said["slices"][1]["frontier"]
  path = tmp_path / "found.json"
  path.write_text(json.dumps(frontier))
  done = pods.python(RUN.format(examples=str(EXAMPLES), path=str(path)), ATOLL_TARGET="v5e:2x4",
                     TPU_LIBRARY_PATH=pods.LIBRARY, JAX_PLATFORMS="tpu")
  assert done.returncode == 0, done.stderr
  assert f"ran {len(frontier)}" in done.stdout


def test_the_large_configurations_lower_for_hundreds_of_chips():
  sys.path.insert(0, str(EXAMPLES))
  import plan_llama
  search = _plan.Search(plan_llama.plan())
  large = _plan.machine_of("v5p", 256, _plan.PRICES)
  assert large.target == "v5p:4x8x8"
  weights = sum(x.size for x in search.state.leaves) / 3
  assert 69e9 < weights < 72e9
  data = search.estimate(large, _plan_space.Choice((1, 256, 1), "tensor", "full", 1))
  assert data["program_devices"] == 256 and data["network_seconds"] > 0
  # Forward, backward and forward again: at least eight FLOPs per weight and token.
  assert data["flops"] * 256 > 8 * weights * 512 * 4096
  assert data["argument_bytes"] >= 3 * 4 * weights / 256


def test_chips_and_slices():
  assert _plan_space.counts_of("16..512") == [16, 32, 64, 128, 256, 512]
  assert _plan_space.counts_of("16,24") == [16, 24]
  for text in ("", "x", "9..10", "0", "16..", "512..16"):
    with pytest.raises(ValueError, match="chips"):
      _plan_space.counts_of(text)
  shapes = {16: (2, 2, 4), 32: (2, 4, 4), 64: (4, 4, 4), 128: (4, 4, 8), 256: (4, 8, 8), 512: (8, 8, 8)}
  assert {n: _plan_space.topology(n, 3) for n in shapes} == shapes
  assert _plan_space.topology(32, 2) == (4, 8)
  with pytest.raises(ValueError, match="100 chips"):
    _plan_space.topology(100, 3)
  assert _plan.machine_of("7x", 8, {}).devices == 16  # two of JAX's devices are a chip


@pytest.mark.parametrize("words, says", [
    (["--target=v5e"], "how many chips"),
    (["--target=v5e:2x2", "--chips=8"], "how many chips"),
    (["--target=v99", "--chips=8"], "v99"),
    (["--target=H100", "--chips=8"], "no TPU"),
    (["--target=v5e", "--chips=1024"], "largest slice"),
    (["--target=v5e", "--chips=4", "--prices=/nowhere"], "/nowhere"),
    (["--target=v5e", "--chips=4", "--memory-share=2"], "memory-share"),
    (["--target=v5e", "--chips=4", "--budget=0"], "budget"),
    (["--target=v5e", "--chips=4", "--speed=9"], "--speed"),
])
def test_errors_say_what_to_do(model, words, says):
  done = command(model, *words)
  assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


def test_models_that_are_wrong(model, tmp_path):
  for name, says in ((f"{model}:absent", "no function absent"), (f"{model}:wrong", "no atoll.Plan"),
                     (str(tmp_path / "none.py"), "no file")):
    done = command(name, "--target=v5e", "--chips=4")
    assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr


def test_plans_that_are_wrong(search):
  plan = search.plan
  with pytest.raises(ValueError, match="no axis of the mesh"):
    dataclasses.replace(plan, mesh_axes=("a", "b"))
  with pytest.raises(ValueError, match="remat"):
    dataclasses.replace(plan, remat=("some",))
  with pytest.raises(ValueError, match="microbatches"):
    dataclasses.replace(plan, microbatches=(0,))
  with pytest.raises(ValueError, match="axes of 1 arrays"):
    _plan.Search(dataclasses.replace(plan, axes={"params": ("embed",)}))
  with pytest.raises(ValueError, match="which microbatches cut"):
    _plan.Search(dataclasses.replace(plan, batch_axes=("rows", None)))
  assert atoll.Plan is _plan_space.Plan
