"""How arrays lie on devices, as JSON; and arrays of the pod as JAX has them."""

import base64
import ctypes
import functools
import json
import struct

from atoll import _own, _program, _virtual

_WHY = 2048
_U32S = ctypes.POINTER(ctypes.c_uint32)
_KINDS = {"device": 0, "pinned_host": 1, "unpinned_host": 2}  # at_memory_kind
# abi/dtype.def by NumPy's names.
_TYPES = {"bool": "i1", "bfloat16": "bf16", "complex64": "complex<f32>", "complex128": "complex<f64>",
          "float16": "f16", "float32": "f32", "float64": "f64",
          **{f"int{n}": f"i{n}" for n in (2, 4, 8, 16, 32, 64)}, **{f"uint{n}": f"ui{n}" for n in (2, 4, 8, 16, 32, 64)},
          **{f"float{kind.lower()}": f"f{kind}" for kind in (
              "4_E2M1FN", "6_E2M3FN", "6_E3M2FN", "8_E3M4", "8_E4M3", "8_E4M3FN", "8_E4M3B11FNUZ", "8_E4M3FNUZ", "8_E5M2",
              "8_E5M2FNUZ", "8_E8M0FNU")}}
_TYPES = {name: text.replace("_", "") for name, text in _TYPES.items()}


class Made(ctypes.Structure):
  """at_pjrt_made."""
  _fields_ = [("num_shards", ctypes.c_uint32), ("kind", ctypes.c_uint32), ("dtype", ctypes.c_uint32),
              ("rank", ctypes.c_uint32), ("chips", _U32S), ("dims", ctypes.POINTER(ctypes.c_int64))]


class Refused(Exception):
  """Says why the pod does not do it; the code is at_code's."""

  def __init__(self, code, text):
    super().__init__(text)
    self.code = code


def check(code, why):
  """Raises Refused with the text in `why` where a call of the library returned a code."""
  if code:
    raise Refused(code, why.value.decode(errors="replace"))


def explain(error, missing=KeyError):
  """The exception that a caller sees for a Refused; `missing`: its class where nothing is found."""
  codes = {3: ValueError, 5: missing, 7: PermissionError, 12: RuntimeError}
  return codes.get(error.code, RuntimeError)(str(error))


def text(call, missing=KeyError) -> bytes:
  """What a call of the library's says, which is given where text, its size and `why` go."""
  out, size, reason = ctypes.c_void_p(), ctypes.c_size_t(), why()
  try:
    check(call(ctypes.byref(out), ctypes.byref(size), reason), reason)
    return ctypes.string_at(out, size.value) if size.value else b""
  except Refused as e:
    raise explain(e, missing) from None
  finally:
    _own.named().free_text(out)


def why():
  """An empty buffer for the library to say in what went wrong."""
  return ctypes.create_string_buffer(_WHY)


def dtype_number(dtype) -> int:
  """The library's number of a NumPy dtype, or of its name; TypeError: a pod has no arrays of it."""
  number = _own.named().dtype(_TYPES.get(str(dtype), "").encode())
  if not number:
    raise TypeError(f"a pod has no arrays of type {dtype}")
  return number


# ---- Shardings
def _chips(sharding):
  """Numbers of its devices as every program and host knows them."""
  for device in sharding._device_assignment:
    if _virtual.is_spare(device):
      raise ValueError(f"{device} is a virtual device, which only this program has: named objects and checkpoints lie "
                       "on the pod's own chips\nhint: jax.device_put(array, a sharding over jax.devices()) first")
  return [d.id for d in sharding._device_assignment]


def sharding_json(sharding, rank):
  """What makes the sharding again, in a process that has the same devices."""
  from jax.sharding import NamedSharding

  devices = _chips(sharding)
  out = {"devices": _runs(devices), "memory": sharding.memory_kind}
  if isinstance(sharding, NamedSharding):
    mesh = sharding.mesh
    out["axes"] = [[name, mesh.shape[name], t.name] for name, t in zip(mesh.axis_names, mesh.axis_types)]
    out["spec"] = [list(part) if isinstance(part, tuple) else part for part in sharding.spec]
  elif len(devices) > 1:
    proto = sharding._to_xla_hlo_sharding(rank).to_proto().SerializeToString()
    out["proto"] = base64.b64encode(proto).decode()
  return out


