"""Training in a pipeline: `atoll.pipeline` puts parts of a model on slices of a pod.

A step is a traced program (`atoll.program`): the client sends one message, and hosts do
its launches and copies back to back. See docs/pipeline.md.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from atoll import _pipeline_cut as _cut
from atoll import _pipeline_plan as _plan

# ---- Models
class _Linen:
  def __init__(self, model, call, rngs):
    self.model, self.call, self.rngs = model, dict(call), tuple(rngs)

  def init(self, rng, inputs):
    import jax

    names = ("params", *self.rngs)
    keys = dict(zip(names, jax.random.split(rng, len(names)))) if self.rngs else rng
    return self.model.init(keys, *inputs, **self.call)

  def split(self, variables):
    rest = dict(variables)
    return rest.pop("params", {}), rest

  def join(self, params, rest):
    return {"params": params, **rest}

  def apply(self, params, rest, inputs, key):
    import jax

    rngs = None
    if key is not None:
      key = jax.random.wrap_key_data(key)
      rngs = {name: jax.random.fold_in(key, i) for i, name in enumerate(self.rngs)}
    variables = {"params": params, **rest}
    with _cut.marking_linen():
      if rest:
        y, new = self.model.apply(variables, *inputs, rngs=rngs, mutable=list(rest), **self.call)
        return y, {name: new.get(name, rest[name]) for name in rest}
      return self.model.apply(variables, *inputs, rngs=rngs, **self.call), rest


class _Nnx:
  rngs = ()

  def __init__(self, model, call):
    from flax import nnx

    self.graph, self.params, self.rest = nnx.split(model, nnx.Param, ...)
    self.call = dict(call)

  def init(self, rng, inputs):
    return self.params, self.rest

  def split(self, variables):
    return variables if isinstance(variables, tuple) else (variables, self.rest)

  def join(self, params, rest):
    from flax import nnx

    return nnx.merge_state(params, rest)

  def apply(self, params, rest, inputs, key):
    from flax import nnx

    model = nnx.merge(self.graph, params, rest)
    with _cut.marking_nnx(model):
      y = model(*inputs, **self.call)
    return y, nnx.split(model, nnx.Param, ...)[2]


def _adapter(model, call, rngs):
  try:
    import flax.linen
    if isinstance(model, flax.linen.Module):
      return _Linen(model, call, rngs)
    from flax import nnx
    if isinstance(model, nnx.Module):
      return _Nnx(model, call)
  except ImportError:
    pass
  raise TypeError(f"{type(model).__name__} is no model that atoll.pipeline can split\n"
                  "hint: it takes a flax.linen.Module, a flax.nnx.Module, or stages=[f1, f2, ...] "
                  "with f(params, x) -> y")


# ---- Stages
@dataclasses.dataclass
class Stage:
  """What `describe` says of a stage."""
  number: int
  names: list  # of submodules
  devices: list
  seconds: float  # predicted for forward and backward of a microbatch; None: not known
  parameters: int


class _Place:
  """A stage's mesh."""

  def __init__(self, devices):
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    self.devices = list(devices)
    self.mesh = Mesh(np.array(self.devices), ("data",))
    self.rows, self.whole = NamedSharding(self.mesh, P("data")), NamedSharding(self.mesh, P())
    self.set = frozenset(self.devices)

  def of(self, aval, microbatch):
    """Where a value lies whose first dimension is the batch, or is not."""
    by_rows = aval.ndim and aval.shape[0] and aval.shape[0] % microbatch == 0
    return self.rows if by_rows else self.whole


@functools.lru_cache(maxsize=None)
def _resharder(sharding):
  import jax
  return jax.jit(lambda x: x, out_shardings=sharding)


def _put(value, place, sharding):
  """A value where `sharding` says, without the host looking at it."""
  import jax
  from jax.sharding import NamedSharding

  if not isinstance(value, jax.Array):
    return jax.device_put(value, sharding)
  own = value.sharding
  if own == sharding:
    return value
  if own.device_set == place.set and list(own._device_assignment) == place.devices:
    return _resharder(sharding)(value)
  alike = isinstance(own, NamedSharding) and own.spec == sharding.spec and own.mesh.shape == sharding.mesh.shape
  if not alike:
    if not own.is_fully_replicated:
      value = _resharder(NamedSharding(own.mesh, jax.sharding.PartitionSpec()))(value) if isinstance(
          own, NamedSharding) else _resharder(jax.sharding.SingleDeviceSharding(own._device_assignment[0]))(value)
    if len(value.sharding.device_set) not in (1, len(place.devices)):
      value = value.addressable_shards[0].data
    value = jax.device_put(value, place.whole)
    return value if sharding == place.whole else _resharder(sharding)(value)
  return jax.device_put(value, sharding)


