"""What `atoll plan` found: the frontier, why the best is best, why others were not taken, and the code to paste."""

import collections

from atoll import _plan_space as space
from atoll._plan import Found, Result, frontier


def mesh_text(plan, mesh) -> str:
  """data 2 x fsdp 8; axes of one chip are left out."""
  return " x ".join(f"{a} {n}" for a, n in zip(plan.mesh_axes, mesh) if n > 1) or "one chip"


def time_text(seconds) -> str:
  """Seconds for people."""
  return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} us"


# ---- Code to paste
def code(search, r: Result) -> str:
  """Plain JAX. It uses `init` and `make_step`, which are the plan's `init` and `step`."""
  plan, c = search.plan, r.choice
  rules = plan.rules[c.rules]
  devices = r.machine.devices
  lines = [
      f"# {r.machine.target}, {r.machine.chips} chips: {time_text(r.seconds)} a step, {space.gib(r.peak)} a chip, "
      f"estimated by `atoll plan`",
      "import functools",
      "import jax",
      "import numpy as np",
      "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P",
      "",
      f"mesh = Mesh(np.array(jax.devices()[:{devices}]).reshape{tuple(c.mesh)}, {tuple(plan.mesh_axes)})",
      f"rules = {tuple(rules.items())}",
      f"remat = {space.REMAT[c.remat]}  # {space.REMAT_SAYS[c.remat]}",
      f"microbatches = {c.microbatches}",
      "state_specs = {",
      *(f"    {path!r}: {spec_text(spec)}," for path, spec in zip(search.state.paths, search.state.specs(rules))),
      "}",
      "batch_specs = {",
      *(f"    {path!r}: {spec_text(spec)}," for path, spec in zip(search.batch.paths, search.batch.specs(rules))),
      "}",
      "",
      "def shardings(tree, specs):",
      "  return jax.tree_util.tree_map_with_path(",
      "      lambda path, _: NamedSharding(mesh, specs[jax.tree_util.keystr(path)]), tree)",
      "",
      "state_shardings = shardings(jax.eval_shape(init), state_specs)",
      "state = jax.jit(init, out_shardings=state_shardings)()",
      "step = jax.jit(make_step(mesh, rules, remat, microbatches), donate_argnums=0,",
      "               out_shardings=(state_shardings, None))",
      "# batch = jax.device_put(batch, shardings(batch, batch_specs)); state, _ = step(state, batch)",
  ]
  return "\n".join(lines) + "\n"


def spec_text(spec) -> str:
  """P('fsdp', None)"""
  return "P(" + ", ".join(map(repr, spec)) + ")"


# ---- Reasons
def bounds(r: Result) -> str:
  """What a step waits for, largest first."""
  parts = sorted(r.parts().items(), key=lambda p: -p[1])
  total = sum(seconds for _, seconds in parts) or 1
  return ", ".join(f"{name} {100 * s / total:.0f}%" for name, s in parts if s >= total / 200)


def neighbours(best: Result, found: Found) -> list:
  """(what differs, Result or Refused) of the closest choices that differ in one thing."""
  near = {}
  for r in sorted(found.results, key=lambda r: r.seconds):
    differs = r.choice.differs(best.choice)
    if len(differs) == 1:
      near.setdefault((differs[0], getattr(r.choice, differs[0])), r)
  for r in found.refused:
    if not r.remat:
      continue
    differs = space.Choice(r.mesh, r.rules, r.remat, r.microbatches).differs(best.choice)
    if len(differs) == 1:
      near.setdefault((differs[0], getattr(r, differs[0])), r)
  return list(near.items())


def against(plan, best: Result, found: Found) -> list[str]:
  """Why the best is best: a line for each thing that could be otherwise."""
  lines, meshes = [], 0
  own = best.parts()
  for (what, value), r in neighbours(best, found):
    if what == "mesh":
      meshes += 1
      if meshes > 4:
        continue
    name = mesh_text(plan, value) if what == "mesh" else f"{what} {value}"
    if not isinstance(r, Result):
      lines.append(f"{name}: {r.why}")
      continue
    parts = r.parts()
    change = max(parts, key=lambda p: parts[p] - own[p])
    more = parts[change] - own[change]
    why = f", {change} +{time_text(more)}" if more > 0 else ""
    lines.append(f"{name}: {100 * (r.seconds / best.seconds - 1):+.1f}% time{why}; {space.gib(r.peak)} a chip")
  return lines


def refusals(found: Found) -> list[tuple[str, int]]:
  """Kinds of reasons, with how many choices each refused."""
  kinds = collections.Counter()
  for r in found.refused:
    if r.remat and "would take" in r.why:
      kinds["memory, inferred from choices that need less and are a tenth over"] += 1
    elif r.remat:
      kinds["memory, as estimated"] += 1
    elif r.why.startswith("the state"):
      kinds["memory, by arithmetic: the state alone"] += 1
    elif r.why.startswith("nothing"):
      kinds["a mesh axis that no rule uses"] += 1
    else:
      kinds[f"uneven: {r.why}"] += 1
  return kinds.most_common()


