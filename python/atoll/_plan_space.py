"""What `atoll plan` chooses from: slices of chips, meshes, sharding rules, rematerialisation, microbatches."""

import dataclasses
import functools
import itertools
import math
import re
from typing import Any, Callable, Mapping, Sequence

# How the function that a step wraps around its layers is made. The text is what the user pastes; lightest on memory
# last.
REMAT = {
    "none": "lambda f: f",
    "dots": "functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)",
    "offload": "functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.offload_dot_with_no_batch_dims("
               "'device', 'pinned_host'))",
    "full": "jax.checkpoint",
}
REMAT_SAYS = {
    "none": "every residual kept",
    "dots": "products kept, the rest recomputed",
    "offload": "products kept in the host's memory, the rest recomputed",
    "full": "everything recomputed",
}
# Each needs at least the memory of those behind it.
HEAVIER = {"none": (), "dots": ("none",), "offload": (), "full": ("none", "dots")}

AXES = ("data", "fsdp", "tensor")
_TENSOR = {"batch": ("data", "fsdp"), "embed": "fsdp", "heads": "tensor", "kv_heads": "tensor", "mlp": "tensor",
           "vocab": "tensor"}
RULES = {"tensor": _TENSOR, "tensor+sequence": {**_TENSOR, "length": "tensor"}}


@dataclasses.dataclass
class Plan:
  """A training step as `atoll plan` sees it.

  Attributes:
    init: `init()` makes the state, a pytree of arrays; only shapes are taken (jax.eval_shape).
    axes: the logical axes of each array of the state: the same tree with a tuple of names (or a PartitionSpec of
      names) per array, None for what is never cut; or a function of an array's path (jax.tree_util.keystr) and shape.
    step: `step(mesh, rules, remat, microbatches)` makes a function of (state, batch) that returns (state, anything).
      `rules`: pairs (logical axis, mesh axes), as Flax takes them. `remat(f)`: f, with its residuals recomputed or not.
    batch: a pytree of jax.ShapeDtypeStruct: the batch of one step over all chips.
    batch_axes: logical axes of the batch's arrays, as in `axes`; one tuple stands for all.
    tokens: of one step, for the price; 0: no price per token.
    mesh_axes: names of the mesh's axes; the last one's neighbours are neighbours on the torus.
    rules: name -> {logical axis: mesh axis, tuple of them, or None}.
    remat, microbatches: what to try.
    microbatch_axis: the logical axis that microbatches cut.
  """
  init: Callable[[], Any]
  axes: Any
  step: Callable[..., Callable]
  batch: Any
  batch_axes: Any = ("batch",)
  tokens: int = 0
  mesh_axes: Sequence[str] = AXES
  rules: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=lambda: dict(RULES))
  remat: Sequence[str] = tuple(REMAT)
  microbatches: Sequence[int] = (1, 2, 4, 8)
  microbatch_axis: str = "batch"

  def __post_init__(self):
    for name, rule in self.rules.items():
      for logical, mesh_axes in rule.items():
        for axis in as_tuple(mesh_axes):
          if axis not in self.mesh_axes:
            raise ValueError(f"rules {name!r}: {logical!r} is cut over {axis!r}, which is no axis of the mesh\n"
                             f"hint: mesh_axes={tuple(self.mesh_axes)}")
    for name in self.remat:
      if name not in REMAT:
        raise ValueError(f"remat: {name!r}\nhint: one of {', '.join(REMAT)}")
    if not all(isinstance(m, int) and m > 0 for m in self.microbatches):
      raise ValueError(f"microbatches: {self.microbatches}\nhint: whole numbers from 1")


@dataclasses.dataclass(frozen=True)
class Choice:
  """One way to run a step."""
  mesh: tuple  # sizes of the mesh's axes
  rules: str
  remat: str
  microbatches: int

  def differs(self, other) -> list:
    """The names of what is not the same in both."""
    return [f.name for f in dataclasses.fields(self) if getattr(self, f.name) != getattr(other, f.name)]


def as_tuple(x):
  """The mesh axes that a rule names."""
  return () if x is None else (x,) if isinstance(x, str) else tuple(x)


def remat_of(name):
  """The wrapper for a layer."""
  import jax
  return eval(REMAT[name], {"jax": jax, "functools": functools})


# ---- Chips
def counts_of(text: str) -> list[int]:
  """"16..512", by powers of two; "16,24"; "256"."""
  m = re.fullmatch(r"(\d+)\.\.(\d+)", text)
  if m:
    low, high = map(int, m.groups())
    found = [1 << i for i in range(31) if low <= 1 << i <= high]
  else:
    if not re.fullmatch(r"\d+(,\d+)*", text):
      raise ValueError(f"--chips={text}\nhint: --chips=256, --chips=16,64 or --chips=16..512 (powers of two)")
    found = [int(n) for n in text.split(",")]
  if not found or min(found) < 1:
    raise ValueError(f"--chips={text}: no number of chips\nhint: --chips=16..512 is of powers of two")
  return found


def topology(chips: int, dims: int) -> tuple:
  """The most compact torus of so many chips: sides ascend, of a cube's multiples from 64 chips on."""
  side = 4 if dims == 3 and chips >= 64 else 1
  if chips == 4 and dims == 3:
    return (2, 2, 1)
  found = [s for s in factors(chips, dims) if list(s) == sorted(s) and not any(n % side for n in s)]
  if not found:
    raise ValueError(f"no slice has {chips} chips\nhint: multiples of 64, or 1, 4, 8, 16 or 32")
  return min(found, key=lambda s: s[-1] - s[0])


