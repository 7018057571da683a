"""Cuts a traced model into the parts of a pipeline.

A model becomes one jaxpr in which every call of a submodule has left marks. Cuts go
between submodules, where the least crosses them. A part is a function of its own
parameters, of what the parts before it hand on and of the model's inputs. What crosses
may be used by several later parts: it goes along the chain of its users, and its
cotangent comes back along it, so sums have the order of the uncut model's.
"""

import contextlib
import dataclasses
import functools
import re

_MARK = "atoll pipeline:"


# ---- Models
@dataclasses.dataclass
class Traced:
  """A model: `apply(params, mutable, inputs, key)` of lists of leaves, and its result's leaves and new mutables."""
  jaxpr: object  # closed
  num_params: int
  num_mutable: int
  num_inputs: int
  key: bool
  out_tree: object
  units: list = dataclasses.field(default_factory=list)


def mark(tree, what):
  """Leaves a mark in what is traced, on the first array of a tree; the tree with it."""
  import jax
  from jax.ad_checkpoint import checkpoint_name

  leaves, treedef = jax.tree.flatten(tree)
  for i, leaf in enumerate(leaves):
    if isinstance(leaf, jax.core.Tracer) and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
      leaves[i] = checkpoint_name(leaf, _MARK + what)
      break
  return jax.tree.unflatten(treedef, leaves)


def _marked(path, call, args, kwargs):
  args, kwargs = mark((args, kwargs), "> " + path)
  return mark(call(*args, **kwargs), "< " + path)


@contextlib.contextmanager
def marking_linen():
  """While it lasts, calls of flax.linen submodules leave marks in what this thread traces."""
  import flax.linen as nn

  def around(call, args, kwargs, context):
    path = context.module.path
    if not path or context.method_name in ("setup", "__init__"):
      return call(*args, **kwargs)
    return _marked("/".join(path), call, args, kwargs)

  with nn.intercept_methods(around):
    yield


@contextlib.contextmanager
def marking_nnx(model):
  """nnx has no such hook: the classes of submodules get one for as long as this lasts."""
  from flax import nnx

  paths = {id(m): "/".join(map(str, path)) for path, m in nnx.iter_graph(model) if isinstance(m, nnx.Module) and path}
  modules = {type(m) for _, m in nnx.iter_graph(model) if isinstance(m, nnx.Module)}
  # Each where it is defined, so that what calls super().__call__ marks once more, inside, which does no harm.
  owners = {next((k for k in c.__mro__ if "__call__" in vars(k)), None) for c in modules} - {None}
  kept = {c: vars(c)["__call__"] for c in owners}

  def hooked(call):
    @functools.wraps(call)
    def around(self, *args, **kwargs):
      path = paths.get(id(self))
      if path is None:
        return call(self, *args, **kwargs)
      return _marked(path, functools.partial(call, self), args, kwargs)
    return around

  try:
    for c, call in kept.items():
      c.__call__ = hooked(call)
    yield
  finally:
    for c, call in kept.items():
      c.__call__ = call


def trace(apply, params, mutable, inputs, key) -> Traced:
  """All arguments are lists of ShapeDtypeStructs (key: one or None)."""
  import jax
  import numpy as np

  jaxpr, (y, _) = jax.make_jaxpr(apply, return_shape=True)(params, mutable, inputs, key)
  # Read now: a step that is being traced cannot look at values.
  jaxpr = jaxpr.replace(consts=[
      c if jax.dtypes.issubdtype(c.dtype, jax.dtypes.extended) else np.asarray(c) for c in jaxpr.consts])
  return Traced(jaxpr, len(params), len(mutable), len(inputs), key is not None, jax.tree.structure(y))


# ---- Where submodules begin and end
@dataclasses.dataclass
class Marks:
  """A jaxpr without its marks, and where in it they were."""
  eqns: list  # without marks
  events: list  # (equations before it, "<" or ">", path)
  outvars: list


def _is_var(v):
  return not hasattr(v, "val")