class _Runner:
  """Forward and backward of a part for microbatches of one shape."""

  def __init__(self, pipeline, cut, number, place, microbatch, out_tree):
    import jax

    self.part, self.place, self.number = cut.parts[number], place, number
    part, last = self.part, number == len(cut.parts) - 1
    self.sends = {v: chain[chain.index(number) + 1] for v, chain in cut.chains.items() if number in chain[:-1]}
    self.comes = {v: chain[chain.index(number) - 1] for v, chain in cut.chains.items() if number in chain[1:]}
    shared = {v: part.own.index(i) for v, i in cut.shared.items() if v in self.sends and v not in self.comes}
    avals = dict(part.avals)
    self.spec = {v: place.whole if v in cut.shared else place.of(a, microbatch) for v, a in avals.items()}
    floats = [v for v in part.carried if _plan.differentiable(avals[v])]
    others = [v for v in part.carried if v not in floats]
    results = [v for v in part.made if isinstance(v, tuple)]
    goes = [v for v in part.made if not isinstance(v, tuple) and _plan.differentiable(avals[v])]
    passes = [v for v in floats if v in self.sends]
    self.floats, self.takes = floats, goes + passes + list(shared)  # cotangents: go to, come of
    self.spec.update({v: place.whole for v in shared})
    self.last = last
    box, remat, loss = {}, pipeline.remat, pipeline._loss

    def function(mutable, carried, inputs, key, labels):
      """What jax.vjp sees: floats to floats; the rest is beside."""
      fixed = dict(zip(part.carried, carried))

      def f(own, some):
        have = {**fixed, **dict(zip(floats, some))}
        made, new = part.run(own, mutable, [have[v] for v in part.carried], inputs, key)
        named = dict(zip(part.made, made))
        if last:
          with jax.named_scope("loss"):
            return loss(_unflatten(named, results), *labels), (new, {})
        out = [named[v] for v in goes] + [have[v] for v in passes] + [own[i] for i in shared.values()]
        return out, (new, {v: named[v] for v in part.made if v not in goes})

      def _unflatten(named, results):
        return jax.tree.unflatten(out_tree, [named[v] for v in results])

      return f

    def forward(own, mutable, carried, inputs, key):
      f = function(mutable, carried, inputs, key, ())
      some = [c for v, c in zip(part.carried, carried) if v in floats]
      if remat:
        out, (new, rest) = f(own, some)
        kept = []
      else:
        out, vjp, (new, rest) = jax.vjp(f, own, some, has_aux=True)
        leaves, box["tree"] = jax.tree.flatten(vjp)
        # Arguments that are residuals stay where they are.
        place_of = {id(a): i for i, a in enumerate(own + some)}
        box["residuals"] = [place_of.get(id(leaf), None) for leaf in leaves]
        kept = [leaf for leaf, p in zip(leaves, box["residuals"]) if p is None]
      rest.update(zip(goes, out))
      return {v: rest[v] for v in part.made}, new, kept

    def add(total, grads):
      return grads if total is None else [a + g for a, g in zip(total, grads)]

    def backward(own, mutable, carried, inputs, key, kept, cotangents, total):
      some = [c for v, c in zip(part.carried, carried) if v in floats]
      if remat:
        _, vjp, _ = jax.vjp(function(mutable, carried, inputs, key, ()), own, some, has_aux=True)
      else:
        rest, known = iter(kept), own + some
        vjp = jax.tree.unflatten(box["tree"], [next(rest) if p is None else known[p] for p in box["residuals"]])
      grads, back = vjp(cotangents)
      return dict(zip(floats, back)), add(total, grads)

    def both(own, mutable, carried, inputs, key, labels, total, loss_sum):
      some = [c for v, c in zip(part.carried, carried) if v in floats]
      f = function(mutable, carried, inputs, key, labels)
      value, vjp, (new, _) = jax.vjp(f, own, some, has_aux=True)
      if value.shape or not _plan.differentiable(value):
        raise ValueError(f"the loss is {value.aval.str_short()}, and has to be one number of a floating type")
      grads, back = vjp(jax.numpy.ones_like(value))
      return dict(zip(floats, back)), new, add(total, grads), value if loss_sum is None else loss_sum + value

    made = {v: self.spec[v] for v in part.made}
    back = {v: self.spec[v] for v in floats}
    whole = place.whole
    self.forward = jax.jit(forward, out_shardings=(made, whole, None))
    self.backward = jax.jit(backward, out_shardings=(back, whole), donate_argnums=7)
    self.both = jax.jit(both, out_shardings=(back, whole, whole, whole), donate_argnums=(6, 7))
    self.through = jax.jit(lambda own, mutable, carried, inputs, key: dict(
        zip(part.made, part.run(own, mutable, carried, inputs, key)[0])), out_shardings=made)


@dataclasses.dataclass
class _Plan:
  """A model cut for microbatches of one shape: a stage is one computation, or one for each unit (exact)."""
  cut: object
  stages: list  # what lives where
  stage_of: list  # of each computation
  runners: list
  out_tree: object


@dataclasses.dataclass
class PipelineState:
  """What training changes: for each stage its parameters, optimizer's state and what else the model changes."""
  params: tuple
  opt: tuple
  mutable: tuple

  @classmethod
  def _register(cls):
    import jax
    jax.tree_util.register_dataclass(cls, ["params", "opt", "mutable"], [])


_register_state = functools.cache(PipelineState._register)


def _shapes(tree):
  import jax
  import numpy as np

  def one(x):
    if isinstance(x, jax.ShapeDtypeStruct):
      return x
    if not hasattr(x, "dtype"):
      x = np.asarray(x)
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype) if not jax.dtypes.issubdtype(
        x.dtype, jax.dtypes.extended) else x.dtype)

  return jax.tree.map(one, tree)


def _subtree(tree, own):
  """The leaves of these numbers, as nested dicts where the tree is one."""
  import jax

  leaves = jax.tree_util.tree_leaves_with_path(tree)
  if not all(isinstance(k, jax.tree_util.DictKey) for path, _ in leaves for k in path):
    return [leaves[i][1] for i in own]
  out = {}
  for i in own:
    path, leaf = leaves[i]
    at = out
    for k in path[:-1]:
      at = at.setdefault(k.key, {})
    if not path:
      return leaf
    at[path[-1].key] = leaf
  return out


