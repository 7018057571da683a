"""Profiles: what XProf shows of a GPT step, a Pallas kernel and a loop. The XSpace
itself is read here, field by field; XProf's own tools only where they are installed."""

import json
import struct
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import run_python
from jax.experimental import pallas as pl

STEPS = 3
sys.path.insert(0, str(Path(__file__).parents[2] / "demo"))


# ---- Protocol buffers
def _varint(data, at):
  value = shift = 0
  while True:
    byte = data[at]
    at += 1
    value |= (byte & 127) << shift
    shift += 7
    if byte < 128:
      return value, at


def fields(data):
  """Field number -> values, in order: numbers, or bytes of strings and messages."""
  out, at = {}, 0
  while at < len(data):
    key, at = _varint(data, at)
    if key & 7 == 0:
      value, at = _varint(data, at)
    else:
      size = {1: 8, 5: 4}.get(key & 7)
      if size is None:
        assert key & 7 == 2
        size, at = _varint(data, at)
      value, at = data[at:at + size], at + size
      assert len(value) == size
    out.setdefault(key >> 3, []).append(value)
  return out


def one(message, number, default=0):
  return message.get(number, [default])[-1]


def text(message, number):
  return one(message, number, b"").decode()


def entries(plane, number):
  return {one(fields(e), 1): fields(one(fields(e), 2, b"")) for e in plane.get(number, [])}


def stats(names, raw):
  out = {}
  for s in map(fields, raw):
    kind, value = next((k, v[-1]) for k, v in s.items() if k != 1)
    if kind == 2:
      value = struct.unpack("<d", value)[0]
    elif kind == 5:
      value = value.decode()
    out[names[one(s, 1)]] = value
  return out


def read_plane(data):
  p = fields(data)
  names = {k: text(v, 2) for k, v in entries(p, 5).items()}
  metadata = {k: SimpleNamespace(name=text(v, 2), display=text(v, 4), stats=stats(names, v.get(5, [])))
              for k, v in entries(p, 4).items()}
  lines = {}
  for line in map(fields, p.get(3, [])):
    lines[text(line, 2)] = [
        SimpleNamespace(about=metadata[one(e, 1)], start=one(line, 3) * 1000 + one(e, 2), ps=one(e, 3),
                        stats=stats(names, e.get(4, []))) for e in map(fields, line.get(4, []))]
  return SimpleNamespace(name=text(p, 2), stats=stats(names, p.get(6, [])), metadata=metadata, lines=lines)


# ---- The run
def _kernel(x, o):
  o[...] = jnp.tanh(x[...]) * 2


def _pallas(x):
  block = pl.BlockSpec((128, 128), lambda i: (i, 0))
  return pl.pallas_call(_kernel, grid=(4,), in_specs=[block], out_specs=block,
                        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
                        cost_estimate=pl.CostEstimate(flops=65536, transcendentals=65536, bytes_accessed=524288))(x)


def _loop(x):
  return jax.lax.fori_loop(0, 5, lambda i, y: jnp.sin(y @ x) * 0.5, x)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
  """A traced run: its folder, its planes, and the compiled programs by name."""
  import gpt
  from common import adam_init
  folder = tmp_path_factory.mktemp("trace")
  params = gpt.init(jax.random.key(0), 64)
  tokens = np.zeros((gpt.BATCH, gpt.CONTEXT + 1), np.int32)
  args = (params, adam_init(params), jnp.float32(1), tokens)
  x = jnp.ones((512, 128))
  square = jnp.ones((256, 256)) * 0.01
  programs = {}
  for name, f, a in ("jit_train_step", gpt.train_step, args), ("jit__pallas", jax.jit(_pallas), (x,)), (
      "jit__loop", jax.jit(_loop), (square,)):
    programs[name] = f.lower(*a).compile()
    jax.block_until_ready(programs[name](*a))
  with jax.profiler.trace(str(folder)):
    for i in range(STEPS):
      with jax.profiler.StepTraceAnnotation("train", step_num=i):
        jax.block_until_ready(programs["jit_train_step"](*args))
        jax.block_until_ready(programs["jit__pallas"](x))
    jax.block_until_ready(programs["jit__loop"](square))
  (path,) = folder.rglob("*.xplane.pb")
  planes = [read_plane(p) for p in fields(path.read_bytes())[1]]
  return SimpleNamespace(path=path, planes=planes, programs=programs,
                         chip=next(p for p in planes if p.name == "/device:TPU:0"))