@functools.cache
def _mesh(ids, axes):
  import jax
  import numpy as np
  from jax.sharding import AxisType, Mesh

  devices = np.array(_devices(ids), object).reshape([size for _, size, _ in axes])
  return Mesh(devices, tuple(name for name, *_ in axes), axis_types=tuple(AxisType[t] for *_, t in axes))


def _devices(ids):
  import jax

  there = {d.id: d for d in jax.devices()}
  missing = [i for i in ids if i not in there]
  if missing:
    raise ValueError(f"it lies on device {missing[0]}, which the pod does not have")
  return [there[i] for i in ids]


def sharding_of(about):
  """The inverse of sharding_json; ValueError: the pod does not have one of its devices."""
  import jax
  from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

  ids = tuple(first + k * step for first, count, step in about["devices"] for k in range(count))
  memory = about["memory"]
  if "spec" in about:
    spec = PartitionSpec(*(tuple(part) if isinstance(part, list) else part for part in about["spec"]))
    return NamedSharding(_mesh(ids, tuple(map(tuple, about["axes"]))), spec, memory_kind=memory)
  if "proto" not in about:
    return SingleDeviceSharding(_devices(ids)[0], memory_kind=memory)
  from jax._src.sharding_impls import GSPMDSharding
  from jaxlib import xla_client

  proto = xla_client.OpSharding()
  proto.ParseFromString(base64.b64decode(about["proto"]))
  return GSPMDSharding(tuple(_devices(ids)), proto, memory_kind=memory)


def cut(sharding, shape, dtype, name, chips) -> bytes:
  """at_msg_cut: how the sharding cuts the array, in a form as long for a thousand shards as for one."""
  from jax.sharding import NamedSharding

  ids = _chips(sharding)
  axes, used = [len(ids)], []
  if isinstance(sharding, NamedSharding):
    sizes, name_of = sharding.mesh.shape, list(sharding.mesh.axis_names)
    axes = [sizes[n] for n in name_of]
    for dim, part in enumerate(sharding.spec):
      for n in (part if isinstance(part, tuple) else (part,) if part else ()):
        used.append((dim, name_of.index(n)))
  elif not sharding.is_fully_replicated:
    raise ValueError(f"{name}: hosts save and restore arrays whose sharding is a NamedSharding, not {sharding}\n"
                     "hint: jax.device_put(array, NamedSharding(...)) first")
  runs, encoded = _runs(ids) if chips else [], name.encode()
  out = struct.pack("<QHHIIIII", 0, _KINDS[sharding.memory_kind], dtype_number(dtype), len(shape), len(axes), len(used),
                    len(runs), len(encoded))
  out += struct.pack(f"<{len(shape)}q{len(axes)}I", *shape, *axes)
  out += b"".join(struct.pack("<II", *u) for u in used) + b"".join(struct.pack("<IIi", *r) for r in runs) + encoded
  return out + bytes(-len(out) % 8)


def _runs(ids):
  """Numbers as (first, count, step)."""
  runs = []
  for i in ids:
    if runs and (runs[-1][1] == 1 or i == runs[-1][0] + runs[-1][1] * runs[-1][2]):
      first, count, step = runs[-1]
      runs[-1] = (first, count + 1, step if count > 1 else i - first)
    else:
      runs.append((i, 1, 0))
  return runs


# ---- Trees
def plain(leaf):
  """A leaf as an array of a type that a pod has, and the kind of key that it is."""
  import jax
  import jax.numpy as jnp

  if isinstance(leaf, jax.core.Tracer):
    raise TypeError(f"a value of shape {leaf.shape} that is only traced cannot be stored\n"
                    "hint: return it from the function that jax.jit transforms, and store what that returns")
  if not isinstance(leaf, jax.Array):
    leaf = jnp.asarray(leaf)
  if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
    return jax.random.key_data(leaf), str(jax.random.key_impl(leaf))
  return leaf, None