def factors(n: int, parts: int) -> list[tuple]:
  """All tuples of so many factors whose product is n."""
  if parts == 1:
    return [(n,)]
  return [(d, *rest) for d in range(1, n + 1) if n % d == 0 for rest in factors(n // d, parts - 1)]


# ---- Arrays and their axes
def _is_axes(x):
  from jax.sharding import PartitionSpec
  return isinstance(x, PartitionSpec) or type(x) is tuple and all(n is None or isinstance(n, str) for n in x)


class Arrays:
  """The arrays of a pytree: path, shape, bytes, logical axes."""

  def __init__(self, tree, axes, what):
    import jax
    with_paths, self.structure = jax.tree_util.tree_flatten_with_path(tree)
    self.paths = [jax.tree_util.keystr(path) for path, _ in with_paths]
    self.leaves = [leaf for _, leaf in with_paths]
    if callable(axes):
      names = [axes(path, leaf.shape) for path, leaf in zip(self.paths, self.leaves)]
    elif _is_axes(axes) and len(self.leaves) > 1:
      names = [axes] * len(self.leaves)
    else:
      names = jax.tree.leaves(axes, is_leaf=_is_axes)
    if len(names) != len(self.leaves):
      raise ValueError(f"{what}: axes of {len(names)} arrays for {len(self.leaves)}\n"
                       "hint: the same tree, with a tuple of names in each array's place")
    self.names = [tuple(n) for n in names]
    for path, leaf, n in zip(self.paths, self.leaves, self.names):
      if len(n) > len(leaf.shape):
        raise ValueError(f"{what}{path}: {len(n)} logical axes, but its shape is {leaf.shape}")

  def specs(self, rules) -> list:
    """A PartitionSpec per array."""
    from jax.sharding import PartitionSpec
    return [PartitionSpec(*(rules.get(n) if n else None for n in names)) for names in self.names]

  def on_mesh(self, mesh, rules):
    """The tree of jax.ShapeDtypeStruct with shardings."""
    import jax
    from jax.sharding import NamedSharding
    return jax.tree.unflatten(self.structure, [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
        for x, spec in zip(self.leaves, self.specs(rules))])

  def ways(self, rules, sizes):
    """For each array and dimension (path, logical name, size, how many parts)."""
    for path, leaf, names in zip(self.paths, self.leaves, self.names):
      for n, size in zip(names, leaf.shape):
        yield path, n, size, math.prod(sizes[a] for a in as_tuple(rules.get(n) if n else None))

  def bytes_of_chip(self, rules, sizes) -> int:
    """What one chip holds of them."""
    total = 0
    for leaf, names in zip(self.leaves, self.names):
      parts = math.prod(sizes[a] for n in names for a in as_tuple(rules.get(n) if n else None))
      total += leaf.size * leaf.dtype.itemsize // parts if hasattr(leaf.dtype, "itemsize") else 0
    return total

  def size_of(self, name):
    """Of the dimensions of that logical name: how large the first is; 0: there are none."""
    return next((s for leaf, names in zip(self.leaves, self.names) for n, s in zip(names, leaf.shape) if n == name), 0)


# ---- Arithmetic that refuses
def resolved(rules, sizes):
  """The rules without axes that are one chip wide: two choices with the same are the same program."""
  cut = {k: tuple(a for a in as_tuple(v) if sizes[a] > 1) for k, v in rules.items()}
  return tuple(sorted((k, v) for k, v in cut.items() if v))


def layouts(plan, state, batch, devices, wall):
  """Pairs (mesh, rules' name) that arithmetic does not refuse; and [(mesh, name, why)] for those that it does."""
  kept, refused, seen = [], [], set()
  for mesh, name in itertools.product(factors(devices, len(plan.mesh_axes)), plan.rules):
    sizes, rules = dict(zip(plan.mesh_axes, mesh)), plan.rules[name]
    key = (mesh, resolved(rules, sizes))
    if key in seen:
      continue
    seen.add(key)
    why = _why_not(plan, state, batch, rules, sizes, wall)
    if why:
      refused.append((mesh, name, why))
    else:
      kept.append((mesh, name))
  return kept, refused


def _why_not(plan, state, batch, rules, sizes, wall):
  used = {a for v in rules.values() for a in as_tuple(v)}
  idle = [a for a, n in sizes.items() if n > 1 and a not in used]
  if idle:
    return f"nothing is cut over {idle[0]}"
  for arrays in (batch, state):
    for path, name, size, parts in arrays.ways(rules, sizes):
      if size % parts:
        return f"{name} of {size} is not a multiple of {parts} ({'x'.join(as_tuple(rules[name]))})"
  held = state.bytes_of_chip(rules, sizes)
  if wall and held > wall:
    return f"the state alone takes {gib(held)} of {gib(wall)}"
  return None


def microbatches(plan, batch, rules, sizes):
  """Those that cut the batch evenly."""
  size = batch.size_of(plan.microbatch_axis)
  parts = math.prod(sizes[a] for a in as_tuple(rules.get(plan.microbatch_axis)))
  return [m for m in sorted(plan.microbatches) if m == 1 or size and size % (m * parts) == 0]


def gib(n):
  """Bytes for people."""
  return f"{n / 2**30:.1f} GiB" if n >= 2**30 / 10 else f"{n / 2**20:.2f} MiB"