HOLDERS = "while", "conditional"


def self_times(events):
  """[(event, picoseconds of it that no event inside of it has)], of one line."""
  out, around = [], []
  for e in sorted(events, key=lambda e: (e.start, -e.ps)):
    while around and around[-1][0].start + around[-1][0].ps <= e.start:
      around.pop()
    entry = [e, e.ps]
    if around:
      assert e.start + e.ps <= around[-1][0].start + around[-1][0].ps
      around[-1][1] -= e.ps
    around.append(entry)
    out.append(entry)
  return out


def module_runs(traced):
  """Module name -> [(its event, events of its ops)], one for each run."""
  out = {}
  for m in traced.chip.lines["XLA Modules"]:
    inside = [o for o in traced.chip.lines["XLA Ops"]
              if o.stats["run_id"] == m.stats["run_id"] and m.start <= o.start and o.start + o.ps <= m.start + m.ps]
    out.setdefault(m.about.name.split("(")[0], []).append((m, inside))
  return out


def hlo_of(traced, name):
  found = [m for p in traced.planes if p.name == "/host:metadata" for m in p.metadata.values()
           if m.name.split("(")[0] == name]
  assert len(found) == 1
  return fields(found[0].stats["Hlo Proto"])


# ---- The planes
def test_the_plane_says_what_the_chip_is(traced):
  s = traced.chip.stats
  assert s["device_type_string"] == jax.devices()[0].device_kind
  assert s["peak_teraflops_per_second"] > 1 and s["peak_hbm_bw_gigabytes_per_second"] > 1
  assert s["memory_size"] >= jax.devices()[0].memory_stats()["bytes_limit"]


def test_steps_are_tied_to_the_calls_inside_their_annotations(traced):
  (host,) = [p for p in traced.planes if p.name == "/host:CPU"]
  producers = {}
  for events in host.lines.values():
    for mark in (e for e in events if e.about.name == "train"):
      for e in events:
        if "_p" in e.stats and mark.start <= e.start <= mark.start + mark.ps:
          producers[e.stats["_pt"], e.stats["_p"]] = mark.stats["step_num"]
  steps = [producers.get((e.stats.get("_ct"), e.stats.get("_c"))) for e in traced.chip.lines["Steps"]]
  # One launch of each program in a step, and the loop outside of all of them.
  assert steps == [i for i in range(STEPS) for _ in range(2)] + [None]


@pytest.mark.parametrize("name", ["jit_train_step", "jit__pallas", "jit__loop"])
def test_every_op_is_an_instruction_with_its_costs(traced, name):
  runs = module_runs(traced)[name]
  assert len(runs) == (1 if name == "jit__loop" else STEPS)
  module = fields(one(hlo_of(traced, name), 1))
  names = [text(fields(i), 1) for c in module[3] for i in fields(c)[2]]
  assert len(names) == len(set(names))
  program = int(runs[0][0].about.name.split("(")[1][:-1])
  symbols = {}
  for _, ops in runs:
    assert ops
    for op in ops:
      assert op.about.display in names
      assert op.about.name.startswith(f"%{op.about.display} = ")
      s = op.about.stats
      assert s["program_id"] == program and s["hlo_category"]
      assert s["flops"] >= 0 and (s["bytes_accessed"] > 0) != (s["hlo_category"] in HOLDERS)
      parts = [fields(m) for m in fields(s["memory_access_breakdown"])[1]]
      assert sum(one(m, 3) for m in parts) == s["bytes_accessed"] and {one(m, 2) for m in parts} == {1}
      symbols.setdefault(s["symbol_id"], op.about.display)
  assert 0 not in symbols and len(set(symbols.values())) == len(symbols)


@pytest.mark.parametrize("name", ["jit_train_step", "jit__pallas"])
def test_costs_add_up_to_the_cost_analysis(traced, name):
  cost = traced.programs[name].cost_analysis()
  for _, ops in module_runs(traced)[name]:
    # Copies that the memory plan makes are no part of the analysis.
    asked = [o.about.stats for o in ops if not o.about.display.startswith("copy.")]
    # PJRT's properties are 32-bit floats.
    assert np.float32(sum(s["flops"] for s in asked)) == cost["flops"]
    assert np.float32(sum(s["bytes_accessed"] for s in asked)) == cost["bytes accessed"]


