"""One count of FLOPs and bytes: cost_analysis(), XProf's tools on a profile, and `atoll estimate --counts` agree, op by op and in
all, on the programs of profile_programs.py, with eight chips each."""
import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import run_python

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1] / "demo"))
import profile_programs  # noqa: E402

STEPS = 2
TARGET = "v5e:2x4"
BRANCHES = "branches",  # an estimate has the branch that takes longest, cost_analysis() all of them
RUN = """
import json, sys
sys.path[:0] = [{here!r}, {demo!r}]
import jax, atoll, profile_programs
folder, out = sys.argv[1], {{}}
for name in sys.argv[2:]:
  f, args = profile_programs.make(name)
  compiled = f.lower(*args).compile()
  jax.block_until_ready(compiled(*args))
  with jax.profiler.trace(folder + "/" + name):
    for i in range({steps}):
      with jax.profiler.StepTraceAnnotation("train", step_num=i):
        jax.block_until_ready(compiled(*args))
  cost = {{k: compiled.cost_analysis()[k] for k in ("flops", "transcendentals", "bytes accessed")}}
  chips = len(jax.tree.leaves(compiled.output_shardings)[0].device_set)
  estimate = atoll.estimate(f, *args, target={target!r}, counts=True)
  estimate.xplane(folder + "/" + name + ".xplane.pb")
  out[name] = {{"cost": cost, "estimate": estimate.data, "chips": chips,
                "peak": compiled.memory_analysis().peak_memory_in_bytes}}
json.dump(out, open(folder + "/out.json", "w"))
"""


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory):
  folder = tmp_path_factory.mktemp("counts")
  code = RUN.format(here=str(HERE), demo=str(HERE.parents[1] / "demo"), steps=STEPS, target=TARGET)
  done = run_python(f"import sys; sys.argv[1:] = {[str(folder), *profile_programs.PROGRAMS]!r}\n" + code,
                    env={"ATOLL_TARGET": TARGET})
  assert done.returncode == 0, done.stderr
  return folder, json.loads((folder / "out.json").read_text())


def tools_of(path):
  """Runs a tool of XProf on a profile."""
  convert = pytest.importorskip("xprof.convert.raw_to_tool_data", reason="xprof is not installed (pip install xprof)")
  convert.xspace_to_tool_names([str(path)])

  def tool(name, **params):
    data, _ = convert.xspace_to_tool_data([str(path)], name, {"use_saved_result": False, **params})
    return data.decode() if isinstance(data, bytes) else data
  return tool


@pytest.fixture(params=list(profile_programs.PROGRAMS))
def program(request, all_of_them):
  folder, out = all_of_them
  (path,) = (folder / request.param).rglob("*.xplane.pb")
  return SimpleNamespace(name=request.param, tool=tools_of(path), path=path, modelled=folder / f"{request.param}.xplane.pb",
                         **out[request.param])


def rows(table):
  ids = [c["id"] for c in table["cols"]]
  return [dict(zip(ids, (c and c.get("v") for c in r["c"]))) for r in table["rows"]]


def test_the_counts_are_one(program):
  e, cost = program.estimate, program.cost
  assert {k: np.float32(v) for k, v in e["cost_analysis"].items()} == {k: np.float32(v) for k, v in cost.items()}
  for key in "flops", "transcendentals":
    assert sum(o[key] * o["runs"] for o in e["ops"]) == e[key]
    kernels = sum(o[key] for o in e["ops"])  # a turn of each loop
    if program.name in BRANCHES:
      assert 0 < kernels < e["cost_analysis"][key] or key == "transcendentals"
    else:
      assert kernels == e["cost_analysis"][key]
  # PJRT's properties are 32-bit floats; profiles have each op's own.
  assert sum(o["flops"] for o in e["profile_ops"]) >= e["cost_analysis"]["flops"]


