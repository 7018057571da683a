"""The search of `atoll plan`: what arithmetic leaves is lowered and estimated, best first, until time is up.

Programs are lowered in full for the target's chips (abstract arrays on an abstract mesh): a layer under `scan` is
lowered once and counted as often as it runs, so that nothing is extrapolated from a smaller model.
"""

import dataclasses
import hashlib
import json
import math
import re
import subprocess
import time

from atoll import _estimate, _plan_space as space

# US dollars per chip and hour: list prices on demand, us regions (cloud.google.com/tpu/pricing). They change: `--prices`.
PRICES = {"v4": 3.22, "v5e": 1.20, "v5p": 4.20, "v6e": 2.70}

MARGIN = 1.1  # over the wall, what a choice must take that is refused without an estimate of its own


@dataclasses.dataclass
class Machine:
  """A slice of one kind of chip."""
  name: str
  target: str
  chips: int
  devices: int  # as JAX counts them
  memory: int  # bytes of one device
  peak: float  # bf16 FLOP/s of one device
  price: float | None  # of a chip and hour


@dataclasses.dataclass
class Result:
  """A choice that was estimated."""
  machine: Machine
  choice: space.Choice
  data: dict  # of `atoll estimate --json`
  mfu: float = 0.0  # of the model's FLOPs
  price: float | None = None  # of a million tokens

  @property
  def seconds(self):
    """Of a step."""
    return self.data["seconds"]

  @property
  def peak(self):
    """Bytes of one device's memory."""
    return self.data["peak_bytes"]

  def parts(self) -> dict:
    """Seconds of a step by what they wait for. Kernels that run beside each other count in full."""
    found = {"compute": 0.0, "vector": 0.0, "HBM": 0.0, "latency": 0.0,
             "exposed communication": 0.0, "exposed host copies": 0.0}
    names = {"matrix": "compute", "vector": "vector", "memory": "HBM", "latency": "latency"}
    for op in self.data["ops"]:
      if op["bound"] == "network":
        host = op["source"] == "host link"
        found["exposed host copies" if host else "exposed communication"] += op["exposed_seconds"]
      else:
        found[names[op["bound"]]] += op["seconds"] * op["runs"]
    return found


@dataclasses.dataclass
class Refused:
  """A choice that was not taken, or a group of them."""
  machine: Machine
  mesh: tuple
  rules: str
  why: str
  remat: str = ""
  microbatches: int = 0
  peak: int = 0


@dataclasses.dataclass
class Found:
  """What a search found for one slice."""
  machine: Machine
  results: list = dataclasses.field(default_factory=list)
  refused: list = dataclasses.field(default_factory=list)
  unreached: int = 0
  seconds: float = 0.0
  programs: int = 0


def figures(name: str) -> dict:
  """What is known of a machine: figure -> text."""
  done = subprocess.run([_estimate.command_path(), "cost", "machines", name], capture_output=True, text=True)
  if done.returncode:
    raise ValueError(done.stderr.strip())
  return {line.split()[0]: line.split(None, 1)[1] for line in done.stdout.splitlines() if len(line.split()) > 1}


def machine_of(target: str, chips: int | None, prices: dict) -> Machine:
  """`target`: "v5p", with its number of chips, or "v5p:4x4x8"."""
  name, _, sides = target.partition(":")
  known = figures(name)

  def number(figure, otherwise=0.0):
    m = re.match(r"[\d.e+-]+", known.get(figure, ""))
    return float(m.group()) if m else otherwise

  if not number("topology_dims"):
    raise ValueError(f"--target={target} is no TPU\nhint: --target=v5p")
  if sides:
    if not re.fullmatch(r"\d+(x\d+)*", sides):
      raise ValueError(f"--target={target}\nhint: --target=v5p:4x4x8, or --target=v5p --chips=128")
    shape = tuple(map(int, sides.split("x")))
  else:
    shape = space.topology(chips, int(number("topology_dims")))
  chips = math.prod(shape)
  most = number("pod_chips")
  if most and chips > most:
    raise ValueError(f"{chips} chips: the largest slice of {name} has {most:.0f}")
  per_chip = max(1, int(number("cores_per_chip", 1) / max(1, number("cores_per_device", 1))))
  memory = (number("hbm_bytes_per_chip") - number("hbm_reserved_bytes_per_chip")) / per_chip
  peak = number("bf16_flops_per_second_per_chip") / per_chip
  return Machine(name, f"{name}:{'x'.join(map(str, shape))}", chips, chips * per_chip, int(memory), peak,
                 prices.get(name))


