"""atoll.status: the chips of this process as a table, which notebooks keep up to date."""

import dataclasses
import threading

from atoll import _own

_SECONDS = 1.0  # between two looks at the chips
_HEADS = ("chip", "kind", "process", "memory", "of", "peak", "queued")


def _size(count: int) -> str:
  """As the command writes sizes: "1.5 GiB"."""
  size, units = float(count), iter(("B", "KiB", "MiB", "GiB", "TiB"))
  unit = next(units)
  while size >= 1023.5:
    size, unit = size / 1024, next(units)
  digits = 0 if unit == "B" or size >= 99.95 else 1 if size >= 9.995 else 2
  text = f"{size:.{digits}f}"
  return f"{text.rstrip('0').rstrip('.') if digits else text} {unit}"


@dataclasses.dataclass(frozen=True)
class ChipStatus:
  """One chip: its number and kind, bytes of memory in use, at most so far, and in all, and launches in its queue."""
  chip: int
  kind: str
  process: int
  bytes_in_use: int
  peak_bytes: int
  bytes_limit: int
  queued: int


class _Live:
  """A table in a notebook, which a thread writes anew when it changes. One is live at a time: the last."""
  _last = None
  _lock = threading.Lock()

  def __init__(self, shown: "Status"):
    from IPython.display import display

    self._told = shown._bundle()
    self._end = threading.Event()
    self._handle = display(self._told, raw=True, display_id=True)
    with _Live._lock:
      before, _Live._last = _Live._last, self
    if before:
      before.stop()
    self._thread = threading.Thread(target=self._run, name="atoll.status", daemon=True)
    self._thread.start()

  def _run(self):
    while not self._end.wait(_SECONDS):
      try:
        now = status()._bundle()
      except Exception:  # the client is gone: the last figures stay
        return
      if now != self._told and not self._end.is_set():
        self._told = now
        self._handle.update(now, raw=True)

  def stop(self):
    self._end.set()
    if self._thread is not threading.current_thread():
      self._thread.join()


class Status(tuple):
  """ChipStatus of every chip, in order. Prints as a table; as the value of a notebook's cell it is one that is kept up to
  date, until another is shown or `stop()` is called."""
  _live = None

  def stop(self) -> None:
    """Ends the updates of this table in a notebook; its last figures stay."""
    if self._live:
      self._live.stop()

  def _bundle(self):
    return {"text/html": self._repr_html_(), "text/plain": repr(self)}

  def _ipython_display_(self):
    from IPython import get_ipython

    if getattr(get_ipython(), "kernel", None):
      self._live = _Live(self)
    else:
      print(repr(self))

  def _rows(self):
    return [(str(c.chip), c.kind, str(c.process), _size(c.bytes_in_use), _size(c.bytes_limit), _size(c.peak_bytes),
             str(c.queued)) for c in self]

  def __repr__(self):
    rows = [_HEADS, *self._rows()]
    widths = [max(len(r[i]) for r in rows) for i in range(len(_HEADS))]
    return "\n".join("  ".join(t.ljust(w) for t, w in zip(r, widths)).rstrip() for r in rows)

  def _repr_html_(self):
    import html

    def row(cells, tag):
      return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    return "<table>" + row(_HEADS, "th") + "".join(row(r, "td") for r in self._rows()) + "</table>"


def status() -> Status:
  """The chips of Atoll in this process: memory and queues, now. Starts JAX's client where there is none."""
  import jax

  queued = _own.extension().queued
  out = []
  for d in jax.devices("tpu"):
    stats = d.memory_stats() or {}
    in_use = stats.get("bytes_in_use", 0)
    out.append(ChipStatus(d.id, d.device_kind, d.process_index, in_use, stats.get("peak_bytes_in_use", in_use),
                          stats.get("bytes_limit", 0), queued(d.id)))
  return Status(out)