class Pipeline:
  """A model in stages; `atoll.pipeline` makes it."""

  def __init__(self, model, stages, loss, optimizer, microbatches, schedule, devices, devices_per_stage, islands, remat,
               split, costs, depth, call, rngs, clip, donate, exact):
    import jax

    _register_state()
    self._arguments = {k: v for k, v in locals().items() if k not in ("self", "jax")}
    if schedule not in ("gpipe", "1f1b"):
      raise ValueError(f'schedule="{schedule}" is neither "gpipe" nor "1f1b"')
    if microbatches < 1:
      raise ValueError(f"microbatches={microbatches} is no number of microbatches")
    self._functions = None
    if isinstance(stages, (list, tuple)):
      if model is not None:
        raise ValueError("a model is split into a number of stages; hand-made stages=[f1, ...] come without a model")
      if not stages or not all(callable(f) for f in stages):
        raise ValueError("stages=[f1, f2, ...] takes functions f(params, x) -> y")
      self._functions, stages = list(stages), len(stages)
    elif model is None:
      raise ValueError("atoll.pipeline takes a model and stages=n, or stages=[f1, f2, ...]")
    elif not isinstance(stages, int) or stages < 1:
      raise ValueError(f"stages={stages} is no number of stages")
    self._adapter = None if self._functions else _adapter(model, call, rngs)
    self.schedule, self.microbatches, self.num_stages, self.remat = schedule, microbatches, stages, remat
    self._loss, self._optimizer, self._clip, self._donate = loss, optimizer, clip, donate
    self._split, self._costs, self._depth, self._exact = split, costs, depth, exact
    self._chosen = None
    if devices is None:
      devices, self._slices = _plan.choose_devices(stages, devices_per_stage, islands)
    if len(devices) != stages:
      raise ValueError(f"devices= has {len(devices)} lists for {stages} stages")
    self._places = [_Place(getattr(d, "tpus", d)) for d in devices]
    self._plans, self.stages, self._tree = {}, None, None
    self._order = [op for tick in _plan.ticks(schedule, stages, microbatches) for op in tick]
    self._updates = [self._update_of(p) for p in self._places]
    self._means = [jax.jit(lambda sums: jax.tree.map(lambda x: x / microbatches, sums), out_shardings=p.whole)
                   for p in self._places]
    self._step = _traced(self._step_function)
    self._grad = _traced(self._grad_function)
    self._forward = _traced(self._forward_function)

  # ---- Cutting
  def _leaves_of(self, variables):
    """(tree of parameters, tree of the rest), as the model has them."""
    if self._functions:
      return list(variables), [[] for _ in self._functions]
    return self._adapter.split(variables)

  def _trace(self, params, rest, inputs):
    """The model for one microbatch."""
    import jax

    trees = [jax.tree.structure(t) for t in (params, rest, inputs)]
    leaves = [jax.tree.leaves(t) for t in (params, rest, inputs)]
    if any(not _plan.differentiable(p) for p in leaves[0]):
      raise ValueError("parameters have to be of floating types")
    key = jax.ShapeDtypeStruct((2,), "uint32") if self._adapter.rngs else None

    def apply(*args):
      p, r, x = (jax.tree.unflatten(t, a) for t, a in zip(trees, args))
      y, new = self._adapter.apply(p, r, x, args[3])
      if jax.tree.structure(new) != trees[1]:
        raise ValueError("the model's mutable variables are not those that it was made with")
      return y, new

    traced = _cut.trace(lambda p, r, x, k: _flat_second(apply(p, r, x, k)), *leaves, key)
    return traced, _cut.read_marks(traced.jaxpr.jaxpr)

  def _choose_split(self, traced, marks, shapes):
    """Units and how many of them each stage has: (depth, counts, seconds of the units)."""
    workers = [len(p.devices) for p in self._places]
    best = None
    for depth in [self._depth] if self._depth else range(1, 6):
      ranges = _cut.ranges(marks, depth)
      if len(ranges) < self.num_stages or (best and len(ranges) == len(best[3])):
        continue
      places = [_cut.crossing_bytes(traced, marks, low, high) for _, low, high in ranges[:-1]]
      seconds = self._unit_costs(_cut.cut(traced, marks, [at for at, _ in places]), shapes)
      if self._split:
        counts = list(self._split)
        if len(counts) != self.num_stages or min(counts) < 1 or sum(counts) != len(ranges):
          raise ValueError(f"split={counts} has to be {self.num_stages} numbers whose sum is {len(ranges)}: "
                           f"{', '.join(name for name, *_ in ranges)}")
      else:
        counts = _cut.share(seconds, [size for _, size in places], self.num_stages, workers)
      longest = max(sum(seconds[b:e]) / w for (b, e), w in zip(_bounds(counts), workers))
      if best is None or longest < 0.95 * best[2]:
        best = (depth, counts, longest, ranges, seconds)
      if self._split or longest <= 1.1 * sum(seconds) / sum(workers):
        break  # deeper would gain nothing
    if best is None:
      units = _cut.ranges(marks, self._depth or 6)
      loops = any(e.primitive.name in ("scan", "while") for e in marks.eqns)
      raise ValueError(
          f"the model cannot be split into {self.num_stages} stages: it has {len(units)} "
          f"submodule{'s' * (len(units) != 1)} called one after another"
          f"{' (' + ', '.join(name for name, *_ in units) + ')' if units else ''}, and each stage takes at least one\n"
          "hint: " + ("layers in one loop (nn.scan, lax.scan) are not split; call them one by one" if loops else
                      "write the model as submodules that it calls one after another, or pass "
                      "stages=[f1, f2, ...] with f(params, x) -> y"))
    return best

  def _unit_costs(self, cut, shapes):
    if self._costs is not None:
      if callable(self._costs):
        return [float(self._costs(part.run, *part.shape_arguments(*shapes))) for part in cut.parts]
      if len(self._costs) != len(cut.parts):
        raise ValueError(f"costs= has {len(self._costs)} numbers for {len(cut.parts)} submodules")
      return [float(c) for c in self._costs]
    known = {}
    for part in cut.parts:
      if part.text not in known:
        known[part.text] = _plan.predict(part, part.shape_arguments(*shapes), self._machine())
    return [known[part.text] for part in cut.parts]

  def _machine(self):
    return _plan.MACHINES.get(self._places[0].devices[0].device_kind, "v5e")

  def _planned(self, params, rest, inputs):
    """params: shapes as the model has them; inputs: shapes of a whole batch, a tuple of arguments."""
    import jax

    params, rest, inputs = _shapes((params, rest, inputs))
    leaves, tree = jax.tree.flatten((params, rest, inputs))
    key = (tree, tuple((x.shape, x.dtype) for x in leaves))
    if key not in self._plans:
      size = self._microbatch(jax.tree.leaves(inputs))
      micro = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), inputs)
      units, counts, out_tree = (self._cut_functions if self._functions else self._cut_model)(params, rest, micro)
      stages = _cut.group(units, counts).parts
      cut = units if self._exact else _cut.group(units, counts)
      of = [s for s, c in enumerate(counts) for _ in range(c)] if self._exact else list(range(len(counts)))
      runners = [_Runner(self, cut, k, self._places[s], size, out_tree) for k, s in enumerate(of)]
      self._plans[key] = _Plan(cut, stages, of, runners, out_tree)
    return self._plans[key]

  def _cut_model(self, params, rest, micro):
    import jax

    traced, marks = self._trace(params, rest, micro)
    shapes = [jax.tree.leaves(t) for t in (params, rest, micro)]
    shapes.append(jax.ShapeDtypeStruct((2,), "uint32") if self._adapter.rngs else None)
    if self.stages is None:
      depth, counts, _, ranges, seconds = self._choose_split(traced, marks, shapes)
      self._chosen = depth, counts
      names = [name for name, *_ in ranges]
      self.stages = [Stage(s, names[b:e], p.devices, sum(seconds[b:e]) / len(p.devices), 0)
                     for s, ((b, e), p) in enumerate(zip(_bounds(counts), self._places))]
    depth, counts = self._chosen
    ranges = _cut.ranges(marks, depth)
    if sum(counts) != len(ranges):
      raise ValueError(f"with other shapes the model calls {len(ranges)} submodules, not {sum(counts)}")
    at = [_cut.crossing_bytes(traced, marks, low, high)[0] for _, low, high in ranges[:-1]]
    return _cut.cut(traced, marks, at), counts, traced.out_tree

  def _cut_functions(self, params, rest, micro):
    import jax

    x, = micro
    sizes = [len(jax.tree.leaves(p)) for p in params]
    bounds = _bounds(sizes)
    parts, x_tree, carried, chains = [], jax.tree.structure(x), [], {}
    n = len(self._functions)
    for s, f in enumerate(self._functions):
      y = jax.eval_shape(f, params[s], x)
      leaves, y_tree = jax.tree.flatten(y)
      made = [("result", i) if s == n - 1 else (s * 10000 + i) for i in range(len(leaves))]
      part = _cut.Part(own=list(range(*bounds[s])), mutable=[], carried=carried, inputs=[], uses_key=False, made=made)
      if s == 0:
        part.inputs = list(range(len(jax.tree.leaves(x))))
      part.avals = {**dict(zip(made, map(_aval, leaves))), **{v: parts[-1].avals[v] for v in carried}}
      part.text = str(s)
      part.run = functools.partial(_run_function, f, jax.tree.structure(params[s]), x_tree, s == 0)
      chains.update({v: [s, s + 1] for v in made if s < n - 1})
      parts.append(part)
      carried, x, x_tree = made if s < n - 1 else [], y, y_tree
    cut, counts = _cut.Cut(parts, chains, {}), [1] * n
    if self.stages is None:
      seconds = self._unit_costs(cut, [jax.tree.leaves(params), [], jax.tree.leaves(micro), None])
      names = [getattr(f, "__name__", f"function {s}") for s, f in enumerate(self._functions)]
      self.stages = [Stage(s, names[b:e], p.devices, sum(seconds[b:e]) / len(p.devices), 0)
                     for s, ((b, e), p) in enumerate(zip(_bounds(counts), self._places))]
    return cut, counts, x_tree

  def _microbatch(self, leaves):
    sizes = {x.shape[0] if x.shape else None for x in leaves}
    if len(sizes) != 1 or None in sizes:
      raise ValueError(f"inputs have to be batches of one size; there are {[tuple(x.shape) for x in leaves]}")
    batch, = sizes
    if batch % self.microbatches or not batch:
      raise ValueError(f"a batch of {batch} cannot be cut into microbatches={self.microbatches} of one size")
    size = batch // self.microbatches
    for s, p in enumerate(self._places):
      if size % len(p.devices):
        raise ValueError(f"a microbatch of {size} (a batch of {batch} in {self.microbatches}) cannot be spread over "
                         f"the {len(p.devices)} devices of stage {s}")
    return size

  def on_one_mesh(self, devices: Sequence | None = None) -> "Pipeline":
    """The same computations on one mesh (the first stage's, or of `devices`), without a pipeline: loss and gradients
    have the same bits where that mesh is as large as those of the stages."""
    more = dict(devices=[devices or self._places[0].devices] * self.num_stages, schedule="gpipe")
    if not self._functions:
      if self._chosen is None:
        raise ValueError("init or place comes first: it splits the model")
      depth, counts = self._chosen
      more.update(depth=depth, split=counts, costs=[0.0] * sum(counts))
    return Pipeline(**{**self._arguments, **more})

  # ---- State
  def init(self, rng: Any, x: Any) -> PipelineState:
    """Makes a model's variables, each on the devices of its stage: the state for `step`.

    rng: a key (nnx: None, a model has its parameters already); x: a batch or its shapes."""
    import jax

    if self._functions:
      raise ValueError("hand-made stages have no init: pass their parameters to place([p1, p2, ...], x)")
    inputs = _arguments(x)
    if isinstance(self._adapter, _Nnx):
      return self.place(self._adapter.init(rng, inputs), x)
    micro = jax.tree.map(lambda a: jax.ShapeDtypeStruct((self._microbatch([a]), *a.shape[1:]), a.dtype),
                         _shapes(inputs))
    data = jax.random.key_data(rng) if jax.dtypes.issubdtype(rng.dtype, jax.dtypes.prng_key) else rng
    data = jax.device_get(data)

    def make(data):
      zeros = jax.tree.map(lambda a: jax.numpy.zeros(a.shape, a.dtype), micro)
      return self._adapter.init(jax.random.wrap_key_data(data), zeros)

    def some(data, numbers):
      leaves = jax.tree.leaves(make(data))
      return [leaves[i] for i in numbers]

    shapes = jax.eval_shape(make, data)
    number = iter(range(len(jax.tree.leaves(shapes))))
    params, rest = self._adapter.split(jax.tree.map(lambda _: next(number), shapes))
    plan = self._planned(*self._adapter.split(shapes), inputs)
    made = {}
    for part, place in zip(plan.stages, self._places):
      # Each stage makes its own: no device has the whole model.
      mine = [jax.tree.leaves(params)[i] for i in part.own] + [jax.tree.leaves(rest)[i] for i in part.mutable]
      f = jax.jit(functools.partial(some, numbers=mine), out_shardings=place.whole)
      made.update(zip(mine, f(data)))
    return self._state(plan, *jax.tree.map(lambda i: made[i], (params, rest)))

  def place(self, variables: Any, x: Any) -> PipelineState:
    """Puts variables on the devices of their stages: the state for `step`.

    variables: of linen {"params": ..., ...}, of nnx (parameters, rest) as nnx.split(model, nnx.Param, ...) has them, of
    hand-made stages a list of each one's parameters; x: a batch or its shapes."""
    import jax

    params, rest = self._leaves_of(variables)
    plan = self._planned(params, rest, _arguments(x, self._functions))
    params, p_tree = jax.tree.flatten(params)
    rest, r_tree = jax.tree.flatten(rest)
    for part, place in zip(plan.stages, self._places):
      for leaves, mine in ((params, part.own), (rest, part.mutable)):
        for i in mine:
          leaf = leaves[i]
          # A step uses up the state's arrays, and not the caller's.
          leaf = jax.numpy.copy(leaf) if self._donate and isinstance(leaf, jax.Array) else leaf
          leaves[i] = _put(leaf, place, place.whole)
    return self._state(plan, jax.tree.unflatten(p_tree, params), jax.tree.unflatten(r_tree, rest))

  def _state(self, plan, params, rest):
    import jax

    self._tree = jax.tree.map(lambda _: 0, params), jax.tree.map(lambda _: 0, rest)
    self._variable_shapes, self._by_inputs = _shapes((params, rest)), {}
    if self._functions:
      own = tuple(params)
    else:
      own = tuple(_subtree(params, part.own) for part in plan.stages)
    for stage, mine in zip(self.stages, own):
      stage.parameters = sum(leaf.size for leaf in jax.tree.leaves(mine))
    leaves = jax.tree.leaves(rest)
    opt = tuple(() for _ in own)
    if hasattr(self._optimizer, "init"):
      opt = tuple(jax.jit(self._optimizer.init, out_shardings=p.whole)(o) for p, o in zip(self._places, own))
    return PipelineState(own, opt, tuple([leaves[i] for i in part.mutable] for part in plan.stages))

  def _joined(self, per_stage, which, plan, numbers):
    import jax

    tree = self._tree[which]
    leaves, treedef = jax.tree.flatten(tree)
    for part, mine in zip(plan.stages, per_stage):
      for i, leaf in zip(getattr(part, numbers), jax.tree.leaves(mine)):
        leaves[i] = leaf
    return jax.tree.unflatten(treedef, leaves)

  def variables(self, state: PipelineState) -> Any:
    """The state's variables, as the model has them; each array stays on its stage's devices."""
    plan = next(iter(self._plans.values()))
    params = self._joined(state.params, 0, plan, "own")
    if self._functions:
      return params
    return self._adapter.join(params, self._joined(state.mutable, 1, plan, "mutable"))

  # ---- Steps
  def step(self, state: PipelineState, x: Any, *labels: Any, rng: Any = None) -> tuple[PipelineState, Any]:
    """One step of training: (new state, loss). The old state is used up (donate=False: it stays)."""
    if self._optimizer is None:
      raise ValueError("atoll.pipeline(optimizer=...) is needed for steps; value_and_grad does without")
    return self._step(state, *self._batch(state, x, labels, rng))

  def value_and_grad(self, state: PipelineState, x: Any, *labels: Any, rng: Any = None) -> tuple[Any, Any]:
    """(loss, gradients as the model has its parameters), without a step."""
    import jax

    args = self._batch(state, x, labels, rng)
    loss, grads = self._grad(state, *args)
    plan = self._plan_of(args[0])
    return loss, self._joined(grads, 0, plan, "own")

  def apply(self, state: PipelineState, x: Any, rng: Any = None) -> Any:
    """The model's result for a batch, on the last stage's devices."""
    return self._forward(state, *self._batch(state, x, None, rng)[::2])

  def _batch(self, state, x, labels, rng):
    import jax
    import numpy as np

    if self._tree is None:
      raise ValueError("init or place comes first: it makes the state")
    if self._loss is None and labels is not None:
      raise ValueError("atoll.pipeline(loss=...) is needed for training: loss(y, *labels) -> a number")
    inputs, labels = jax.tree.map(lambda a: a if isinstance(a, jax.Array) else np.asarray(a),
                                  (_arguments(x, self._functions), labels or ()))
    self._plan_of(inputs)  # says what is wrong with them
    if len({a.shape[0] for a in jax.tree.leaves((inputs, labels)) if a.shape}) != 1:
      raise ValueError("inputs and labels have to be batches of one size")
    if bool(self._adapter and self._adapter.rngs) != (rng is not None):
      raise ValueError("rng= goes with atoll.pipeline(rngs=(...)), which names the model's streams of random numbers")
    if rng is not None and jax.dtypes.issubdtype(rng.dtype, jax.dtypes.prng_key):
      rng = jax.random.key_data(rng)
    return inputs, labels, rng

  def _plan_of(self, inputs):
    import jax

    leaves, tree = jax.tree.flatten(inputs)
    key = tree, tuple((x.shape, x.dtype) for x in leaves)
    if key not in self._by_inputs:
      self._by_inputs[key] = self._planned(*self._variable_shapes, inputs)
    return self._by_inputs[key]

  def _pieces(self, tree):
    """Microbatches of arrays: [leaf][microbatch], wherever they are."""
    import jax

    def cut(x, n=self.microbatches):
      size = x.shape[0] // n
      return [x[m * size:(m + 1) * size] for m in range(n)]

    out = []
    for x in jax.tree.leaves(tree):
      out.append(_cutter(self.microbatches)(x) if isinstance(x, jax.Array) else cut(x))
    return out

  def _feed(self, plan, state, inputs, key):
    """What computations get of a batch."""
    import jax

    pieces = self._pieces(inputs)
    keys = _key_splitter(self.microbatches)(key) if key is not None else None
    params, mutable = ({i: leaf for stage, tree in zip(plan.stages, trees)
                        for i, leaf in zip(getattr(stage, numbers), jax.tree.leaves(tree))}
                       for trees, numbers in ((state.params, "own"), (state.mutable, "mutable")))
    here = {}
    for v, number in plan.cut.shared.items():
      for k in plan.cut.chains[v][1:]:
        place = plan.runners[k].place
        here[k, v] = _put(params[number], place, place.whole)

    def arguments(k, m):
      part, place = plan.cut.parts[k], plan.runners[k].place
      carried = [here[k, v] if (k, v) in here else here.pop((k, v, m)) for v in part.carried]
      inputs = [_put(pieces[i][m], place, place.rows) for i in part.inputs]
      return carried, inputs, _put(keys[m], place, place.whole) if part.uses_key else None

    def send(k, m, made, carried):
      r = plan.runners[k]
      for v, value in [*made.items(), *zip(r.part.carried, carried)]:
        to = r.sends.get(v)
        if to is not None and v not in plan.cut.shared:
          here[to, v, m] = _put(value, plan.runners[to].place, plan.runners[to].spec[v])

    own = [[params[i] for i in part.own] for part in plan.cut.parts]
    return own, mutable, arguments, send

  def _operations(self, plan):
    """What is launched, in this order: ("F" or "B", computation, microbatch)."""
    computations = [[k for k, s in enumerate(plan.stage_of) if s == stage] for stage in range(self.num_stages)]
    for what, s, m in self._order:
      for k in computations[s] if what == "F" else computations[s][::-1]:
        yield what, k, m

  def _run(self, state, inputs, labels, key):
    """All launches of a step up to the sums of gradients."""
    import jax

    plan = self._plan_of(inputs)
    own, mutable, arguments, send = self._feed(plan, state, inputs, key)
    answers, label_tree = self._pieces(labels), jax.tree.structure(labels)
    totals, loss, kept, cotangents = [None] * len(own), None, {}, {}

    def give(k, m, back):
      for v, value in back.items():
        to = plan.runners[k].comes[v]
        cotangents[to, v, m] = _put(value, plan.runners[to].place, plan.runners[to].spec[v])

    for what, k, m in self._operations(plan):
      r = plan.runners[k]
      if what == "F":
        states = [mutable[i] for i in r.part.mutable]
        args = arguments(k, m)
        made, new, residuals = ({}, [], None) if r.last else r.forward(own[k], states, *args)
        kept[k, m] = states, args, residuals
        send(k, m, made, args[0])
      else:
        states, args, residuals = kept.pop((k, m))
        if r.last:  # forward, too
          states = [mutable[i] for i in r.part.mutable]
          y = jax.tree.unflatten(label_tree, [_put(a[m], r.place, r.place.rows) for a in answers])
          back, new, totals[k], loss = r.both(own[k], states, *args, y, totals[k], loss)
        else:
          back, totals[k] = r.backward(own[k], states, *args, residuals,
                                       [cotangents.pop((k, v, m)) for v in r.takes], totals[k])
          new = []
        give(k, m, back)
      mutable.update(zip(r.part.mutable, new))
    total = {i: t for part, some in zip(plan.cut.parts, totals) for i, t in zip(part.own, some)}
    return (loss, [[total[i] for i in stage.own] for stage in plan.stages],
            [[mutable[i] for i in stage.mutable] for stage in plan.stages])

  def _grad_function(self, state, inputs, labels, key):
    loss, totals, _ = self._run(state, inputs, labels, key)
    means = [mean(total) for mean, total in zip(self._means, totals)]
    return self._means[-1](loss), means

  def _step_function(self, state, inputs, labels, key):
    loss, totals, mutable = self._run(state, inputs, labels, key)
    scales = self._scales(totals)
    new = [update(p, o, t, c) for update, p, o, t, c in
           zip(self._updates, state.params, state.opt, totals, scales)]
    return PipelineState(tuple(p for p, _ in new), tuple(o for _, o in new), tuple(mutable)), self._means[-1](loss)

  def _scales(self, totals):
    """By how much gradients are scaled so that their common norm is at most clip."""
    if self._clip is None:
      return [None] * self.num_stages
    squares = [_squares()(t) for t in totals]
    first = self._places[0]
    scale = _clipper(self._clip, self.microbatches)([_put(q, first, first.whole) for q in squares])
    return [_put(scale, p, p.whole) for p in self._places]

  def _forward_function(self, state, inputs, key):
    import jax

    plan = self._plan_of(inputs)
    own, mutable, arguments, send = self._feed(plan, state, inputs, key)
    outs = []
    for m in range(self.microbatches):
      for k, r in enumerate(plan.runners):
        states, args = [mutable[i] for i in r.part.mutable], arguments(k, m)
        made = r.through(own[k], states, *args)
        if r.last:
          outs.append([made[v] for v in r.part.made if isinstance(v, tuple)])
        else:
          send(k, m, made, args[0])
    return jax.tree.unflatten(plan.out_tree, _joiner()(outs))

  def _update_of(self, place):
    import jax

    m, optimizer = self.microbatches, self._optimizer

    def update(params, opt, total, scale):
      leaves, tree = jax.tree.flatten(params)
      grads = [g / m for g in total]
      if scale is not None:
        grads = [g * scale.astype(g.dtype) for g in grads]
      grads = jax.tree.unflatten(tree, grads)
      if hasattr(optimizer, "update"):
        changes, opt = optimizer.update(grads, opt, params)
        params = jax.tree.map(lambda p, c: (p + c).astype(p.dtype), params, changes)
      else:
        params = optimizer(params, grads)
      return params, opt

    return jax.jit(update, out_shardings=place.whole, donate_argnums=(0, 1) if self._donate else ())

  # ---- Words
  @property
  def bubble(self) -> float:
    """The predicted share of idle time, with the predicted costs of the stages."""
    costs = [1.0] * self.num_stages
    if self.stages and all(s.seconds for s in self.stages):
      costs = [s.seconds for s in self.stages]
    return _plan.idle_share(self.schedule, costs, self.microbatches, self.remat)

  def describe(self) -> str:
    """Stages, what each is predicted to take, bubbles, devices."""
    n, m = self.num_stages, self.microbatches
    lines = [f"{n} stage{'s' * (n > 1)}, {self.schedule}, {m} microbatch{'es' * (m > 1)}, "
             f"{'forward again before backward' if self.remat else 'residuals kept'}"]
    if self.stages is None:
      lines.append("not split yet: init or place says for which shapes")
    for s in range(n):
      devices = self._places[s].devices
      islands = sorted({getattr(d, "slice_index", 0) for d in devices})
      where = (f"island{'s' * (len(islands) > 1)} {', '.join(map(str, islands))}, devices "
               f"{', '.join(str(d.id) for d in devices)}")
      if self.stages:
        stage = self.stages[s]
        lines.append(f"  stage {s}: {where}: {_short(stage.names)}; {stage.parameters:,} parameters; "
                     f"{stage.seconds * 1e6:.1f} us a microbatch, "
                     f"at most {m if self.schedule == 'gpipe' else min(n - s, m)} in flight")
      else:
        lines.append(f"  stage {s}: {where}")
    lines.append(f"bubbles: {(n - 1) / (m + n - 1):.1%} with equal stages ((S-1)/(M+S-1))"
                 + (f", {self.bubble:.1%} with these" if self.stages else ""))
    return "\n".join(lines)

  __repr__ = describe