class Search:
  """Searches slices one after the other; programs that are the same are estimated once."""

  def __init__(self, plan: space.Plan, say=lambda text: None):
    import jax
    self.plan, self.say = plan, say
    self.state = space.Arrays(jax.eval_shape(plan.init), plan.axes, "state")
    self.batch = space.Arrays(plan.batch, plan.batch_axes, "batch")
    if not self.batch.size_of(plan.microbatch_axis) and set(plan.microbatches) != {1}:
      raise ValueError(f"no array of the batch has the axis {plan.microbatch_axis!r}, which microbatches cut\n"
                       "hint: batch_axes=, microbatch_axis=, or microbatches=(1,)")
    self.cache = {}
    self.flops = {}  # machine -> the model's

  def lower(self, choice):
    """The step for all chips, lowered."""
    import jax
    from jax.sharding import AbstractMesh, AxisType, NamedSharding
    plan, rules = self.plan, self.plan.rules[choice.rules]
    mesh = AbstractMesh(choice.mesh, tuple(plan.mesh_axes), axis_types=(AxisType.Auto,) * len(choice.mesh))
    step = plan.step(mesh, tuple(rules.items()), space.remat_of(choice.remat), choice.microbatches)
    state, batch = self.state.on_mesh(mesh, rules), self.batch.on_mesh(mesh, rules)
    shardings = jax.tree.unflatten(self.state.structure, [NamedSharding(mesh, s) for s in self.state.specs(rules)])
    jitted = jax.jit(step, donate_argnums=0, out_shardings=(shardings, None))
    return jitted.trace(state, batch).lower(lowering_platforms=("tpu",))

  def estimate(self, machine, choice) -> dict:
    """What `atoll estimate` says of it."""
    lowered = self.lower(choice)
    # The text, as bytecode also says which lines called us.
    key = (hashlib.sha256(lowered.as_text().encode()).digest(), machine.target)
    if key not in self.cache:
      program = _estimate.program_of(lowered)
      text = _estimate.run_command(["estimate", f"--target={machine.target}", "--json"], program)
      self.cache[key] = json.loads(text)
    return self.cache[key]

  def model_flops(self, machine) -> float:
    """Of one step: the whole program on one chip, nothing recomputed."""
    if machine.name not in self.flops:
      one = dataclasses.replace(machine, target=machine.name)
      choice = space.Choice((1,) * len(self.plan.mesh_axes), next(iter(self.plan.rules)), "none", 1)
      self.flops[machine.name] = self.estimate(one, choice)["flops"]
    return self.flops[machine.name]

  def run(self, machine: Machine, wall: float, budget: float) -> Found:
    """Searches one slice for `budget` seconds; `wall`: bytes of a device that may be used."""
    return _Slice(self, machine, wall, budget).run()