def test_a_loop_s_ops_count_each_turn(traced):
  ((_, ops),) = module_runs(traced)["jit__loop"]
  assert sum(o.about.stats["flops"] for o in ops) >= 5 * 2 * 256**3


def test_a_loop_is_an_op_around_its_own(traced):
  ((module, ops),) = module_runs(traced)["jit__loop"]
  (loop,) = [o for o in ops if o.about.stats["hlo_category"] == "while"]
  inside = [o for o in ops if loop.start <= o.start and o.start + o.ps <= loop.start + loop.ps and o is not loop]
  products = [o for o in inside if o.about.stats["flops"] >= 2 * 256**3]
  assert len(products) == 5 and len({o.about.display for o in products}) == 1
  assert loop.about.stats["flops"] == loop.about.stats["bytes_accessed"] == 0
  assert sum(ps for _, ps in self_times(ops)) == sum(o.ps for o in ops if o not in inside) <= module.ps


MANY = """
import sys
import threading
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(jax.devices(), ("d",))
def part(x, w):
  y = jnp.tanh(x @ w)
  sums = jax.lax.psum((x.T @ y, y[:8]), "d")
  pieces = jax.lax.psum_scatter(jnp.sin(w), "d", tiled=True)
  return sums, jax.lax.all_gather(y @ w, "d", tiled=True).sum() + jnp.cos(y @ w).sum(), pieces
f = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=(P("d"), P()), out_specs=((P(), P()), P(), P("d")), check_vma=False))
x, w = (jax.device_put(jnp.ones(shape), NamedSharding(mesh, spec)) for shape, spec in (((2048, 256), P("d")), ((256, 256), P())))
jax.block_until_ready(f(x, w))
with jax.profiler.trace(sys.argv[1]):
  for i in range(2):
    with jax.profiler.StepTraceAnnotation("train", step_num=i):
      jax.block_until_ready(f(x, w))
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory):
  """A traced program of eight chips: its file and the chips' planes."""
  folder = tmp_path_factory.mktemp("many")
  done = run_python(f"import sys; sys.argv[1:] = [{str(folder)!r}]\n" + MANY, env={"ATOLL_TARGET": "v5e:2x4"})
  assert done.returncode == 0, done.stderr
  (path,) = folder.rglob("*.xplane.pb")
  planes = [read_plane(p) for p in fields(path.read_bytes())[1]]
  return SimpleNamespace(path=path, planes=planes, chips=[p for p in planes if p.name.startswith("/device:TPU:")])


def test_every_chip_runs_the_same_ops_halves_of_collectives_too(many):
  assert [p.name for p in many.chips] == [f"/device:TPU:{i}" for i in range(8)]
  names = [sorted(o.about.display for o in p.lines["XLA Ops"]) for p in many.chips]
  assert all(n == names[0] for n in names) and len(names[0]) == 2 * len(set(names[0]))
  instructions = {text(fields(i), 1): text(fields(i), 2) for c in fields(one(hlo_of(many, "jit_part"), 1))[3]
                  for i in fields(c)[2]}
  assert set(names[0]) <= set(instructions)
  halves = {instructions[n] for n in names[0] if n.startswith("async_done")}
  assert halves and halves <= {"all-reduce-done", "all-gather-done", "copy-done"}, halves
  assert all(len(p.lines["Steps"]) == 2 for p in many.chips)


def test_ops_follow_each_other_and_fill_their_module(traced):
  shares = []
  for m, ops in module_runs(traced)["jit_train_step"]:
    for a, b in zip(ops, ops[1:]):
      assert a.start + a.ps <= b.start
    shares.append(sum(o.ps for o in ops) / m.ps)
  assert 0.99 < max(shares) <= 1