def read_marks(jaxpr) -> Marks:
  """Takes the marks out of a jaxpr that `mark` has left them in."""
  same, eqns, events = {}, [], []

  def now(v):
    return same.get(v, v) if _is_var(v) else v

  for e in jaxpr.eqns:
    name = e.params.get("name") if e.primitive.name == "name" else None
    if isinstance(name, str) and name.startswith(_MARK):
      way, path = name[len(_MARK):].split(" ", 1)
      events.append((len(eqns), way, path))
      same[e.outvars[0]] = now(e.invars[0])
    else:
      eqns.append(e.replace(invars=[now(v) for v in e.invars]))
  return Marks(eqns, events, [now(v) for v in jaxpr.outvars])


def ranges(marks, depth):
  """[(name, low, high)] of submodules no deeper than `depth` that are called one after
  another; behind the k-th a cut may be anywhere from low to high equations."""
  events = [e for e in marks.events if e[2].count("/") < depth]
  found, i = [], 0
  while i < len(events):
    at, way, path = events[i]
    if way == "<" and i and events[i - 1][1] == ">" and events[i - 1][2] == path:
      begin, low = events[i - 1][0], at
      following = next((k for k in range(i + 1, len(events)) if events[k][1] == "<"), None)
      high = events[following - 1][0] if following is not None else len(marks.eqns)
      if low > begin:  # it does something
        found.append((path, low, high))
    i += 1
  return found


# ---- Cutting
@dataclasses.dataclass
class Part:
  """A part of a model, as `run(own, mutable, carried, inputs, key)` -> (made, new mutable)."""
  own: list  # numbers of parameters that live here
  mutable: list
  carried: list  # names of what an earlier part hands on
  inputs: list  # numbers of the model's inputs that it uses
  uses_key: bool
  made: list  # names of what later parts use; the model's results in the last part
  run: object = None
  avals: dict = dataclasses.field(default_factory=dict)  # of what is carried or made
  text: str = ""

  def shape_arguments(self, params, mutable, inputs, key):
    """Arguments of `run` as shapes, picked from those of the whole model.

    params, mutable, inputs: lists of all its leaves' ShapeDtypeStructs; key: one, or None.
    """
    import jax

    carried = [jax.ShapeDtypeStruct(self.avals[v].shape, self.avals[v].dtype) for v in self.carried]
    return ([params[i] for i in self.own], [mutable[i] for i in self.mutable], carried,
            [inputs[i] for i in self.inputs], key if self.uses_key else None)


@dataclasses.dataclass
class Cut:
  """A model in parts, and what goes from part to part."""
  parts: list
  chains: dict  # of each name that crosses: the parts that have it, the maker first
  shared: dict  # names that are parameters: their number


