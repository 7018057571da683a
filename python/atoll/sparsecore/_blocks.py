"""Memory for the buffers of batches: one block per batch, used again once nobody
holds an array of it, so that its pages need not be made anew for every batch."""

import mmap
import threading
import weakref

import numpy as np

_ALIGN = 64
_MAP_NORESERVE = 0x4000  # Linux; the mmap module of Python 3.11 lacks the name
_SPARE = 4  # free blocks that are kept

_free: list[mmap.mmap] = []
_lock = threading.Lock()


def _give_back(block: mmap.mmap) -> None:
  with _lock:
    _free.append(block)
    if len(_free) > _SPARE:
      _free.pop(0)


def _take(size: int, sparse: bool) -> mmap.mmap:
  with _lock:
    for i, block in enumerate(_free):
      if len(block) == size:
        return _free.pop(i)
  block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
                    | _MAP_NORESERVE)
  # Of a mini-batching buffer only the front is written: whole huge pages would
  # be zeroed for a few elements.
  block.madvise(mmap.MADV_NOHUGEPAGE if sparse else mmap.MADV_HUGEPAGE)
  return block


def arrays(shapes: list[tuple[int, type]], sparse: bool) -> list[np.ndarray]:
  """One-dimensional arrays of (length, dtype), not initialised."""
  places, at = [], 0
  for length, dtype in shapes:
    places.append(at)
    at += -(-length * np.dtype(dtype).itemsize // _ALIGN) * _ALIGN
  size = max(at, 1)
  block = _take(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE, sparse)
  whole = np.frombuffer(block, np.uint8)
  weakref.finalize(whole, _give_back, block).atexit = False
  return [whole[p:p + n * np.dtype(d).itemsize].view(d)
          for p, (n, d) in zip(places, shapes)]