@pytest.mark.parametrize("name", ["jit_train_step", "jit__pallas", "jit__loop"])
def test_buffers_add_up_to_the_memory_analysis(traced, name):
  memory = traced.programs[name].memory_analysis()
  hlo = hlo_of(traced, name)
  instructions = {one(fields(i), 35) for c in fields(one(hlo, 1))[3] for i in fields(c)[2]}
  b = fields(one(hlo, 3))
  sizes = {}
  for l in map(fields, b[1]):
    assert one(fields(one(l, 3)), 4) in instructions
    sizes[one(l, 1)] = one(l, 2)
  params = outputs = temps = 0
  for a in map(fields, b[3]):
    if one(a, 5):
      params += one(a, 2)
    elif one(a, 7):
      outputs += one(a, 2)
    else:
      temps += one(a, 2)
      for x in map(fields, a[9]):
        assert one(x, 2) + one(x, 3) <= one(a, 2) and one(x, 3) == sizes[one(x, 1)]
  assert params == memory.argument_size_in_bytes
  assert outputs == memory.output_size_in_bytes - memory.alias_size_in_bytes
  assert temps == memory.temp_size_in_bytes
  now = peak = 0
  for e in map(fields, fields(one(b, 4, b"")).get(1, [])):
    now += sizes[one(e, 2)] * (-1 if one(e, 1) else 1)
    peak = max(peak, now)
    assert now >= 0
  assert peak == temps


# ---- XProf
@pytest.fixture
def tool(traced):
  return tools_of(traced.path)


def tools_of(path):
  """Runs a tool of XProf on a profile."""
  convert = pytest.importorskip("xprof.convert.raw_to_tool_data", reason="xprof is not installed (pip install xprof)")
  # Writes the programs beside the trace, as opening it in XProf does.
  assert {"overview_page", "op_profile", "hlo_stats", "roofline_model", "memory_viewer",
          "graph_viewer"} <= set(convert.xspace_to_tool_names([str(path)]))

  def run(name, **params):
    data, _ = convert.xspace_to_tool_data([str(path)], name, {"use_saved_result": False, **params})
    return data.decode() if isinstance(data, bytes) else data
  return run


def rows(table):
  ids = [c["id"] for c in table["cols"]]
  return [dict(zip(ids, (c and c.get("v") for c in r["c"]))) for r in table["rows"]]


def test_xprof_overview_has_the_steps(tool):
  tables = [t for t in json.loads(tool("overview_page")) if t.get("cols") and t["cols"][0]["id"] == "stepnum"]
  assert [len(t["rows"]) for t in tables] == [STEPS]


@pytest.mark.parametrize("name", ["hlo_stats", "roofline_model"])
def test_xprof_lists_every_op(traced, tool, name):
  data = json.loads(tool(name))
  found = rows(data if name == "hlo_stats" else data[0])
  op = "hlo_op_name" if name == "hlo_stats" else "operation"
  total = [r for r in found if r.get("step", "Total") == "Total" and r[op] not in ("Program", "IDLE")]
  ran, times = {}, {}
  for e, ps in self_times(traced.chip.lines["XLA Ops"]):
    key = str(e.about.stats["program_id"]), e.about.display
    ran[key] = ran.get(key, 0) + 1
    times[key] = times.get(key, 0) + ps / 1e6
  module = "program_id" if name == "hlo_stats" else "hlo_module_id"
  assert {(str(r[module]), r[op]): r["occurrences"] for r in total} == ran
  for r in total:
    assert r["total_self_time"] == pytest.approx(times[str(r[module]), r[op]], rel=1e-6)
  flops = {(str(e.about.stats["program_id"]), e.about.display): e.about.stats["flops"] for e in
           traced.chip.lines["XLA Ops"]}
  if name == "roofline_model":
    for r in total:  # GFLOP/s
      key = str(r[module]), r[op]
      assert r["measured_flop_rate"] * times[key] * 1e3 == pytest.approx(flops[key] * ran[key], rel=1e-6)


def test_xprof_op_profile_has_the_flops(traced, tool):
  programs = json.loads(tool("op_profile"))["byProgram"]["children"]
  (train,) = [p for p in programs if p["name"].startswith("jit_train_step")]
  want = traced.programs["jit_train_step"].cost_analysis()["flops"] * STEPS
  assert train["metrics"]["rawFlops"] == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("name", ["jit_train_step", "jit__pallas", "jit__loop"])
def test_xprof_memory_viewer_and_graph_viewer(traced, tool, name):
  event, ops = module_runs(traced)[name][0]
  data = json.loads(tool("memory_viewer", module_name=event.about.name))
  peak = traced.programs[name].memory_analysis().peak_memory_in_bytes
  assert data["peakHeapMib"] == pytest.approx(peak / 2**20, abs=1e-6)
  node = ops[0].about.display
  graph = tool("graph_viewer", graph_viewer_options={"module_name": event.about.name, "node_name": node,
                                                     "graph_width": 2, "type": "graph", "format": "dot"})
  assert graph.startswith("digraph") and node in graph


