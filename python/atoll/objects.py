"""Named objects of a pod: arrays that outlive the program that made them.

`put` leaves a tree of arrays on the pod's hosts under a name, where they stay when this
program ends or is killed; `get` makes them arrays of any program, with the shardings that
they had, without a byte going through it.
"""

import ctypes
import json
from typing import Any

from atoll import _own, _shards


def put(name: str, tree: Any, *, label: str = "", donate: bool = False) -> None:
  """Keeps the arrays of `tree` (dictionaries, lists and tuples) under `name`.

  When it returns, they are there; an object of that name is replaced by then, at once. They are copies,
  on the same devices; with `donate` they are the arrays themselves, which are deleted here.
  """
  import jax

  _own.pod()
  leaves = []
  structure = _shards.tree_json(tree, leaves)
  if not leaves:
    raise ValueError("there is no array to put")
  plain = [_shards.plain(leaf) for leaf in leaves]
  arrays = [a for a, _ in plain]
  about = _shards.encode({"tree": structure, "arrays": [_shards.about_array(a, key) for a, key in plain]})
  places, counts = _shards.buffers(arrays)
  jax.block_until_ready(arrays)
  why = _shards.why()
  try:
    _shards.check(_own.named().keep(name.encode(), label.encode(), _own.Bytes.of(about), places, counts, len(arrays),
                                    donate, why, len(why)), why)
  except _shards.Refused as e:
    raise _shards.explain(e) from None
  for array in arrays if donate else ():
    array.delete()


def get(name: str, *, take: bool = False) -> Any:
  """The tree that was put under `name`: arrays of this program, on the devices where they are.

  They are copies; with `take` they are the object's own, and the name is gone.
  """
  import jax

  _own.pod()
  calls, first, count = _own.named(), ctypes.c_uint64(), ctypes.c_uint32()
  about = json.loads(_shards.text(lambda text, n, why: calls.fetch(
      name.encode(), take, text, n, ctypes.byref(first), ctypes.byref(count), why, len(why))))
  try:
    arrays = _shards.adopt(first.value, [_shards.spec_of(a) for a in about["arrays"]])
  except BaseException:
    calls.drop(first, count)
    raise
  leaves = [jax.random.wrap_key_data(array, impl=a["key"]) if "key" in a else array
            for array, a in zip(arrays, about["arrays"])]
  return _shards.tree_of(about["tree"], leaves)


def delete(name: str) -> None:
  """Nobody finds it any more; arrays that `get` has returned stay. KeyError: there is none."""
  _own.pod()
  why = _shards.why()
  try:
    _shards.check(_own.named().discard(name.encode(), why, len(why)), why)
  except _shards.Refused as e:
    raise _shards.explain(e) from None


def list() -> dict[str, dict]:
  """By name: label, owner, client, pid, arrays, bytes, hosts, and whether it is "there" or "lost"."""
  _own.pod()
  calls = _own.named()
  found = json.loads(_shards.text(lambda text, n, why: calls.list(text, n, why, len(why))))
  return {o.pop("name"): o for o in found["objects"]}