def cut(traced: Traced, marks: Marks, at) -> Cut:
  """Cuts behind the numbers of equations in `at` (ascending)."""
  from jax.extend import core

  jaxpr, eqns = traced.jaxpr.jaxpr, marks.eqns
  consts = dict(zip(jaxpr.constvars, traced.jaxpr.consts))
  invars = list(jaxpr.invars)
  n_p, n_m, n_i = traced.num_params, traced.num_mutable, traced.num_inputs
  params = {v: i for i, v in enumerate(invars[:n_p])}
  mutable = {v: i for i, v in enumerate(invars[n_p:n_p + n_m])}
  inputs = {v: i for i, v in enumerate(invars[n_p + n_m:n_p + n_m + n_i])}
  key = invars[n_p + n_m + n_i] if traced.key else None
  n_y = len(marks.outvars) - n_m
  results, news = marks.outvars[:n_y], marks.outvars[n_y:]

  # What depends on nothing is made again wherever it is used.
  maker, free = {}, set(consts)
  for k, e in enumerate(eqns):
    for v in e.outvars:
      maker[v] = k
    if not e.effects and all(not _is_var(v) or v in free for v in e.invars):
      free.update(e.outvars)

  bounds = [0, *at, len(eqns)]
  count = len(bounds) - 1
  part_of = [0] * len(eqns)
  for s in range(count):
    for k in range(bounds[s], bounds[s + 1]):
      part_of[k] = s
  wanted = [dict() for _ in range(count)]  # variables that a part needs, in order
  bodies = [set() for _ in range(count)]

  def want(s, v):
    if not _is_var(v) or v in wanted[s]:
      return
    wanted[s][v] = None
    if v in free and v not in consts:
      bodies[s].add(maker[v])
      for w in eqns[maker[v]].invars:
        want(s, w)

  # Equations whose results nobody wants are left out.
  needed, needed_vars = set(), {v for v in marks.outvars if _is_var(v)}
  for k in reversed(range(len(eqns))):
    if eqns[k].effects or any(v in needed_vars for v in eqns[k].outvars):
      needed.add(k)
      needed_vars.update(v for v in eqns[k].invars if _is_var(v))
  for k in sorted(needed):
    if not all(v in free for v in eqns[k].outvars) or eqns[k].effects:
      bodies[part_of[k]].add(k)
      for v in eqns[k].invars:
        want(part_of[k], v)
  for v in results:
    want(count - 1, v)

  mutable_at = {}
  for s in range(count):
    for v in wanted[s]:
      if v in mutable and mutable_at.setdefault(v, s) != s:
        raise ValueError(
            f"a mutable variable of the model ({v.aval.str_short()}) is used by stages {mutable_at[v]} and {s}\n"
            "hint: parts of a pipeline share parameters, and no state that they change")
  by_number = {i: v for v, i in mutable.items()}
  for i, new in enumerate(news):
    old = by_number[i]
    if new is not old and _is_var(new) and new not in free:
      made_by = part_of[maker[new]] if new in maker else 0
      if mutable_at.setdefault(old, made_by) != made_by:
        raise ValueError("a mutable variable of the model is read by one stage and written by another")
    else:
      mutable_at.setdefault(old, count - 1 if new is not old else 0)

  # Chains: who makes a value, and the parts that use it.
  users = {}
  for s in range(count):
    for v in wanted[s]:
      if v not in free and v not in mutable and v not in inputs and v is not key:
        users.setdefault(v, []).append(s)
  names, chains, shared = {}, {}, {}
  for v, who in users.items():
    begin = who[0] if v in params else part_of[maker[v]]
    chain = [begin] + [s for s in who if s > begin]
    if len(chain) > 1:
      names[v] = len(names)
      chains[names[v]] = chain
      if v in params:
        shared[names[v]] = params[v]
  home = {v: users[v][0] if v in users else 0 for v in params}

  parts = []
  for s in range(count):
    own = [v for v in params if home[v] == s]
    part = Part(own=[params[v] for v in own], mutable=[i for v, i in mutable.items() if mutable_at[v] == s],
                carried=[], inputs=[], uses_key=key in wanted[s] if key is not None else False, made=[])
    carried = [v for v in names if s in chains[names[v]][1:]]
    made = [v for v in names if chains[names[v]][0] == s and v not in params]
    part.carried = [names[v] for v in carried]
    read = [v for v in inputs if v in wanted[s]]
    part.inputs = [inputs[v] for v in read]
    part.avals = {names[v]: v.aval for v in carried + made}
    outs = list(made)
    part.made = [names[v] for v in made]
    if s == count - 1:
      outs += results
      part.made += [("result", i) for i in range(n_y)]
      part.avals.update({("result", i): v.aval for i, v in enumerate(results)})
    outs += [news[i] for i in part.mutable]
    for v in outs:
      if _is_var(v) and v in free:
        want(s, v)
    used_consts = [v for v in consts if v in wanted[s]]
    args = own + [by_number[i] for i in part.mutable] + carried + read + ([key] if part.uses_key else [])
    body = jaxpr.replace(constvars=used_consts, invars=args, outvars=outs, eqns=[eqns[k] for k in sorted(bodies[s])])
    closed = core.ClosedJaxpr(body, [consts[v] for v in used_consts])
    part.text = re.sub(re.escape(_MARK) + r"[^\]\n]*", "", str(closed))
    part.run = functools.partial(_run, core.jaxpr_as_fun(closed), len(part.made))
    parts.append(part)
  return Cut(parts, chains, shared)


