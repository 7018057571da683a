"""What people see of a pod and do to it: status, top, traces, drained hosts."""

import collections
import gzip
import html.parser
import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from pods import ATOLL, LIBRARY, PACKAGE, Pod, atoll, environment

PROGRAM = """
import sys
import jax, numpy as np
import atoll
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
def put(ids):
  mesh = Mesh(np.array([devices[i] for i in ids]), ("d",))
  return jax.device_put(np.ones((len(ids) * 2, 1024), np.float32), NamedSharding(mesh, P("d")))
def told(f):
  try: f()
  except Exception as e: return str(e)
  return "nothing"
@jax.jit
def doubled(x): return x * 2
for line in sys.stdin:
  exec(line)
  print("done", flush=True)
"""


class Client:
  """A program on the pod that does what it is told, line by line."""

  def __init__(self, pod):
    self.process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(ATOLL_POD=pod.address, TPU_LIBRARY_PATH=LIBRARY, PYTHONPATH=PACKAGE))

  def do(self, line):
    """What it prints."""
    self.process.stdin.write(line + "\n")
    self.process.stdin.flush()
    said = []
    for text in iter(self.process.stdout.readline, "done\n"):
      assert text, (line, said)
      said.append(text.rstrip())
    return "\n".join(said)

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    self.process.stdin.close()
    self.process.wait(30)
    self.process.stdout.close()


@pytest.fixture(scope="module")
def pod():
  with Pod("--hosts=2", "--target=2*v5e:2x2") as p:
    yield p


def state(number, is_):
  return lambda s: any(h["host"] == number and h["state"] == is_ for h in s["hosts"])