def test_xprof_on_eight_chips(many):
  tool = tools_of(many.path)
  tables = [t for t in json.loads(tool("overview_page")) if t.get("cols") and t["cols"][0]["id"] == "stepnum"]
  assert [len(t["rows"]) for t in tables] == [2]
  module = many.chips[0].lines["XLA Modules"][0].about.name
  for node in {o.about.display for o in many.chips[0].lines["XLA Ops"]}:
    graph = tool("graph_viewer", graph_viewer_options={"module_name": module, "node_name": node, "graph_width": 1,
                                                       "type": "graph", "format": "dot"})
    assert graph.startswith("digraph") and node in graph


# ---- The modelled chip beside the measured
CHIP = """
import sys
import threading
import jax, jax.numpy as jnp
import atoll
f = jax.jit(lambda x: jnp.tanh(x @ x) @ x)
x = jnp.ones((512, 512), jnp.bfloat16)
f(x).block_until_ready()
with jax.profiler.trace(sys.argv[1]):
  for _ in range(2):
    f(x).block_until_ready()
print(atoll.estimate(f, x, target="v5e").seconds)
"""


def test_the_modelled_chip_is_beside_the_measured(python, tmp_path):
  code = f"import sys; sys.argv[1:] = [{str(tmp_path)!r}]\n" + CHIP
  done = python(code, env={"ATOLL_TARGET": "v5e", "ATOLL_PROFILE": "chip"})
  assert done.returncode == 0, done.stderr
  (path,) = tmp_path.rglob("*.xplane.pb")
  planes = {p.name: p for p in map(read_plane, fields(path.read_bytes())[1])}
  here, chip = planes["/device:TPU:0"], planes["/device:CUSTOM:v5e model:0"]
  measured, modelled = here.lines["XLA Modules"], chip.lines["XLA Modules"]
  assert [m.start for m in modelled] == [m.start for m in measured] and len(modelled) == 2
  assert all(m.ps == pytest.approx(float(done.stdout) * 1e12, abs=1000) for m in modelled)
  ops = chip.lines["XLA Ops"]
  assert all(o.ps > 0 for o in ops) and sum("dot_general" in o.about.name for o in ops) == 4
  assert all(any(m.start <= o.start and o.start + o.ps <= m.start + m.ps + 2000 for m in modelled) for o in ops)


@pytest.fixture(scope="module")
def estimated(tmp_path_factory):
  """An estimate of a gradient, and the file of its timeline."""
  import atoll
  ws = jax.ShapeDtypeStruct((512, 2048), jnp.bfloat16), jax.ShapeDtypeStruct((2048, 512), jnp.bfloat16)
  x = jax.ShapeDtypeStruct((1024, 512), jnp.bfloat16)
  e = atoll.estimate(jax.grad(lambda ws, x: (jnp.tanh(x @ ws[0]) @ ws[1]).var()), ws, x, target="v5e")
  path = tmp_path_factory.mktemp("estimated") / "modelled.xplane.pb"
  e.xplane(path)
  return e, path


def test_the_timeline_of_an_estimate_has_its_costs(estimated):
  e, path = estimated
  (plane,) = [read_plane(p) for p in fields(path.read_bytes())[1]]
  assert plane.name == "/device:TPU:0" and plane.stats["peak_teraflops_per_second"] == 197
  ops = {o.about.display: o.about.stats for o in plane.lines["XLA Ops"]}
  assert set(ops) == {o["name"] for o in e.ops} and len(plane.lines["Steps"]) == len(plane.lines["XLA Modules"]) == 1
  for o in e.ops:
    assert (ops[o["name"]]["flops"], ops[o["name"]]["bytes_accessed"]) == (int(o["flops"]), int(o["hbm_bytes"]))
    assert o["name"].startswith(ops[o["name"]]["hlo_category"])


def test_xprof_shows_an_estimate(estimated):
  e, path = estimated
  convert = pytest.importorskip("xprof.convert.raw_to_tool_data", reason="xprof is not installed (pip install xprof)")

  def tool(name):
    return json.loads(convert.xspace_to_tool_data([str(path)], name, {"use_saved_result": False})[0])
  assert {r["hlo_op_name"] for r in rows(tool("hlo_stats"))} == {o["name"] for o in e.ops}
  (program,) = [p["metrics"] for p in tool("op_profile")["byProgram"]["children"] if p["name"] != "IDLE"]
  assert program["rawFlops"] == e.flops and program["rawBytesAccessedArray"][0] == pytest.approx(e.data["hbm_bytes"], rel=1e-6)
  assert program["rawTime"] == pytest.approx(sum(o["seconds"] for o in e.ops) * 1e12, rel=0.01)


