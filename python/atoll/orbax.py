"""Orbax checkpoints whose arrays the hosts of a pod write and read: `atoll.orbax.register()`.

From then on Orbax's checkpointers (StandardCheckpointer, PyTreeCheckpointer, CheckpointManager)
send the pod one message for the arrays of a tree. Each becomes a zarr array (version 2) in the
place where Orbax looks for it, and `atoll.json` beside them has sums of what lies in them.

What hosts cannot do is done as without this, by Orbax in this process: folders like `gs://`,
shardings that are no NamedSharding, types without a zarr name, other shapes than were saved,
and checkpoints that others have written.
"""

import asyncio
import os
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint._src.futures import future
from orbax.checkpoint._src.metadata import array_metadata, array_metadata_store
from orbax.checkpoint._src.serialization import jax_array_handlers, types

from atoll import _own, _shards, checkpoint

_KEY = array_metadata.RANDOM_KEY_IMPL
_NO_ZARR = {"int2", "uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3",
            "float8_e8m0fnu"}


def register(**options: Any) -> "ArrayHandler":
  """Hosts write and read jax.Arrays of every checkpointer that is made from now on.

  options: of Orbax's ArrayHandler. RuntimeError: there is no pod.
  """
  _own.pod()
  handler = ArrayHandler(**options)
  ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)
  return handler


def _folder(info) -> str:
  return str(info.parent_dir)


def _suits(info, sharding, dtype) -> bool:
  """Can hosts write it, or read it in that way?"""
  folder, name = _folder(info), info.name
  if not os.path.isabs(folder) or not name or any(part in ("", ".", "..") for part in name.split("/")):
    return False
  try:
    _shards.cut(sharding, (), dtype, name, False)
  except (TypeError, ValueError, KeyError):
    return False
  return len(name.encode()) <= 512 and name.isprintable() and str(dtype) not in _NO_ZARR


def _pick(flags, *lists):
  return [[item for item, flag in zip(items, flags) if flag] for items in lists]


def _merge(flags, chosen, others):
  chosen, others = iter(chosen), iter(others)
  return [next(chosen) if flag else next(others) for flag in flags]