# ---- Status
def test_status_says_who_does_what(pod):
  with Client(pod) as c:
    c.do("x = put(range(8)); [doubled(x).block_until_ready() for _ in range(20)]")
    s = pod.status()
    chips = [d for h in s["hosts"] for d in h["devices"]]
    assert [(d["chip"], d["slice"], d["queued"]) for d in chips] == [(i, i // 4, 0) for i in range(8)]
    assert all(2 * 4096 <= d["in_use"] < d["limit"] for d in chips), chips
    (client,) = s["clients"]
    assert client["uid"] == os.getuid() and client["launches"] == 20 and client["hbm_bytes"] >= 8 * 2 * 4096, client
    (program,) = s["last_programs"]
    assert (program["name"], program["launches"], program["hosts"]) == ("jit_doubled", 20, 2), program
    assert program["measured"] == 2 * 5 and program["p50_us"] > 0 > program["last_us"], program
    assert all(r["given_us"] <= r["start_us"] <= r["end_us"] < 0 for r in s["runs"]), s["runs"]
    assert sum(h["holders"][0]["hbm_bytes"] for h in s["hosts"]) == client["hbm_bytes"]
    p = atoll("pod", "status", ATOLL_POD=pod.address)
    assert re.search(r"chip 5 +0 queued +\d+ \S+ of 15.8 GiB", p.stdout), p.stdout
    assert re.search(r"jit_doubled +client \d+ +20 launches +p50 +[\d.]+ us", p.stdout), p.stdout


def test_top_fills_a_screen_and_gives_it_back(pod):
  leader, follower = pty.openpty()
  before = subprocess.run(["stty", "-g"], stdin=follower, capture_output=True, check=True).stdout
  p = subprocess.Popen([ATOLL, "pod", "top", "--every=0.1"], stdin=follower, stdout=follower, stderr=follower,
                       env=environment(ATOLL_POD=pod.address))
  screen, until = b"", time.monotonic() + 20
  while screen.count(b"\x1b[H") < 3 and time.monotonic() < until:
    if select.select([leader], [], [], 0.5)[0]:
      screen += os.read(leader, 65536)
  os.write(leader, b"q")
  assert p.wait(10) == 0
  if select.select([leader], [], [], 0.5)[0]:
    screen += os.read(leader, 65536)
  assert screen.startswith(b"\x1b[?1049h") and screen.endswith(b"\x1b[?25h\x1b[?1049l"), screen
  assert b"2*v5e:2x2, 8 chips, up" in screen and screen.count(b"host 1") >= 3, screen
  assert subprocess.run(["stty", "-g"], stdin=follower, capture_output=True, check=True).stdout == before
  os.close(leader)
  os.close(follower)
  # Not a terminal: plain lines, without end.
  p = subprocess.Popen([ATOLL, "pod", "top", "--every=0.1", "--json"], stdout=subprocess.PIPE, text=True,
                       env=environment(ATOLL_POD=pod.address))
  assert all(json.loads(p.stdout.readline())["state"] == "up" for _ in range(3))
  p.terminate()
  p.wait()
  p.stdout.close()


# ---- Traces
def check_nesting(events):
  """Slices of a thread lie in each other or beside each other; what begins ends."""
  threads, open_ = collections.defaultdict(list), {}
  for e in events:
    if e["ph"] == "X":
      threads[e["pid"], e["tid"]].append((e["ts"], -e["dur"]))
    elif e["ph"] == "b":
      open_[e["cat"], e["id"]] = e["ts"]
    elif e["ph"] == "e":
      assert open_.pop((e["cat"], e["id"])) <= e["ts"]
  assert not open_
  for slices in threads.values():
    ends = []
    for begin, dur in sorted(slices):
      while ends and ends[-1] <= begin + 0.2:
        ends.pop()
      assert not ends or begin - dur <= ends[-1] + 0.2, (begin, dur, ends)
      ends.append(begin - dur)


def test_a_trace_follows_a_launch(pod, tmp_path):
  program = PROGRAM.partition("for line")[0] + """
x = put(range(8))
total = jax.jit(lambda x: x.sum())
for _ in range(5): y = total(doubled(x))
np.asarray(y)
jax.device_put(put([1]), devices[6]).block_until_ready()
sys.exit(3)
"""
  out = tmp_path / "trace.json.gz"
  p = atoll("pod", "trace", f"--out={out}", "--", sys.executable, "-c", program, ATOLL_POD=pod.address,
            TPU_LIBRARY_PATH=LIBRARY, PYTHONPATH=PACKAGE)
  assert p.returncode == 3 and "4 processes" in p.stderr and "dropped" not in p.stderr, p.stderr
  trace = json.loads(gzip.decompress(out.read_bytes()))
  events = trace["traceEvents"]
  assert trace["otherData"]["dropped"] == 0
  check_nesting(events)
  process = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
  thread = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
  assert sorted(re.sub(r"[ :].*", "", v) for v in process.values()) == ["client", "controller", "host", "host"], process
  assert {f"chip {i}" for i in range(8)} <= set(thread.values()), thread
  launches = collections.defaultdict(list)
  for e in events:
    if e["ph"] in "bX" and "launch" in e["args"]:
      launches[e["args"]["launch"]].append(e)
  whole = [v for v in launches.values() if any(e["name"] == "jit_doubled" for e in v)]
  assert len(whole) == 5, launches
  for launch in whole:
    of = collections.defaultdict(list)
    for e in launch:
      of[e["cat"]].append(e)
    assert (len(of["launch"]), len(of["order"]), len(of["take"]), len(of["run"])) == (1, 1, 2, 8), of
    assert of["launch"][0]["ts"] <= of["order"][0]["ts"] <= min(e["ts"] for e in of["take"])
    for take in of["take"]:  # clocks of all processes are one
      assert take["ts"] <= min(e["ts"] for e in of["run"] if e["pid"] == take["pid"])
    assert {e["name"] for e in of["launch"] + of["order"] + of["take"] + of["run"]} == {"jit_doubled"}
    arrows = sorted((e for e in events if e["ph"] in "stf" and e["id"] == launch[0]["args"]["launch"]), key=lambda e: e["ts"])
    assert arrows[0]["ph"] == "s" and arrows[-1]["ph"] == "f" and arrows[-1]["bp"] == "e", arrows
    assert process[arrows[0]["pid"]].startswith("client"), arrows
  assert sum(e.get("cat") == "collective" for e in events) >= 5 * 8
  assert any(e.get("cat") == "transfer" for e in events) and any(e.get("cat") == "reads" for e in events)
  # Nothing is recorded any more, and nothing is left of it.
  p = atoll("pod", "trace", f"--out={tmp_path / 'empty.json'}", "--seconds=0.2", ATOLL_POD=pod.address)
  assert p.returncode == 0 and " 0 launches" in p.stderr, p.stderr
  assert json.loads((tmp_path / "empty.json").read_text())["traceEvents"] == []


def test_one_trace_at_a_time(pod, tmp_path):
  first = subprocess.Popen([ATOLL, "pod", "trace", f"--out={tmp_path / 'a.json'}", "--seconds=60"], stderr=subprocess.PIPE,
                           env=environment(ATOLL_POD=pod.address), text=True)
  time.sleep(1)
  p = atoll("pod", "trace", f"--out={tmp_path / 'b.json'}", "--seconds=0.1", ATOLL_POD=pod.address)
  until = time.monotonic() + 20
  assert p.returncode and "FAILED_PRECONDITION: somebody makes a trace" in p.stderr, p.stderr
  first.terminate()  # it writes what there is
  first.wait(10)
  assert first.returncode == 0 and (tmp_path / "a.json").exists(), first.stderr.read()
  first.stderr.close()
  # One that is killed is forgotten.
  first = subprocess.Popen([ATOLL, "pod", "trace", f"--out={tmp_path / 'c.json'}", "--seconds=60"],
                           env=environment(ATOLL_POD=pod.address))
  time.sleep(0.3)
  first.kill()
  first.wait()
  while atoll("pod", "trace", f"--out={tmp_path / 'b.json'}", "--seconds=0.1", ATOLL_POD=pod.address).returncode:
    assert time.monotonic() < until
  assert not (tmp_path / "c.json").exists()
  p = atoll("pod", "trace", "--out=/nobody/has/this.json", "--seconds=0.1", ATOLL_POD=pod.address)
  assert p.returncode and "No such file" in p.stderr, p.stderr


# ---- Drained hosts
def test_a_host_is_drained_and_taken_back(pod):
  drain = lambda *words: atoll("pod", *words, ATOLL_POD=pod.address)
  pid = pod.host(1)["pid"]
  with Client(pod) as c:
    c.do("x = put([5, 6]); y = put([1])")
    assert drain("drain", "1", "--no-wait").returncode == 0
    pod.wait_for(state(1, "draining"))
    # Nothing new goes there by choice, but who names its devices has them.
    assert c.do("slices = atoll.make_virtual_device_set(); "
                "print({host for _ in range(4) for _, host in slices.add_slice(2).chips})") == "{0}"
    assert c.do("print({host for _, host in slices.add_slice(8).chips})") == "{0}"  # they take turns
    assert c.do("x = doubled(x); print(float(x.sum()))") == "8192.0"
    p = drain("drain", "1", "--timeout=0.5")
    assert p.returncode == 1 and "DEADLINE_EXCEEDED" in p.stderr and "--force" in p.stderr, p.stderr
    assert re.search(rf"client \d+ \(process {c.process.pid}, .*\): \d+ arrays, 16 KiB", p.stdout), p.stdout
    c.do("del x")
    p = drain("drain", "1")
    assert p.returncode == 0 and p.stdout.endswith("host 1 is drained\n"), p.stdout + p.stderr
    pod.wait_for(lambda s: not os.path.exists(f"/proc/{pid}"), 10)
    # What was on host 0 is there; programs that come meanwhile work; elastic programs see one slice.
    assert c.do("print(float(y.sum()))") == "2048.0"
    assert "DATA_LOSS" in c.do("print(told(lambda: put([4]).block_until_ready()))")
    with Client(pod) as late:
      assert late.do("print(float(doubled(put([0, 1])).sum()))") == "8192.0"
      try:
        import pathwaysutils as _
      except ImportError:
        pass
      else:
        assert late.do("from pathwaysutils.elastic import elastic; print(set(elastic.get_active_slice_indices("
                       "{i: devices[4 * i:4 * i + 4] for i in range(2)})))") == "{0}"
      assert pod.host(1)["state"] == "drained" and pod.status()["state"] == "up"
      time.sleep(1)
      assert pod.host(1)["state"] == "drained", "it was started again"
      assert drain("undrain", "1").returncode == 0
      pod.wait_until_back(1, pid)
      assert late.do("print(float(doubled(put(range(8))).sum()))") == "32768.0"
      assert late.do("print(float(doubled(put([7])).sum()))") == "4096.0"
    # By force: what is there is told, and gone.
    c.do("x = put([4, 5, 6, 7]); z = doubled(x); z.block_until_ready()")
    p = drain("drain", "1", "--force")
    assert p.returncode == 0 and re.search(r"host 1 loses:\n  client \d+ .*: \d+ arrays, 64 KiB\n", p.stdout), p.stdout
    assert "DATA_LOSS" in c.do("print(told(lambda: np.asarray(z)))")
    assert drain("drain", "--undo", "1").returncode == 0
    pod.wait_for(lambda s: s["state"] == "up" and state(1, "up")(s))


def test_what_cannot_be_drained(pod):
  for words, what in ((["9"], "there is no host 9: the pod has hosts 0 to 1"), (["x"], "which host?"), ([], "which host?"),
                      (["1", "--force", "--undo"], "take one"), (["1", "--wait"], "unknown option --wait")):
    p = atoll("pod", "drain", *words, ATOLL_POD=pod.address)
    assert p.returncode == 2 and what in p.stderr, p.stderr
  assert pod.status()["state"] == "up"


# ---- The page
class Page(html.parser.HTMLParser):
  """Its tags, and the texts of headings and cells."""

  def __init__(self, text):
    super().__init__()
    self.tags, self.texts, self.links = collections.Counter(), [], []
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.tags[tag] += 1
    self.links += [v for k, v in attrs if k in ("src", "href")]

  def handle_data(self, data):
    self.texts.append(data)


def test_a_page_shows_all_of_it(pod, tmp_path):
  out = tmp_path / "pod.html"
  p = atoll("pod", "page", f"--out={out}", "--seconds=0.1", ATOLL_POD=pod.address)
  assert p.returncode == 0, p.stderr
  with Client(pod) as c:
    c.do("x = put(range(8)); [doubled(x).block_until_ready() for _ in range(3)]")
    page = subprocess.Popen([ATOLL, "pod", "page", f"--out={out}", "--seconds=1"], env=environment(ATOLL_POD=pod.address))
    while page.poll() is None:
      c.do("doubled(x).block_until_ready()")
    assert page.returncode == 0
    text = out.read_text()
    seen = Page(text)
    assert not seen.links and "http" not in text.replace("http://www.w3.org/2000/svg", ""), "nothing from elsewhere"
    assert "prefers-color-scheme:dark" in text
    assert {"Slice 0", "Slice 1", "Hosts", "Clients", "Last programs", "What ran last", "jit_doubled"} <= set(seen.texts)
    assert all(f"chip {i}" in seen.texts for i in range(8)) and str(c.process.pid) in seen.texts
    assert seen.tags["rect"] > 2 * 2 * 4, "every launch is measured meanwhile"
    assert "import sys?import" in text and "<import" not in text
  p = atoll("pod", "page", "--out=/nobody/has/this.html", "--seconds=0.1", ATOLL_POD=pod.address)
  assert p.returncode and "/nobody/has/this.html" in p.stderr, p.stderr