def test_a_profile_is_of_this_machine_alone_unless_the_chip_is_asked_for(traced):
  assert not [p.name for p in traced.planes if "model" in p.name]


# ---- Device memory, as pprof reads it
def pprof(data):
  """(values, labels, frames) of each sample; a frame is "file:line function"."""
  import gzip
  p = fields(gzip.decompress(data))
  strings = [s.decode() for s in p[6]]
  functions = {one(f, 1): f for f in map(fields, p.get(5, []))}

  def frame(location):
    line = fields(location[4][0])
    f = functions[one(line, 1)]
    return f"{strings[one(f, 4)]}:{one(line, 2)} {strings[one(f, 2)]}"

  def packed(message, number):
    out = []
    for v in message.get(number, []):
      if isinstance(v, int):
        out.append(v)
        continue
      at = 0
      while at < len(v):
        value, at = _varint(v, at)
        out.append(value)
    return out
  locations = {one(l, 1): frame(l) for l in map(fields, p.get(4, [])) if 4 in l}
  for s in map(fields, p[2]):
    labels = {strings[one(l, 1)]: strings[one(l, 2)] for l in map(fields, s.get(3, []))}
    yield packed(s, 2), labels, [locations[i] for i in packed(s, 1) if i in locations]


def test_device_memory_profile_has_source_lines():
  before = len(jax.live_arrays())
  kept = jnp.ones((768, 1024), jnp.float32) * 3  # the line that is looked for
  line = test_device_memory_profile_has_source_lines.__code__.co_firstlineno + 2
  assert any(a is kept for a in jax.live_arrays()) and len(jax.live_arrays()) >= before + 1
  found = [(values, labels, frames) for values, labels, frames in pprof(jax.profiler.device_memory_profile())
           if any(f"{__file__}:{line} " in f for f in frames) and labels.get("kind") == "buffer"]
  assert sum(768 * 1024 * 4 in values for values, _, _ in found) == 1, found
  ((_, labels, _),) = [f for f in found if 768 * 1024 * 4 in f[0]]
  assert labels["device"].startswith("TPU_0") and labels["device"].endswith("on Atoll)"), labels
  del kept
  assert len(jax.live_arrays()) == before
  assert not any(f"{__file__}:{line} " in f for values, labels, frames in pprof(jax.profiler.device_memory_profile())
                 for f in frames if labels.get("kind") == "buffer")


# ---- Steps
def _two_programs(step):
  step(0, 1, 1), step(1, 2, 0), step(2, 0, 3)


def _one_launches_nothing(step):
  step(0, 1, 0), step(1, 0, 0), step(2, 1, 0)


def _from_three_threads(step):
  threads = [threading.Thread(target=step, args=(i, 2, 1)) for i in range(3)]
  for t in threads:
    t.start()
  for t in threads:
    t.join()


def _around_others(step):
  for i in range(3):
    with jax.profiler.TraceAnnotation("around"), jax.profiler.StepTraceAnnotation("outer", step_num=i):
      step(i, 1, 1)


@pytest.mark.parametrize("run, steps", [(_two_programs, "012"), (_one_launches_nothing, "02"), (_from_three_threads, "012"),
                                        (_around_others, "012")])
def test_xprof_has_a_step_for_each_annotation_that_launches(tmp_path, run, steps):
  x = jnp.ones((64, 64))
  programs = jax.jit(lambda x: jnp.tanh(x @ x)), jax.jit(lambda x: jnp.cos(x) @ x)
  jax.block_until_ready([p(x) for p in programs])

  def step(i, *launches):
    with jax.profiler.StepTraceAnnotation("train", step_num=i):
      jax.block_until_ready([p(x) for p, n in zip(programs, launches) for _ in range(n)])
  with jax.profiler.trace(str(tmp_path)):
    run(step)
  (path,) = tmp_path.rglob("*.xplane.pb")
  tables = [t for t in json.loads(tools_of(path)("overview_page")) if t.get("cols") and t["cols"][0]["id"] == "stepnum"]
  assert [[r["c"][0]["v"] for r in t["rows"]] for t in tables] == [list(steps)]
