"""Where the stages of a pipeline are, what they take, and when they do what."""

import functools

# Devices by the names that `atoll estimate` has for their machines.
MACHINES = {"TPU v4": "v4", "TPU v5 lite": "v5e", "TPU v5": "v5p", "TPU v6 lite": "v6e", "TPU7x": "7x"}


# ---- Schedules
def stage_order(schedule, stage, stages, microbatches):
  """What a stage does, one after the other: ("F" or "B", microbatch)."""
  ahead = microbatches if schedule == "gpipe" else min(stages - 1 - stage, microbatches)
  order = [("F", m) for m in range(ahead)]
  for m in range(ahead, microbatches):
    order += [("F", m), ("B", m - ahead)]
  return order + [("B", m) for m in range(microbatches - ahead, microbatches)]


def ticks(schedule, stages, microbatches):
  """What all stages do, [(what, stage, microbatch)] by the tick of a common clock."""
  left = [stage_order(schedule, s, stages, microbatches)[::-1] for s in range(stages)]
  done, out = set(), []

  def ready(what, s, m):
    if what == "F":
      return s == 0 or ("F", s - 1, m) in done
    return s == stages - 1 or ("B", s + 1, m) in done

  while any(left):
    first = [(todo[-1][0], s, todo[-1][1]) for s, todo in enumerate(left) if todo]
    now = [op for op in first if ready(*op)]
    for _, s, _ in now:
      left[s].pop()
    done.update(now)
    out.append(now)
  return out


def idle_share(schedule, costs, microbatches, remat):
  """The part of the devices' time that is bubbles; costs: seconds of forward and backward."""
  stages, free, end = len(costs), [0.0] * len(costs), {}
  for tick in ticks(schedule, stages, microbatches):
    for what, s, m in tick:
      before = ("F", s - 1, m) if what == "F" else ("B", s + 1, m)
      begin = max(free[s], end.get(before, 0.0))
      free[s] = end[what, s, m] = begin + costs[s] * (1 / 3 if what == "F" else 1 if remat else 2 / 3)
  busy = sum(costs) * microbatches * (4 / 3 if remat else 1)
  return 1 - busy / (stages * max(free)) if max(free) else 0.0


# ---- Costs
def differentiable(aval):
  """Whether it is of a floating or complex type: others have no gradient."""
  import jax.numpy as jnp
  return jnp.issubdtype(aval.dtype, jnp.inexact)


def predict(part, arguments, machine):
  """Seconds of a part's forward and backward, or numbers in proportion to them."""
  import jax

  own, mutable, carried, inputs, key = arguments
  floats = [i for i, c in enumerate(carried) if differentiable(c)]

  def work(own, some, mutable, carried, inputs, key):
    def f(own, some):
      have = list(carried)
      for i, c in zip(floats, some):
        have[i] = c
      made, _ = part.run(own, mutable, have, inputs, key)
      return [x for x in made if differentiable(x)]

    out, vjp = jax.vjp(f, own, some)
    return out, vjp(out)

  arguments = own, [carried[i] for i in floats], mutable, carried, inputs, key
  import atoll
  try:
    return max(atoll.estimate(work, *arguments, target=machine).seconds - _launch(machine), 1e-9)
  except (OSError, ValueError, RuntimeError):
    return 1e-12 * max(_flops(jax.make_jaxpr(work)(*arguments).jaxpr), 1)


@functools.cache
def _launch(machine):
  """What the smallest program takes."""
  import atoll
  import jax
  return 0.99 * atoll.estimate(lambda x: x + 1, jax.ShapeDtypeStruct((8,), "float32"), target=machine).seconds


def _flops(jaxpr):
  """About; where there is no command to ask."""
  import math

  total = 0
  for e in jaxpr.eqns:
    for sub in e.params.values():
      inner = getattr(sub, "jaxpr", sub)
      if hasattr(inner, "eqns"):
        total += _flops(inner) * e.params.get("length", 1)
    out = math.prod(e.outvars[0].aval.shape) if hasattr(e.outvars[0].aval, "shape") else 0
    if e.primitive.name == "dot_general":
      contracted = e.params["dimension_numbers"][0][0]
      out *= 2 * math.prod(e.invars[0].aval.shape[d] for d in contracted)
    elif e.primitive.name == "conv_general_dilated":
      kernel = e.invars[1].aval.shape
      out *= 2 * math.prod(kernel) // kernel[e.params["dimension_numbers"].rhs_spec[0]]
    total += out
  return total


# ---- Devices
def choose_devices(stages, each, islands):
  """Slices for stages, in the order of islands: no stage is on two."""
  import collections
  import jax
  from atoll import _devices

  by_island = collections.defaultdict(list)
  for d in jax.devices():
    if islands is None or getattr(d, "slice_index", 0) in islands:
      by_island[getattr(d, "slice_index", 0)].append(d)
  if not by_island:
    raise ValueError(f"there are no devices on islands {islands}")
  sizes = {i: len(d) for i, d in by_island.items()}
  if each is None:
    each = next((k for k in range(max(sizes.values()), 0, -1) if sum(n // k for n in sizes.values()) >= stages), 1)
  room = [i for i in sorted(sizes) for _ in range(sizes[i] // each)]
  if not room:
    raise ValueError(f"no island has {each} devices for a stage; they have {sorted(sizes.values())}")
  if not hasattr(jax.devices()[0], "slice_index"):
    all_ = by_island[0]
    return [[all_[(s * each + k) % len(all_)] for k in range(each)] for s in range(stages)], None
  # Neighbours in a pipeline are neighbours of an island; what is asked for is spread over all islands.
  used = sorted(sizes)
  where = room[:stages] if len(room) >= stages else [room[s * len(room) // stages] for s in range(stages)]
  if islands is not None and stages >= len(used):
    where = [used[s * len(used) // stages] for s in range(stages)]
  chosen = []
  for s in range(stages):
    chosen.append(_devices.Slice(_devices.choose(each, island=where[s])))
  return [s.tpus for s in chosen], chosen
