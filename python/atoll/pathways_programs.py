"""What pathwaysutils and Orbax ask of a Pathways server in JSON, done by the client.

Their `PluginExecutable` compiles such a request for the server behind the IFRT proxy,
and `jaxlib._pathways._transfer_to_shardings` reshards there. PJRT has neither, so here
JAX moves the arrays and TensorStore writes and reads them.
"""

import base64
import concurrent.futures
import json
import sys

_MODULES = ("pathwaysutils.plugin_executable",
            "orbax.checkpoint._src.serialization.cloud_pathways_plugin_executable")
_told = False


def install() -> None:
  """Puts these in the place of theirs, where they have been imported."""
  try:
    from jaxlib import _pathways
  except ImportError:  # before JAX 0.8, where nothing asks for it
    pass
  else:
    _pathways._transfer_to_shardings = transfer_to_shardings
  if theirs := sys.modules.get("pathwaysutils.jax"):
    theirs.transfer_to_shardings = transfer_to_shardings
  for name in _MODULES:
    if module := sys.modules.get(name):
      module.PluginExecutable = PluginExecutable


def transfer_to_shardings(arrays, shardings, donate=False):
  """Each array with its sharding, by jax.device_put, which may use them up with `donate`."""
  import jax

  # What JAX cannot donate stays until nobody refers to it.
  return jax.device_put(list(arrays), list(shardings), donate=donate)


class PluginExecutable:
  """A request, and its answer each time that it is called."""

  def __init__(self, text: str):
    request = json.loads(text)
    if len(request) != 1 or next(iter(request)) not in _REQUESTS:
      raise NotImplementedError(
          f"UNIMPLEMENTED: a pod of Atoll has no plugin program {', '.join(request)}")
    (name, self._request), = request.items()
    self._run = _REQUESTS[name]

  def call(self, in_arr=(), out_shardings=(), out_avals=(), out_committed=True):
    """Does the request: (arrays, future of its end).

    in_arr: its arrays, where it takes any. out_shardings, out_avals: of the arrays that it returns.
    """
    return self._run(self._request, in_arr, out_shardings, out_avals)


def _done(result=None):
  future = concurrent.futures.Future()
  future.set_result(result)
  return future


def _reshard(request, arrays, shardings, avals):
  return transfer_to_shardings(arrays, shardings, request.get("donateInput", False)), _done()


def _profile(request, arrays, shardings, avals):
  global _told
  if not _told:
    print("atoll warning: hosts of a pod are not traced, the client alone is",
          file=sys.stderr, flush=True)
  _told = True
  return [], _done()


# ---- Checkpoints
_pool = None


def _start(work, *args):
  global _pool
  if _pool is None:
    _pool = concurrent.futures.ThreadPoolExecutor(4, "atoll-checkpoints")
  return _pool.submit(work, *args)


def _place(request):
  """Where an array lies, as TensorStore names it. Orbax takes the driver zarr."""
  folder, name = (base64.b64decode(request[k]).decode() for k in ("b64_location", "b64_name"))
  path = f"{folder.rstrip('/')}/{name}/"
  if path.startswith("gs://"):
    bucket, _, inside = path.removeprefix("gs://").partition("/")
    return {"driver": "zarr", "kvstore": {"driver": "gcs", "bucket": bucket, "path": inside}}
  return {"driver": "zarr", "kvstore": {"driver": "file", "path": path}}


def _write_one(request, parts, shape, dtype, chunk):
  import tensorstore as ts

  store = ts.open({**_place(request),
                   "metadata": {"shape": shape, "chunks": chunk, "compressor": {"id": "zstd", "level": 1}}},
                  dtype=dtype, create=True, delete_existing=True).result()
  for write in [store[index].write(part) for index, part in parts]:
    write.result()


def _write(request, arrays, shardings, avals):
  import numpy as np

  work = []
  for one, array in zip(request["write_requests"], arrays):
    # Each part of the array once; read before the caller goes on and donates it.
    shards = [s for s in array.addressable_shards if s.replica_id == 0]
    for s in shards:
      s.data.copy_to_host_async()
    parts = [(s.index, np.asarray(s.data)) for s in shards]
    chunk = [max(1, n) for n in shards[0].data.shape]
    work.append((one, parts, list(array.shape), array.dtype, chunk))
  return [], _start(_write_all, work)


def _write_all(work):
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for written in [pool.submit(_write_one, *w) for w in work]:
      written.result()


def _read_one(request, aval, sharding):
  import jax
  import tensorstore as ts

  store = ts.open(_place(request), open=True).result()
  if tuple(store.shape) != tuple(aval.shape):
    raise ValueError(f"the array in {store.kvstore.url} is {store.shape}, not {aval.shape}")
  return jax.make_array_from_callback(
      aval.shape, sharding, lambda index: store[index].read().result().astype(aval.dtype))


def _read(request, arrays, shardings, avals):
  work = [_start(_read_one, *r) for r in zip(request["read_requests"], avals, shardings)]
  return [w.result() for w in work], _done()


_REQUESTS = {
    "reshardRequest": _reshard,
    "profileRequest": _profile,
    "bulk_persistence_write_request": _write,
    "bulk_persistence_read_request": _read,
}