# ---- Small things
def _bounds(counts):
  ends = [sum(counts[:i + 1]) for i in range(len(counts))]
  return [(e - c, e) for e, c in zip(ends, counts)]


def _short(names):
  return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]}, ..., {names[-1]} ({len(names)})"


def _arguments(x, functions=None):
  return (x,) if functions or not isinstance(x, tuple) else x


def _flat_second(pair):
  import jax
  return pair[0], jax.tree.leaves(pair[1])


def _aval(shape):
  import jax
  return jax.core.ShapedArray(shape.shape, shape.dtype)


def _run_function(f, p_tree, x_tree, first, own, mutable, carried, inputs, key):
  import jax

  x = jax.tree.unflatten(x_tree, inputs if first else carried)
  return jax.tree.leaves(f(jax.tree.unflatten(p_tree, own), x)), []


@functools.cache
def _cutter(n):
  import jax
  return jax.jit(lambda x: [x[m * (x.shape[0] // n):(m + 1) * (x.shape[0] // n)] for m in range(n)])


@functools.cache
def _key_splitter(n):
  import jax

  def split(data):
    key = jax.random.wrap_key_data(data)
    return [jax.random.key_data(jax.random.fold_in(key, m)) for m in range(n)]

  return jax.jit(split)


@functools.cache
def _joiner():
  import jax
  return jax.jit(lambda outs: [jax.numpy.concatenate(x) if x[0].ndim else jax.numpy.stack(x) for x in zip(*outs)])


@functools.cache
def _squares():
  import jax
  return jax.jit(lambda grads: sum(jax.numpy.sum(jax.numpy.square(g.astype("float32"))) for g in grads))


@functools.cache
def _clipper(limit, m):
  import jax
  import jax.numpy as jnp

  def scale(squares):
    norm = jnp.sqrt(sum(squares)) / m
    return jnp.where(norm > limit, limit / norm, 1.0)

  return jax.jit(scale)


def _traced(function):
  """As a program, where there is a library to trace it."""
  import atoll
  from atoll import _program

  try:
    atoll.library_path()
  except FileNotFoundError:
    return function
  return _program.program(function)


def pipeline(model: Any = None, *, stages: int | Sequence[Callable], loss: Callable | None = None, optimizer: Any = None,
             microbatches: int = 1, schedule: str = "1f1b", devices: Sequence | None = None,
             devices_per_stage: int | None = None, islands: Collection[int] | None = None, remat: bool = False,
             split: Sequence[int] | None = None, costs: Sequence[float] | Callable | None = None,
             depth: int | None = None, call: Mapping[str, Any] | tuple[()] = (), rngs: Sequence[str] = (),
             clip: float | None = None, donate: bool = True, exact: bool = False) -> Pipeline:
  """Trains a model in a pipeline: its parts on slices of devices of their own.

  Args:
    model: a `flax.linen` or `flax.nnx` module, as it is. It is split between submodules that it calls one after
      another, so that the stage that takes longest, by `atoll.estimate`, takes as little as can be.
    stages: how many; or functions `f(params, x) -> y`, jitted or not, that are the stages, without a model.
    loss: `loss(y, *labels) -> number`, of a microbatch.
    optimizer: of optax, or a function `(params, grads) -> params`. Each stage has one for its parameters.
    microbatches: of a batch, cut along the first dimension. Results are means over them.
    schedule: "gpipe" (all forward, then all backward) or "1f1b" (backward as soon as there is one).
    devices: a list of devices for each stage; left out, `atoll.make_virtual_device_set` chooses
      `devices_per_stage` (as many as there are) for each, all of one island.
    islands: numbers of the islands to choose from, [0] or [0, 1]; stages are spread over them.
    remat: whether stages run forward again before backward, and keep their inputs alone meanwhile.
    split: how many submodules each stage has, [2, 3, 3]; costs: seconds of each submodule, or a function of one.
    depth: of the submodules that count, 1 for those that the model calls itself; left out, as deep as needed.
    call: keyword arguments of the model's call, dict(train=True); rngs: linen's streams, ("dropout",).
    clip: the greatest norm of all stages' gradients together.
    donate: whether a step uses up its state.
    exact: whether each submodule is a computation of its own, so that bits do not depend on how many stages there are:
      what the compiler fuses depends on what is around it. Else a stage is one computation.

  Example:

    >>> import atoll, flax.linen as nn, jax, numpy as np
    >>> class Model(nn.Module):
    ...   @nn.compact
    ...   def __call__(self, x):
    ...     for _ in range(4):
    ...       x = nn.relu(nn.Dense(64)(x))
    ...     return nn.Dense(1)(x)
    >>> x = np.random.default_rng(0).random((64, 16), np.float32)
    >>> p = atoll.pipeline(Model(), stages=2, microbatches=4, loss=lambda y, t: ((y - t) ** 2).mean(),
    ...                    optimizer=lambda w, g: jax.tree.map(lambda w, g: w - 0.1 * g, w, g))
    >>> state = p.init(jax.random.key(0), x)
    >>> for _ in range(10):
    ...   state, value = p.step(state, x, x.sum(1, keepdims=True))
    >>> print(p.describe())
  """
  return Pipeline(model, stages, loss, optimizer, microbatches, schedule, devices, devices_per_stage, islands, remat,
                  split, costs, depth, call, rngs, clip, donate, exact)