class ArrayHandler(ocp.type_handlers.ArrayHandler):
  """Orbax's handler, whose bytes hosts move."""

  def __init__(self, **options):
    super().__init__(**{"array_metadata_store": array_metadata_store.Store(), **options})

  # ---- Saving
  async def serialize(self, values, infos, args=None):
    """Hosts begin to write `values`, or Orbax does where they cannot: futures of the writes.

    Returns once the arrays may be donated: what is written is what they are now.
    """
    args = args or [ocp.SaveArgs()] * len(values)
    types.check_input_arguments(values, infos, args)
    await self._wait_for_folders(infos)
    ours = [a.dtype is None and _suits(i, v.sharding, _data_dtype(v.dtype)) for v, i, a in zip(values, infos, args)]
    futures = []
    if any(ours):
      futures += self._start(*_pick(ours, values, infos))
    if not all(ours):
      not_ours = [not o for o in ours]
      futures += await super().serialize(*_pick(not_ours, values, infos, args))
    return futures

  async def _wait_for_folders(self, infos):
    async def nothing():
      pass

    # Orbax makes folders in the background.
    await asyncio.to_thread(future.CommitFutureAwaitingContractedSignals(nothing()).result)
    await asyncio.gather(*[info.await_path_creation() for info in infos])

  def _start(self, values, infos):
    plain = [_shards.plain(v) for v in values]
    arrays = [a for a, _ in plain]
    under_way = checkpoint.start(_folder(infos[0]), [i.name for i in infos], arrays)
    described = [array_metadata.ArrayMetadata(
        param_name=i.name, shape=a.shape, dtype=a.dtype, write_shape=a.sharding.shard_shape(a.shape),
        chunk_shape=a.sharding.shard_shape(a.shape), use_ocdbt=False, use_zarr3=False,
        ext_metadata={_KEY: key} if key else None) for i, (a, key) in zip(infos, plain)]

    async def end():
      await asyncio.to_thread(under_way.result)
      if self._array_metadata_store is not None:
        await self._array_metadata_store.write(checkpoint_dir=infos[0].parent_dir, array_metadatas=described,
                                               process_index=0)
      if self._enable_write_sharding_file:
        await jax_array_handlers._async_serialize_shardings([a.sharding for a in arrays], infos, primary_host=0)

    return [future.CommitFutureAwaitingContractedSignals(end(), name="atoll hosts write")]

  # ---- Restoring
  async def _saved_by_hosts(self, infos):
    """By name, what `atoll.json` says of arrays in the folder."""
    await asyncio.gather(*[info.await_path_creation() for info in infos])
    folder = _folder(infos[0])
    if not os.path.isabs(folder):
      return {}
    try:
      found = await asyncio.to_thread(checkpoint.metadata, folder)
    except FileNotFoundError:
      return {}
    return {} if found["folder"] else {a["name"]: a for a in found["arrays"]}

  async def metadata(self, infos):
    """Orbax's metadata of arrays, those that hosts have written (zarr, version 2) among them."""
    saved = await self._saved_by_hosts(infos)
    return await super().metadata([_zarr(i) if i.name in saved else i for i in infos])

  async def deserialize(self, infos, args=None):
    """The arrays, as `args` say: those that hosts have written are read by hosts where they can."""
    if args is None:
      raise ValueError("Must provide ArrayRestoreArgs to restore as jax.Array.")
    types.check_input_arguments(infos, args)
    saved = await self._saved_by_hosts(infos)
    infos = [_zarr(i) if i.name in saved else i for i in infos]
    specs = [_spec(i, a, saved.get(i.name)) for i, a in zip(infos, args)]
    ours = [s is not None for s in specs]
    mine, others = [], []
    if any(ours):
      mine = await self._read(*_pick(ours, infos, args, specs))
    for by_hosts in (True, False):  # Orbax reads one form at a time
      which = [not o and (i.name in saved) == by_hosts for o, i in zip(ours, infos)]
      if any(which):
        picked = _pick(which, infos, args)
        others += zip([k for k, w in enumerate(which) if w], await super().deserialize(*picked))
    others = [array for _, array in sorted(others, key=lambda o: o[0])]
    return _merge(ours, mine, others)

  async def _read(self, infos, args, specs):
    arrays = checkpoint.read(_folder(infos[0]), [i.name for i in infos], specs)
    keys = await self._keys(infos)
    return [jax.random.wrap_key_data(a, impl=keys[i.name]) if i.name in keys else _cast(a, arg.dtype)
            for a, i, arg in zip(arrays, infos, args)]

  async def _keys(self, infos):
    if self._array_metadata_store is None:
      return {}
    read = await self._array_metadata_store.read(checkpoint_dir=infos[0].parent_dir, process_index=0) or []
    return {m.param_name: m.ext_metadata[_KEY] for m in read if m.ext_metadata and _KEY in m.ext_metadata}


def _zarr(info):
  return info.replace(is_ocdbt_checkpoint=False, use_zarr3=False)


def _data_dtype(dtype):
  return "uint32" if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key) else dtype


def _spec(info, arg, saved):
  """What hosts are asked to read; None: Orbax does it."""
  if saved is None or not isinstance(arg, ocp.ArrayRestoreArgs):
    return None
  sharding = arg.sharding
  if arg.mesh is not None and arg.mesh_axes is not None:
    sharding = jax.sharding.NamedSharding(arg.mesh, arg.mesh_axes)
  elif hasattr(sharding, "to_jax_sharding"):
    sharding = sharding.to_jax_sharding()
  dtype = next((name for name, text in _shards._TYPES.items() if text == saved["dtype"]), None)
  shape, wanted = tuple(saved["dims"]), arg.global_shape
  is_key = arg.dtype is not None and jax.dtypes.issubdtype(arg.dtype, jax.dtypes.prng_key)
  if not isinstance(sharding, jax.sharding.Sharding) or not dtype or not _suits(info, sharding, dtype):
    return None
  if wanted is not None and tuple(wanted) != (shape[:-1] if is_key else shape):
    return None
  try:
    sharding.shard_shape(shape)
  except ValueError:
    return None
  return jax.ShapeDtypeStruct(shape, _shards._dtype(dtype), sharding=sharding)


def _cast(array, dtype):
  if dtype is None or array.dtype == dtype:
    return array
  return jax.jit(lambda a: a.astype(dtype), out_shardings=array.sharding)(array)