# ---- Grouping
def group(units: Cut, counts) -> Cut:
  """Units that follow each other as one part; counts: how many units each part has."""
  ends = [sum(counts[:s + 1]) for s in range(len(counts))]
  stage_of = [s for s, c in enumerate(counts) for _ in range(c)]
  chains = {v: sorted({stage_of[u] for u in chain}) for v, chain in units.chains.items()}
  chains = {v: chain for v, chain in chains.items() if len(chain) > 1}
  parts = []
  for s, (count, end) in enumerate(zip(counts, ends)):
    mine = units.parts[end - count:end]
    part = Part(own=sorted({i for u in mine for i in u.own}), mutable=sorted({i for u in mine for i in u.mutable}),
                carried=[v for v, chain in chains.items() if s in chain[1:]],
                inputs=sorted({i for u in mine for i in u.inputs}), uses_key=any(u.uses_key for u in mine),
                made=[v for v, chain in chains.items() if s == chain[0] and v not in units.shared])
    part.made += [v for v in mine[-1].made if isinstance(v, tuple)]
    for u in mine:
      part.avals.update(u.avals)
    shared = {v: i for v, i in units.shared.items() if v not in part.carried}
    part.run = functools.partial(_run_units, part, mine, shared)
    parts.append(part)
  return Cut(parts, chains, {v: i for v, i in units.shared.items() if v in chains})


def _run_units(part, units, shared, own, mutable, carried, inputs, key):
  params, states, fed = (dict(zip(numbers, values)) for numbers, values in
                         ((part.own, own), (part.mutable, mutable), (part.inputs, inputs)))
  have = dict(zip(part.carried, carried))
  have.update({v: params[i] for v, i in shared.items() if i in params})
  for u in units:
    made, new = u.run([params[i] for i in u.own], [states[i] for i in u.mutable],
                      [have[v] for v in u.carried], [fed[i] for i in u.inputs], key if u.uses_key else None)
    have.update(zip(u.made, made))
    states.update(zip(u.mutable, new))
  return [have[v] for v in part.made], [states[i] for i in part.mutable]


def _run(flat, num_made, own, mutable, carried, inputs, key):
  out = flat(*own, *mutable, *carried, *inputs, *([key] if key is not None else []))
  return list(out[:num_made]), list(out[num_made:])


def crossing_bytes(traced, marks, low, high):
  """The place from low to high where the least crosses, and how much that is."""
  jaxpr, eqns = traced.jaxpr.jaxpr, marks.eqns
  fixed = set(jaxpr.constvars) | set(jaxpr.invars)
  last = {}
  for k, e in enumerate(eqns):
    for v in e.invars:
      if _is_var(v):
        last[v] = k
  for v in marks.outvars:
    if _is_var(v):
      last[v] = len(eqns)
  best = None
  for at in range(low, high + 1):
    live = {v for e in eqns[:at] for v in e.outvars if v not in fixed and last.get(v, -1) >= at}
    size = sum(v.aval.size * v.aval.dtype.itemsize for v in live)
    if best is None or size <= best[1]:
      best = (at, size)
  return best


# ---- Sharing out
def share(costs, crossings, stages, workers):
  """Where to cut a row of costs so that the longest stage is shortest, and least crosses:
  the numbers of units of each stage. workers: devices of each stage."""
  n = len(costs)
  sums = [0.0]
  for c in costs:
    sums.append(sums[-1] + c)
  best = {(0, 0): (0.0, 0, ())}
  for s in range(stages):
    for end in range(s + 1, n - (stages - s - 1) + 1):
      options = []
      for begin in range(s, end):
        if (s, begin) in best and (s < stages - 1 or end == n):
          longest, bytes_, cuts = best[s, begin]
          # Rounded, so that stages that are as good as equal are told apart by what crosses.
          time = float(f"{(sums[end] - sums[begin]) / workers[s]:.6g}")
          options.append((max(longest, time), bytes_ + (crossings[end - 1] if end < n else 0), cuts + (end - begin,)))
      if options:
        best[s + 1, end] = min(options)
  return list(best[stages, n][2])