def test_xprof_has_them_op_by_op(program):
  # JAX hands the program over in another form than it shows it: ops have other numbers there.
  want = Counter((o["name"].split(".")[0], o["flops"], o["bytes_accessed"]) for o in program.estimate["profile_ops"])
  stats = {r["hlo_op_name"]: r for r in rows(json.loads(program.tool("hlo_stats")))}
  roofline = {r["operation"]: r for r in rows(json.loads(program.tool("roofline_model"))[0])
              if r["step"] == "Total" and r["operation"] not in ("Program", "IDLE")}
  assert stats and set(stats) == set(roofline)
  got, flops = Counter(), 0
  for name, r in roofline.items():
    times, us = r["occurrences"], r["total_self_time"]
    assert stats[name]["occurrences"] == times and stats[name]["total_self_time"] == pytest.approx(us, rel=1e-6)
    one = r["measured_flop_rate"] * us * 1e3 / times  # of GFLOP/s
    moved = r["measured_memory_bw"] * us * 1e-6 * 2**30 / times  # of GiB/s
    if r["category"] in ("while", "conditional") and one == moved == 0:
      continue  # around ops of its own
    assert one == pytest.approx(round(one), rel=1e-6, abs=1e-3) and moved == pytest.approx(round(moved), rel=1e-6, abs=1e-3)
    got[name.split(".")[0], round(one), round(moved)] += 1
    flops += round(one) * times / STEPS / program.chips
  assert got and not got - want, got - want
  # All turns of loops; how often this one turns is known at run time alone.
  if program.name not in ("until_it_converges", *BRANCHES):
    assert flops == program.estimate["flops"]
  top = json.loads(program.tool("op_profile"))["byProgram"]
  assert top["metrics"]["rawFlops"] == pytest.approx(flops * STEPS * program.chips, rel=1e-6)


def test_xprof_has_the_steps_and_the_memory(program):
  tables = [t for t in json.loads(program.tool("overview_page")) if t.get("cols") and t["cols"][0]["id"] == "stepnum"]
  assert [len(t["rows"]) for t in tables] == [STEPS]
  modules = {r["program_id"] for r in rows(json.loads(program.tool("hlo_stats")))}
  assert len(modules) == 1
  (name,) = {p.name.removesuffix(".hlo_proto.pb") for p in program.path.parent.glob(f"*({modules.pop()})*.pb")}
  data = json.loads(program.tool("memory_viewer", module_name=name))
  assert data["peakHeapMib"] == pytest.approx(program.peak / 2**20, abs=1e-6)
  for op in {r["hlo_op_name"] for r in rows(json.loads(program.tool("hlo_stats")))}:
    graph = program.tool("graph_viewer", graph_viewer_options={"module_name": name, "node_name": op, "graph_width": 1,
                                                               "type": "graph", "format": "dot"})
    assert graph.startswith("digraph") and op in graph


def test_the_modelled_timeline_has_the_estimate_s_own(program):
  tool = tools_of(program.modelled)
  ops = [o for o in program.estimate["ops"] if not o["network_bytes"] and o["seconds"] >= 2e-9]
  roofline = [r for r in rows(json.loads(tool("roofline_model"))[0])
              if r["step"] == "Total" and r["operation"] not in ("Program", "IDLE")]
  got = {r["operation"]: r for r in roofline}
  used = Counter()
  for o in ops:
    used[o["name"]] += 1
    times = used[o["name"]]
    r = got[o["name"].replace(" ", "_") + (f".{times}" if times > 1 else "")]
    us = r["total_self_time"]
    assert r["measured_flop_rate"] * us * 1e3 == pytest.approx(o["flops"], rel=1e-6, abs=2)
    assert r["hbm_bw"] * us * 1e-6 * 2**30 == pytest.approx(o["hbm_bytes"], rel=1e-6, abs=2)
  flops = json.loads(tool("op_profile"))["byProgram"]["metrics"]["rawFlops"]
  assert flops == pytest.approx(sum(o["flops"] for o in program.estimate["ops"]), rel=1e-6, abs=len(ops))