class _Slice:
  """The search of one slice."""

  def __init__(self, search, machine, wall, budget):
    self.search, self.plan, self.machine, self.wall = search, search.plan, machine, wall
    self.start = time.monotonic()
    self.end = self.start + budget
    self.found = Found(machine)
    self.peaks = {}  # choice -> (peak, arguments), also of those that do not fit
    self.considered = set()
    self.fastest = math.inf

  def run(self) -> Found:
    plan, search, found = self.plan, self.search, self.found
    kept, refused = space.layouts(plan, search.state, search.batch, self.machine.devices, self.wall)
    found.refused = [Refused(self.machine, *r) for r in refused]
    flops = search.model_flops(self.machine)
    # Every layout in its lightest form at first, then all forms of the fastest layouts.
    lightest = max(plan.remat, key=list(space.REMAT).index)
    first = {layout: self.first_that_fits(layout, lightest) for layout in kept}
    for mesh, name in sorted(kept, key=first.get):
      for m in self.microbatches_of(mesh, name):
        for remat in sorted(plan.remat, key=lambda r: r != lightest):
          self.consider(space.Choice(mesh, name, remat, m))
    for r in found.results:
      r.mfu = flops / (r.seconds * self.machine.peak * self.machine.devices)
      if self.machine.price is not None and plan.tokens:
        r.price = self.machine.price * self.machine.chips / 3600 * r.seconds / plan.tokens * 1e6
    found.seconds = time.monotonic() - self.start
    return found

  def first_that_fits(self, layout, remat) -> float:
    """Seconds of a step with as few microbatches as fit; inf: none does, or time is up."""
    for m in self.microbatches_of(*layout):
      seconds = self.consider(space.Choice(*layout, remat, m))
      if seconds:
        return seconds
    return math.inf

  def microbatches_of(self, mesh, name):
    return space.microbatches(self.plan, self.search.batch, self.plan.rules[name], dict(zip(self.plan.mesh_axes, mesh)))

  def consider(self, choice):
    """Estimates it once, if nothing tells already that it does not fit and there is time; seconds of a step, or
    None."""
    if choice in self.considered:
      return None
    self.considered.add(choice)
    why = self.inferred(choice)
    if why:
      self.refuse(choice, why)
      return None
    if time.monotonic() > self.end:
      self.found.unreached += 1
      return None
    data = self.search.estimate(self.machine, choice)
    self.found.programs += 1
    self.peaks[choice] = data["peak_bytes"], data["argument_bytes"]
    if data["peak_bytes"] > self.wall:
      self.refuse(choice, f"takes {space.gib(data['peak_bytes'])} of {space.gib(self.wall)}", data["peak_bytes"])
      return None
    self.found.results.append(Result(self.machine, choice, data))
    self.fastest = min(self.fastest, data["seconds"])
    self.search.say(f"{self.machine.target}: {self.found.programs} programs, {len(self.found.results)} fit, "
                    f"fastest {self.fastest:.4g} s, {max(0, self.end - time.monotonic()):.0f} s left")
    return data["seconds"]

  def inferred(self, choice):
    """Why it cannot fit, from what was estimated: lighter forms that do not, and temporaries that shrink at most with
    the number of microbatches. Schedules differ a little between forms, so that only clear cases count."""
    for other, (peak, held) in self.peaks.items():
      if (other.mesh, other.rules) != (choice.mesh, choice.rules):
        continue
      lighter = other.remat == choice.remat or choice.remat in space.HEAVIER[other.remat]
      if not lighter:
        continue
      least = held + (peak - held) / max(1, choice.microbatches / other.microbatches)
      if least > MARGIN * self.wall:
        return (f"would take some {space.gib(least)} of {space.gib(self.wall)}, by {space.gib(peak)} with remat "
                f"{other.remat} and {other.microbatches} microbatch{'es' if other.microbatches > 1 else ''}")
    return None

  def refuse(self, choice, why, peak=0):
    self.found.refused.append(Refused(self.machine, choice.mesh, choice.rules, why, choice.remat, choice.microbatches,
                                      peak))


# ---- What is worth looking at
def frontier(results) -> list:
  """Those that no other beats in both time and memory, fastest first; memory falls along it."""
  best, least = [], math.inf
  for r in sorted(results, key=lambda r: (r.seconds, r.peak)):
    if r.peak < least:
      best.append(r)
      least = r.peak
  return best
