"""What a person sees: one line at the first client, and atoll.status()."""
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest

START = "import jax; jax.devices(); jax.devices()"
LINE = re.compile(r"Atoll \d+\.\d+\.\d+: 4 chips of TPU v5 lite \(v5e:2x2\), in software; ATOLL_BANNER=off silences this")


def said(terminal=False, **knobs):
    """What a process that starts a client writes to stderr."""
    env = {k: v for k, v in os.environ.items() if k not in ("JPY_PARENT_PID", "ATOLL_BANNER", "ATOLL_LOG")}
    env |= {"ATOLL_TARGET": "v5e:2x2", **knobs}
    if not terminal:
        return subprocess.run([sys.executable, "-c", START], env=env, capture_output=True, text=True, check=True).stderr
    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", START], env=env, stderr=theirs)
    os.close(theirs)
    out = b""
    try:
        while part := os.read(ours, 65536):
            out += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert child.wait() == 0
    return out.decode()


@pytest.mark.parametrize("terminal, knobs, lines", [
    (False, {}, 0), (True, {}, 1), (False, {"JPY_PARENT_PID": "1"}, 1), (False, {"ATOLL_BANNER": "on"}, 1),
    (True, {"ATOLL_BANNER": "off"}, 0), (True, {"ATOLL_LOG": "error"}, 0)])
def test_the_line_is_said_once_where_it_is_read(terminal, knobs, lines):
    assert len(LINE.findall(said(terminal, **knobs))) == lines


def test_status_follows_memory():
    import jax

    import atoll

    device = jax.devices("tpu")[0]
    before = atoll.status()
    assert [c.chip for c in before] == [d.id for d in jax.devices("tpu")]
    kept = jax.block_until_ready(jax.device_put(np.ones(1 << 20, np.float32), device))
    after = atoll.status()
    assert after[0].bytes_in_use - before[0].bytes_in_use == 4 << 20 == kept.nbytes
    assert after[0].peak_bytes >= after[0].bytes_in_use and after[0].bytes_limit > 0
    assert after[0].kind == device.device_kind and after[0].kind in repr(after)
    html = after._repr_html_()
    assert html.startswith("<table>") and html.count("<tr>") == len(after) + 1 and after[0].kind in html


def test_status_counts_what_is_queued():
    import threading

    import jax

    import atoll

    go = threading.Event()

    def wait(x):
        go.wait(60)
        return x

    f = jax.jit(lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct((), np.float32), x))
    x = jax.device_put(np.float32(1), jax.devices("tpu")[0])
    try:
        y = f(x)
        assert atoll.status()[0].queued >= 1
    finally:
        go.set()
    assert float(y) == 1
    assert atoll.status()[0].queued == 0


def test_sizes_read_as_the_command_writes_them():
    from atoll import _status

    for count, text in ((0, "0 B"), (1536, "1.5 KiB"), (1000 << 20, "1000 MiB"), (int(1023.6 * (1 << 20)), "1 GiB"),
                        (5 << 28, "1.25 GiB")):
        assert _status._size(count) == text


NOTEBOOK = ["import jax, numpy as np, atoll, time", "table = atoll.status()", "table",
            "kept = jax.block_until_ready(jax.device_put(np.ones(1 << 20, np.float32), jax.devices('tpu')[0]))\n"
            "before = atoll._status._Live._last\n"
            "while '4 MiB' not in before._told['text/plain']: time.sleep(0.05)",
            "other = atoll.status()\nother", "print(before._thread.is_alive(), other._live._thread.is_alive())\n"
            "other.stop()\nprint(other._live._thread.is_alive())"]


def test_a_notebook_s_table_is_live_until_it_is_stopped():
    nbclient = pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed")
    pytest.importorskip("ipykernel")
    from nbformat import v4

    book = v4.new_notebook(cells=[v4.new_code_cell(c) for c in NOTEBOOK])
    env = {**os.environ, "ATOLL_TARGET": "v5e:2x2"}
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute(env=env)
    shown, second = book.cells[2].outputs[0], book.cells[4].outputs[0]
    # The output that the first table left in its cell has what was allocated later.
    assert "4 MiB" in shown.data["text/html"] and "4 MiB" in shown.data["text/plain"]
    assert shown.data["text/html"].count("<tr>") == 5
    assert second.output_type == "display_data" and second.data["text/plain"].startswith("chip")
    assert book.cells[5].outputs[0].text == "False True\nFalse\n"


class _Shell:
    kernel = None


def test_a_table_is_written_anew_where_it_is_shown(monkeypatch, capsys):
    """Without Jupyter: what a kernel's display would be asked to do."""
    import time
    import types

    import jax

    import atoll

    written = []

    def display(data, raw, display_id):
        assert raw and display_id
        written.append(data)
        return types.SimpleNamespace(update=lambda data, raw: written.append(data))

    shell = _Shell()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    atoll.status()._ipython_display_()
    assert not written and capsys.readouterr().out.startswith("chip")
    shell.kernel = object()
    monkeypatch.setattr(atoll._status, "_SECONDS", 0.02)
    table = atoll.status()
    table._ipython_display_()
    assert len(written) == 1
    kept = jax.block_until_ready(jax.device_put(np.ones(1 << 20, np.float32), jax.devices("tpu")[0]))
    deadline = time.monotonic() + 30
    while written[-1] == written[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert written[-1]["text/plain"] == repr(atoll.status()) and "<table>" in written[-1]["text/html"]
    table.stop()
    count = len(written)
    kept.delete()
    time.sleep(0.2)
    assert len(written) == count and not table._live._thread.is_alive()


def test_a_terminal_s_ipython_prints_the_table():
    pytest.importorskip("IPython")
    done = subprocess.run([sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c",
                           "import atoll; from IPython.display import display; display(atoll.status())"],
                          env={**os.environ, "ATOLL_TARGET": "v5e:2x2"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["chip", "kind", "process", "memory", "of", "peak", "queued"]