def tree_json(tree, leaves):
  """The tree with numbers in the place of leaves, which are appended to `leaves`."""
  if tree is None:
    return None
  if isinstance(tree, dict) and type(tree) is dict:
    if not all(isinstance(k, str) for k in tree):
      raise TypeError("keys of dictionaries are to be strings")
    return {"dict": {k: tree_json(v, leaves) for k, v in tree.items()}}
  if type(tree) in (list, tuple):
    return {type(tree).__name__: [tree_json(v, leaves) for v in tree]}
  import jax

  if not jax.tree_util.all_leaves([tree]):
    raise TypeError(f"a tree with {type(tree).__name__} in it: dictionaries, lists and tuples are stored\n"
                    "hint: jax.tree.leaves, flax.nnx.to_pure_dict or flax.serialization.to_state_dict")
  leaves.append(tree)
  return len(leaves) - 1


def tree_of(about, leaves):
  """The inverse of tree_json: a tree with `leaves` at their numbers."""
  if about is None or isinstance(about, int):
    return None if about is None else leaves[about]
  (kind, parts), = about.items()
  if kind == "dict":
    return {k: tree_of(v, leaves) for k, v in parts.items()}
  return (tuple if kind == "tuple" else list)(tree_of(v, leaves) for v in parts)


def about_array(array, key=None):
  """Shape, dtype and sharding of an array as JSON; `key`: the kind of PRNG key whose data it is."""
  about = {"shape": list(array.shape), "dtype": str(array.dtype), **sharding_json(array.sharding, array.ndim)}
  return {**about, "key": key} if key else about


def spec_of(about):
  """A jax.ShapeDtypeStruct with its sharding."""
  import jax

  return jax.ShapeDtypeStruct(tuple(about["shape"]), _dtype(about["dtype"]), sharding=sharding_of(about))


def _dtype(name):
  import jax.numpy as jnp

  return jnp.dtype(name)


# ---- Arrays
@functools.lru_cache(256)
def _shell(shapes, shardings):
  import jax
  import jax.numpy as jnp

  return jax.jit(lambda: tuple(jnp.zeros(*s) for s in shapes), out_shardings=shardings)


def adopt(first, specs):
  """The pod's arrays `first`, `first + 1`, ..., as JAX's, each of its shape and sharding."""
  calls, reason = _own.named(), why()
  made, keep, groups = (Made * len(specs))(), [], {}
  for k, spec in enumerate(specs):
    devices = spec.sharding._device_assignment
    chips = (ctypes.c_uint32 * len(devices))(*(d.id for d in devices))
    shape = spec.sharding.shard_shape(spec.shape)
    dims = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    keep += [chips, dims]
    made[k] = Made(len(devices), _KINDS[spec.sharding.memory_kind], dtype_number(spec.dtype), len(shape), chips, dims)
    groups.setdefault((devices, spec.sharding.memory_kind), []).append(k)
  # Compiled before anything waits to be handed out.
  shells = [(_shell(tuple((specs[k].shape, specs[k].dtype) for k in numbers),
                    tuple(specs[k].sharding for k in numbers)), numbers) for numbers in groups.values()]
  shells = [(shell.lower().compile(), numbers) for shell, numbers in shells]
  check(calls.made(first, made, len(specs), reason, len(reason)), reason)
  out = [None] * len(specs)
  for shell, numbers in shells:
    borrowed = (ctypes.c_uint32 * len(numbers))(*numbers)
    calls.adopt(borrowed, len(numbers))
    for k, array in zip(numbers, shell()):
      out[k] = array
  return out


def buffers(arrays):
  """The library's buffers of arrays, and how many each has; ValueError: one is not on the pod."""
  for array in arrays:
    for device in array.sharding.device_set:
      if "Atoll" not in device.client.platform_version:
        raise ValueError(f"an array on {device} is not on the pod\nhint: jax.device_put(array, jax.devices(\"tpu\")[0])")
  return _program._buffers(arrays)


def encode(about) -> bytes:
  """JSON as bytes, padded with spaces to a multiple of 256."""
  # Padded, so that messages do not depend on how many digits numbers have.
  text = json.dumps(about, separators=(",", ":")).encode()
  return text + b" " * (-len(text) % 256)
