"""Who stands between and beside the processes of process_faults.py: strangers that connect to them, somebody on the way
who records or changes what passes, and cables that can be cut."""
import errno
import os
import random
import select
import socket
import struct
import subprocess
import time

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + bytes(165)


# ---- Strangers
def reset(s):
  s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
  s.close()


SPEECHES = {
    "scan": None,
    "reset": None,
    "silence": lambda: b"",
    "byte": lambda: b"a",
    "http": lambda: b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n",
    "garbage": lambda: os.urandom(4096),
    "half a hello": lambda: b"atollpo1" + bytes(50),
    "a hello": lambda: b"atollpo1" + os.urandom(112),
    "huge lengths": lambda: b"\xff" * 200,
    "tls": lambda: TLS_HELLO,
}
HELD = 200  # connections that stay open


def doors(ports):
  """Where a stranger may knock: ports, and the unix sockets that processes of Atoll listen at."""
  with open("/proc/net/unix") as f:
    names = {line.split()[7] for line in f if "@atoll" in line and len(line.split()) > 7}
  return [("localhost", p) for p in ports] + ["\0" + n[1:] for n in names]


def knock(door, kind):
  """A connection that has said what its kind says, or None: closed, or nobody listens."""
  s = socket.socket(socket.AF_UNIX if isinstance(door, str) else socket.AF_INET)
  s.settimeout(2)
  try:
    s.connect(door)
    if kind == "scan":
      s.close()
      return True, None
    if kind == "reset":
      reset(s)
      return True, None
    s.sendall(SPEECHES[kind]())
    return True, s
  except OSError as e:
    s.close()
    # Turned away while it spoke is having come.
    return e.errno in (errno.EPIPE, errno.ECONNRESET), None


def heard(s):
  """How many bytes a stranger has got."""
  s.setblocking(False)
  try:
    return len(s.recv(4096))
  except OSError:
    return 0
  finally:
    s.close()


def be_strangers(say, hear, ports, count, pause):
  """So many of every kind, as long as there is a door; every word of what they hear is told."""
  came, refused, got, held = 0, 0, 0, []
  for i in range(count):
    for kind in SPEECHES:
      for door in doors(ports) if i % 10 == 0 else [("localhost", p) for p in ports]:
        there, s = knock(door, kind)
        came += there
        refused += not there
        held += [s] if s else []
      while len(held) > HELD:
        got += heard(held.pop(0))
    time.sleep(pause)
    if i + 1 == count // 2:
      say("half")
  say("end", came=came, refused=refused, heard=got + sum(heard(s) for s in held))


def repeat(port, recorded):
  """Says what was recorded; the number of bytes that come back."""
  try:
    with socket.create_connection(("localhost", port), timeout=2) as s:
      s.sendall(recorded)
      s.settimeout(1)
      return len(s.recv(4096))
  except OSError:
    return 0


# ---- On the way
class Passage:
  """One connection that passes through."""

  def __init__(self, caller, port, number):
    self.number = number
    self.caller, self.listener = caller, socket.create_connection(("localhost", port))
    for s in (self.caller, self.listener):
      s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    self.recorded = [b"", b""]  # of the caller, of the listener

  def sides(self):
    return self.caller, self.listener


HARMS = ("changes a bit", "leaves out a byte", "leaves out a piece", "repeats a piece", "says a piece of before", "invents")


def harm(draw, what, data, recorded):
  at = draw.randrange(len(data))
  if what == "changes a bit":
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1:]
  if what == "leaves out a byte":
    return data[:at] + data[at + 1:]
  if what == "leaves out a piece":
    return b""
  if what == "repeats a piece":
    return data + data
  if what == "says a piece of before":
    begin = draw.randrange(max(1, len(recorded) - 64))
    return recorded[begin:begin + len(data)] + data
  return data + draw.randbytes(draw.randrange(1, 200))


def stand_between(say, hear, listen, port, harms=None, after=0, seed=0, folder=None, count=False):
  """Hands on what comes to `listen` to `port` and back. folder: what the callers said is kept there, in order. harms: what
  is done to one piece, once so many bytes have passed. count: every connection's end tells what its caller has heard."""
  draw, done = random.Random(seed), harms is None
  door = socket.create_server(("localhost", listen), backlog=64)
  passages, came, passed = [], 0, 0
  say("ready")
  while True:
    sockets = {s: (p, i) for p in passages for i, s in enumerate(p.sides())}
    ready, _, _ = select.select([door, *sockets], [], [], 1.0)
    if os.getppid() == 1:
      return  # nobody is left that wants to know
    for s in ready:
      if s is door:
        try:
          passages.append(Passage(door.accept()[0], port, came))
          came += 1
        except OSError as e:
          say("refused", why=str(e))  # nobody listens behind it yet, or any more: callers come again
        continue
      p, side = sockets[s]
      if p not in passages:
        continue
      try:
        data = s.recv(1 << 16)
        if folder and side == 0 and len(p.recorded[0]) < 4096:
          with open(os.path.join(folder, f"{p.number:03}"), "ab") as f:
            f.write(data)
        if data:
          passed += len(data)
          was = data
          if not done and passed > after:
            done = True
            data = harm(draw, harms, data, p.recorded[side])
            say("harmed", bytes=len(was), side=side)
          p.recorded[side] = (p.recorded[side] + was)[-(1 << 16):]
          p.sides()[1 - side].sendall(data)
          continue
      except OSError:
        pass
      if count:
        say("ended", heard=len(p.recorded[1]))
      for end in p.sides():
        end.close()
      passages.remove(p)


# ---- Cables
class Cable:
  """Two network namespaces and the cable between them."""

  def __init__(self, number):
    self.places = [f"atf{number}{end}" for end in "AB"]
    self.ends = [f"atf{number}{end}" for end in "ab"]

  def ip(self, *words):
    return not subprocess.run(["ip", *words], stderr=subprocess.DEVNULL).returncode

  def make(self):
    """False where this user or machine cannot."""
    (a, b), (x, y) = self.places, self.ends
    return (not os.geteuid() and self.ip("netns", "add", a) and self.ip("netns", "add", b)
            and self.ip("link", "add", x, "netns", a, "type", "veth", "peer", "name", y, "netns", b)
            and all(self.ip("-n", n, "addr", "add", f"10.213.79.{i + 1}/24", "dev", d)
                    and self.ip("-n", n, "link", "set", d, "up") for i, (n, d) in enumerate([(a, x), (b, y)])))

  def cut(self):
    began = time.monotonic()
    self.ip("-n", self.places[0], "link", "set", self.ends[0], "down")
    return began

  def remove(self):
    for n in self.places:
      self.ip("netns", "del", n)
