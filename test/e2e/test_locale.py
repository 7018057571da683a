"""A program that has called setlocale: C's functions read and write "1,25" then, Atoll does not."""

import os
import struct
from pathlib import Path

import pytest

from conftest import LIBRARY

pytest.importorskip("pypjrt")

OPENING = """
import locale
locale.setlocale(locale.LC_NUMERIC, "comma")
assert locale.localeconv()["decimal_point"] == ","
"""

PROGRAM = OPENING + f"""
import pypjrt, numpy as np

def main(client):
  with client.compile(b'''module @m {{ func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
    %c = stablehlo.constant dense<[1.25, -3.0e-1, 1.0e+2, 0.5]> : tensor<4xf32>
    %0 = stablehlo.multiply %a, %c : tensor<4xf32>
    return %0 : tensor<4xf32> }} }}''') as run, client.devices() as devices:
    kind = client._plugin.abi.PJRT_Buffer_Type_F32
    with client.buffer_from_host(bytearray(np.ones(4, np.float32).tobytes()), kind, (4,), devices[0]) as x:
      with run.execute_sharded([[x]])[0][0] as y:
        return np.frombuffer(bytes(y.to_host(bytearray(16))), np.float32).tolist()

with pypjrt.Client.create({LIBRARY!r}) as client:
  print(main(client))
assert locale.localeconv()["decimal_point"] == ",", "the caller's locale is what it was"
"""

TILES = OPENING + """
import atoll.tiles
g = atoll.tiles.Graph("mk2")
a, b = g.variable("a", (64,)), g.variable("b", (64,))
a.map_linear(), b.map_linear()
r = g.report(g.copy(a.reverse(0), b))
print(0 < r["seconds"] < 1)
"""


@pytest.fixture(scope="module")
def comma(tmp_path_factory):
  """A folder of locales with one of our own, which has a decimal comma: its LC_NUMERIC as localedef writes it."""
  folder = tmp_path_factory.mktemp("locales")
  texts = [b",\0", b".\0", b"\x03\x03\0", struct.pack("<I", ord(",")), struct.pack("<I", ord(".")), b"UTF-8\0"]
  at, places, body = 8 + 4 * len(texts), [], b""
  for text in texts:
    body += bytes(-len(body) % 4) if len(text) == 4 else b""
    places.append(at + len(body))
    body += text
  (folder / "comma").mkdir()
  (folder / "comma" / "LC_NUMERIC").write_bytes(struct.pack("<II6I", 0x20031114, len(texts), *places) + body)
  return folder


@pytest.mark.parametrize("program, want", [
    (PROGRAM, "[1.25, -0.30000001192092896, 100.0, 0.5]"), (TILES, "True")], ids=["text", "tiles"])
def test_numbers(python, comma, program, want):
  package = str(Path(__file__).resolve().parents[2] / "python")
  done = python(program, env={"LOCPATH": str(comma), "ATOLL_LIBRARY": LIBRARY, "ATOLL_CACHE": "off",
                              "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])})
  assert done.returncode == 0 and want in done.stdout, done.stdout + done.stderr[-2000:]
