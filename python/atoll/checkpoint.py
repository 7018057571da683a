"""Checkpoints that the hosts of a pod write and read: no byte of an array goes through the program.

A checkpoint is a folder that all hosts reach under one path. Each array in it is a zarr
array (version 2) whose chunks are its shards; `atoll.json` says what belongs to it, with
sums, and is written last. So a save that does not come to its end leaves what was there.
"""

import ctypes
import json
import os
import secrets
import urllib.parse
from typing import Any

from atoll import _own, _shards


def _part(key) -> str:
  quoted = urllib.parse.quote(str(key), safe=" +,=@()[]")
  return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted or "%"


def _names(tree, above=()):
  """The names of a tree's leaves, in the order of tree_json's."""
  if tree is None:
    return []
  pairs = tree.items() if type(tree) is dict else enumerate(tree) if type(tree) in (list, tuple) else None
  if pairs is None:
    return ["/".join(above) or "array"]
  return [name for key, part in pairs for name in _names(part, (*above, _part(key)))]


def _path(path) -> str:
  path = os.path.normpath(os.fsdecode(path))
  if not os.path.isabs(path):
    raise ValueError(f"{path} is not absolute: hosts of a pod have working folders of their own")
  return path


class Save:
  """A save under way; `result()` waits for its end, once, and raises its error."""

  def __init__(self, asked):
    self._asked = asked

  def result(self) -> None:
    """Waits until the checkpoint is complete; later calls return at once.

    Raises what went wrong on the hosts: FileNotFoundError, PermissionError, ValueError or
    RuntimeError. The checkpoint that was there before is then still there.
    """
    asked, self._asked = self._asked, None
    if asked:
      _wait(asked)


def _wait(asked) -> bytes:
  return _shards.text(lambda text, size, why: _own.named().wait(asked, text, size, why, len(why)),
                      FileNotFoundError)


def start(path: str, names, arrays, folder="", about=b"") -> Save:
  """Hosts begin to write `arrays` as they are now, each to `path`/`folder`/`name`: one message."""
  cuts = b"".join(_shards.cut(a.sharding, a.shape, a.dtype, n, False) for n, a in zip(names, arrays))
  places, counts = _shards.buffers(arrays)
  asked, why = ctypes.c_void_p(), _shards.why()
  try:
    _shards.check(_own.named().save(path.encode(), folder.encode(), _own.Bytes.of(about), _own.Bytes.of(cuts), places,
                                    counts, len(arrays), ctypes.byref(asked), why, len(why)), why)
  except _shards.Refused as e:
    raise _shards.explain(e, FileNotFoundError) from None
  return Save(asked)


def read(path: str, names, specs):
  """Arrays of a checkpoint, each of its spec's shape, dtype and sharding: one message."""
  calls, why = _own.named(), _shards.why()
  first, asked = ctypes.c_uint64(), ctypes.c_void_p()
  cuts = b"".join(_shards.cut(s.sharding, s.shape, s.dtype, n, True) for n, s in zip(names, specs))
  try:
    _shards.check(calls.restore(path.encode(), _own.Bytes.of(cuts), len(specs), ctypes.byref(first), ctypes.byref(asked),
                                why, len(why)), why)
  except _shards.Refused as e:
    raise _shards.explain(e, FileNotFoundError) from None
  try:
    _wait(asked)
    return _shards.adopt(first.value, specs)
  except BaseException:
    calls.drop(first, len(specs))
    raise


def save(path: str | os.PathLike, tree: Any, *, wait: bool = True) -> Save:
  """Saves a tree (dictionaries, lists and tuples) of arrays in the folder `path` of the hosts' file system.

  The arrays are saved as they are now: they may be donated at once. A checkpoint that is there is replaced
  when the new one is complete. Without `wait`, `result()` of what is returned says how it ended.
  """
  path = _path(path)
  _own.pod()
  leaves = []
  structure = _shards.tree_json(tree, leaves)
  if not leaves:
    raise ValueError("there is no array to save")
  plain = [_shards.plain(leaf) for leaf in leaves]
  about = _shards.encode({"tree": structure, "arrays": [_shards.about_array(a, key) for a, key in plain]})
  under_way = start(path, _names(tree), [a for a, _ in plain], "data-" + secrets.token_hex(8), about)
  if wait:
    under_way.result()
  return under_way


def metadata(path: str | os.PathLike) -> dict:
  """What the checkpoint has: `about` as it was saved, and `arrays` with name, dtype, dims and tiles."""
  path = _path(path)
  _own.pod()
  asked, why = ctypes.c_void_p(), _shards.why()
  try:
    _shards.check(_own.named().peek(path.encode(), ctypes.byref(asked), why, len(why)), why)
  except _shards.Refused as e:
    raise _shards.explain(e, FileNotFoundError) from None
  return json.loads(_wait(asked))


def restore(path: str | os.PathLike, like: Any = None) -> Any:
  """The tree that was saved there.

  `like` has jax.ShapeDtypeStructs with shardings, or arrays, in the place of arrays: what is returned is
  sharded so, over as many devices as these have, and may be a part of what was saved. Without it, arrays
  get the devices and shardings that they had.
  """
  import jax

  path = _path(path)
  _own.pod()
  if like is None:
    about = json.loads(metadata(path)["about"])
    specs, keys = [_shards.spec_of(a) for a in about["arrays"]], [a.get("key") for a in about["arrays"]]
    structure, names = about["tree"], _names(_shards.tree_of(about["tree"], [0] * len(specs)))
  else:
    leaves = []
    structure = _shards.tree_json(like, leaves)
    names, specs, keys = _names(like), *zip(*[_spec(leaf) for leaf in leaves])
  arrays = read(path, names, specs)
  return _shards.tree_of(structure, [jax.random.wrap_key_data(a, impl=key) if key else a for a, key in zip(arrays, keys)])


def _spec(leaf):
  """A leaf of `like` as an array that is restored, and the kind of key that it becomes."""
  import jax

  if getattr(leaf, "sharding", None) is None:
    raise ValueError(f"{leaf} says no sharding\nhint: jax.ShapeDtypeStruct(shape, dtype, sharding=...)")
  key = str(jax.random.key_impl(leaf)) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else None
  data = jax.eval_shape(jax.random.key_data, leaf) if key else leaf
  return jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=leaf.sharding), key