# ---- Text
def rows(plan, results) -> list[str]:
  """The table of the frontier."""
  head = f"  {'step':>9} {'a chip':>10} {'MFU':>6} {'HFU':>6} {'$/M tokens':>10}  choice"
  lines = [head]
  for r in results:
    price = f"{r.price:.4g}" if r.price is not None else "-"
    c = r.choice
    lines.append(f"  {time_text(r.seconds):>9} {space.gib(r.peak):>10} {100 * r.mfu:5.1f}% {100 * r.data['hfu']:5.1f}% "
                 f"{price:>10}  {mesh_text(plan, c.mesh)}; rules {c.rules}; remat {c.remat}; microbatches {c.microbatches}")
    lines.append(f"{'':47}bound by {bounds(r)}")
  return lines


def of_slice(search, found: Found, wall) -> list[str]:
  """One slice's frontier and reasons."""
  plan, m = search.plan, found.machine
  lines = [f"{m.target} ({m.chips} chips, {space.gib(wall)} of {space.gib(m.memory)} each may be used): "
           f"{found.programs} choices estimated in full in {found.seconds:.0f} s, {len(found.results)} fit; "
           f"{len(found.refused)} refused, {found.unreached} not reached"]
  best = frontier(found.results)
  if best:
    lines += rows(plan, best)
    lines.append("  why the fastest is the fastest, and not")
    lines += [f"    {line}" for line in against(plan, best[0], found)]
  else:
    lines.append("  nothing fits")
  if found.refused:
    lines.append("  refused")
    kinds = refusals(found)
    lines += [f"    {count:5} {why}" for why, count in kinds[:8]]
    if len(kinds) > 8:
      lines.append(f"    {sum(count for _, count in kinds[8:]):5} others (--json has them)")
  if found.unreached:
    lines.append(f"  {found.unreached} choices were not reached in time; a larger --budget reaches them")
  return lines


def cheapest(all_found) -> Result | None:
  """The best of all: least money per token where prices are known for all, else least chip seconds."""
  results = [r for f in all_found for r in f.results]
  if results and all(r.price is not None for r in results):
    return min(results, key=lambda r: (r.price, r.seconds))
  return min(results, key=lambda r: (r.seconds * r.machine.chips, r.seconds), default=None)


def text(search, all_found, walls) -> str:
  """The report for people."""
  lines = []
  for found, wall in zip(all_found, walls):
    lines += of_slice(search, found, wall) + [""]
  if len(all_found) > 1:
    lines.append("fastest of each slice")
    lines += [f"  {f.machine.target:14}" + row[2:] if i == 0 else " " * 16 + row for f in all_found if f.results
              for i, row in enumerate(rows(search.plan, frontier(f.results)[:1])[1:])]
    lines.append("")
  best = cheapest(all_found)
  if best:
    by = "price" if best.price is not None else "chip seconds a step"
    which = f"the least {by}" if len(all_found) > 1 else "the fastest"
    lines += [f"to paste ({which})", "", code(search, best)]
  lines.append("No time was extrapolated: each estimate is of the whole program for all chips (docs/cost.md says how far "
               "they are off). Refusals marked inferred have no estimate of their own. MFU counts the model's FLOPs, "
               "HFU also what is recomputed.")
  return "\n".join(lines) + "\n"


# ---- JSON
def _result(search, r: Result) -> dict:
  plan, c = search.plan, r.choice
  keys = ("low_seconds", "high_seconds", "kernel_seconds", "network_seconds", "exposed_seconds", "argument_bytes",
          "temp_bytes", "flops", "notes")
  return {"target": r.machine.target, "chips": r.machine.chips, "mesh": dict(zip(plan.mesh_axes, c.mesh)),
          "rules": c.rules, "remat": c.remat, "microbatches": c.microbatches, "seconds": r.seconds,
          "peak_bytes": r.peak, "mfu": r.mfu, "hfu": r.data["hfu"], "price_per_million_tokens": r.price,
          "seconds_by_bound": r.parts(), **{k: r.data[k] for k in keys}}


def as_json(search, all_found, walls) -> dict:
  """Everything."""
  plan, best = search.plan, cheapest(all_found)
  slices = [{
      "target": f.machine.target, "chips": f.machine.chips, "memory_bytes": f.machine.memory, "usable_bytes": wall,
      "price_per_chip_hour": f.machine.price, "search_seconds": f.seconds, "estimated": f.programs,
      "not_reached": f.unreached,
      "frontier": [{**_result(search, r), "code": code(search, r)} for r in frontier(f.results)],
      "fit": [_result(search, r) for r in sorted(f.results, key=lambda r: r.seconds)],
      "refused": [{"mesh": dict(zip(plan.mesh_axes, r.mesh)), "rules": r.rules, "remat": r.remat or None,
                   "microbatches": r.microbatches or None, "peak_bytes": r.peak or None, "why": r.why}
                  for r in f.refused],
      "why": against(plan, frontier(f.results)[0], f) if f.results else [],
  } for f, wall in zip(all_found, walls)]
  return {"slices": slices, "best": {**_result(search, best), "code": code(search, best)} if best
          else None}
