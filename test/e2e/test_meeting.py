"""How the processes of a job meet: through JAX, past strangers of every kind, by a token."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

SUM = """
import os, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
if "PROCESS" in os.environ:
  jax.distributed.initialize(os.environ["COORDINATOR"], int(os.environ["COUNT"]), int(os.environ["PROCESS"]))
try:
  devices = jax.devices()
except RuntimeError as e:
  print("refused:", e, flush=True)
  os._exit(3)
except KeyboardInterrupt:
  os._exit(4)
shard = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
step = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v * 0.5, "x") + v, mesh=shard.mesh, in_specs=P("x"), out_specs=P("x")))
a = np.arange(len(devices) * 100, dtype=np.float32) / 7
x = jax.make_array_from_callback(a.shape, shard, lambda i: a[i])
for _ in range(int(os.environ.get("STEPS", "3"))): x = step(x) * 0.1
print("met", jax.process_index(), jax.process_count(), len(devices), jax.local_device_count(),
      *(np.asarray(s.data).tobytes().hex() for s in x.addressable_shards), flush=True)
os._exit(0)
"""


def free_ports(count):
  listeners = [socket.create_server(("localhost", 0)) for _ in range(count)]
  ports = [s.getsockname()[1] for s in listeners]
  for s in listeners:
    s.close()
  return ports


def start(env, where=()):
  return subprocess.Popen(
      [*where, sys.executable, "-c", SUM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
      env={**os.environ, "ATOLL_TARGET": "v5p:2x2x1", "JAX_PLATFORMS": "tpu,cpu", **env})


def through_jax(count, platform="tpu", **env):
  (port,) = free_ports(1)
  return [start({"COORDINATOR": f"localhost:{port}", "COUNT": str(count), "PROCESS": str(i),
                 "JAX_PLATFORMS": f"{platform},cpu", **env}) for i in range(count)]


def by_addresses(ports, i, **env):
  return start({"TPU_PROCESS_ADDRESSES": ",".join(f"localhost:{p}" for p in ports), "CLOUD_TPU_TASK_ID": str(i), **env})


def ends(jobs, timeout=120):
  return [(*p.communicate(timeout=timeout), p.returncode) for p in jobs]


def values(out):
  """What each process computed, in the order of processes; checks that they are one pod."""
  rows = sorted([line.split() for text, *_ in out for line in text.splitlines() if line.startswith("met ")],
                key=lambda r: int(r[1]))
  assert len(rows) == len(out), out
  assert [r[1:3] for r in rows] == [[str(i), str(len(out))] for i in range(len(out))], rows
  return [v for r in rows for v in r[5:]]


@pytest.fixture(scope="module")
def alone():
  (end,) = ends([start({})])
  return values([end])


@pytest.mark.parametrize("count", [2, 4])
def test_initialize_alone_makes_one_pod(count, alone):
  out = ends(through_jax(count))
  assert values(out) == alone
  for i, (text, _, code) in enumerate(out):
    assert code == 0 and f"met {i} {count} 4 {4 // count} " in text


def test_another_plugin_name_makes_one_pod(alone):
  assert values(ends(through_jax(2, PJRT_NAMES_AND_LIBRARY_PATHS=f"other:{os.environ['TPU_LIBRARY_PATH']}",
                                 platform="other"))) == alone


def test_pods_of_one_process_are_refused():
  """jax.distributed.initialize was called, and this process would be alone."""
  for text, _, code in ends(through_jax(2, TPU_PROCESS_ADDRESSES="localhost:1")):
    assert code == 3 and "says 2 processes, but TPU_PROCESS_ADDRESSES has 1 address:" in text, text
  ports = free_ports(2)
  addresses = ",".join(f"localhost:{p}" for p in ports)
  for i, (text, _, code) in enumerate(ends(through_jax(2, TPU_PROCESS_ADDRESSES=addresses, CLOUD_TPU_TASK_ID="5"))):
    assert code == 3 and f"process {i} for jax.distributed.initialize, but process 5 by CLOUD_TPU_TASK_ID" in text, text


def test_inputs_agree_once_they_have_met():
  (port,) = free_ports(1)
  code = f"""
import sys
import jax
from atoll import sparsecore as sp
me = int(sys.argv[1])
jax.distributed.initialize("localhost:{port}", 2, me)
try:
  sp.agree_over_processes(1 << me)
  assert False
except Exception as e:
  assert "2 processes of the job have not met" in str(e), e
jax.devices()
assert sp.agree_over_processes(1 << me) == 3
"""
  jobs = [subprocess.Popen([sys.executable, "-c", code, str(i)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                           env={**os.environ, "ATOLL_TARGET": "v6e:2x2", "JAX_PLATFORMS": "tpu,cpu"}) for i in range(2)]
  for _, errors, code in ends(jobs):
    assert code == 0, errors


def test_one_process_of_jax_is_one_process(alone):
  assert values(ends(through_jax(1))) == alone


def speak(port, kind, held):
  """One stranger; false where nobody listens."""
  try:
    s = socket.create_connection(("localhost", port), timeout=2)
  except OSError:
    return False
  try:
    if kind == "http":
      s.sendall(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n")
    elif kind == "garbage":
      s.sendall(os.urandom(4096))
    elif kind == "half":
      s.sendall(b"atollpo2" + bytes(50))
    elif kind == "whole":
      s.sendall(b"atollpo2" + os.urandom(120))
    elif kind == "byte":
      s.sendall(b"a")
  except OSError:
    pass
  if kind == "scan":
    s.close()
  else:
    held.append(s)
  return True


def test_strangers_change_nothing(alone):
  ports = free_ports(2)
  kinds = ("scan", "silence", "http", "garbage", "half", "whole", "byte")
  first = by_addresses(ports, 0, STEPS="200", ATOLL_LOG="info")
  held, came, stop = [], 0, threading.Event()
  until = time.monotonic() + 60
  while not speak(ports[0], "silence", held) and time.monotonic() < until:
    time.sleep(0.05)
  for _, kind in zip(range(1000), itertools.cycle(kinds)):
    came += speak(ports[0], kind, held)
    if len(held) > 300:
      held.pop(0).close()
  assert came == 1000
  # And on, while the other one comes and the two compute.
  def go_on():
    for kind in itertools.cycle(kinds):
      if stop.is_set():
        return
      for port in ports:
        speak(port, kind, held)
      time.sleep(0.002)
  thread = threading.Thread(target=go_on)
  thread.start()
  second = by_addresses(ports, 1, STEPS="200")
  out = ends([first, second])
  stop.set()
  thread.join()
  assert "connections of strangers while the processes met" in out[0][1], out
  quiet_ports = free_ports(2)
  quiet = ends([by_addresses(quiet_ports, i, STEPS="200") for i in range(2)])
  assert values(out) == values(quiet)
  for s in held:  # none of them has got a byte
    s.setblocking(False)
    try:
      assert s.recv(1) == b""
    except (BlockingIOError, ConnectionError):
      pass
    s.close()


def test_waiting_ends_with_ctrl_c():
  ports = free_ports(2)
  waits = by_addresses(ports, 0)
  until = time.monotonic() + 60
  while not speak(ports[0], "scan", []) and time.monotonic() < until:
    time.sleep(0.05)
  waits.send_signal(signal.SIGINT)
  ((_, errors, code),) = ends([waits], timeout=20)
  assert code == 4 and "interrupted while 1 of 2 processes were missing" in errors, errors


def test_tokens_of_files(tmp_path, alone):
  token = tmp_path / "token"
  token.write_text("correct horse battery staple")
  token.chmod(0o644)
  ports = free_ports(2)
  for text, _, code in ends([by_addresses(ports, i, ATOLL_POD_TOKEN_FILE=str(token)) for i in range(2)]):
    assert code == 3 and "others than its owner may use" in text and "chmod 600" in text, text
  token.chmod(0o600)
  assert values(ends([by_addresses(ports, i, ATOLL_POD_TOKEN_FILE=str(token)) for i in range(2)])) == alone
  assert values(ends(through_jax(2, ATOLL_POD_TOKEN_FILE=str(token)))) == alone


def own_address():
  """A number of this machine that is none of its own only, or None."""
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    try:
      s.connect(("192.0.2.1", 9))  # sends nothing
      address = s.getsockname()[0]
    except OSError:
      return None
  return None if address.startswith("127.") else address


def test_networks_are_private_or_trusted_aloud(tmp_path, alone):
  address = own_address()
  if not address:
    pytest.skip("this machine has no address but its own")
  token = tmp_path / "token"
  token.write_text("correct horse battery staple")
  token.chmod(0o600)
  # TLS, unless somebody says otherwise: whose token only a coordinator keeps is told.
  out = ends(through_jax(2, ATOLL_POD_ADDRESS=f"{address}:0"))
  assert values(out) == alone
  for _, errors, _ in out:
    assert "the token of the pod came through JAX's coordinator" in errors and "reads all data" not in errors
  out = ends(through_jax(2, ATOLL_POD_ADDRESS=f"{address}:0", ATOLL_POD_TOKEN_FILE=str(token)))
  assert values(out) == alone
  for _, errors, _ in out:
    assert "the token of the pod" not in errors and "reads all data" not in errors
  out = ends(through_jax(2, ATOLL_POD_ADDRESS=f"{address}:0", ATOLL_POD_NETWORK="trusted"))
  assert values(out) == alone
  for _, errors, _ in out:
    assert "who listens there reads all data" in errors
  # Addresses alone make no pod over a network: everybody could come.
  env = {"TPU_PROCESS_ADDRESSES": ",".join(f"{address}:{p}" for p in free_ports(2))}
  for text, _, code in ends([start({**env, "CLOUD_TPU_TASK_ID": str(i)}) for i in range(2)]):
    assert code == 3 and "there is no token" in text and "ATOLL_POD_TOKEN_FILE" in text, text
  # One that trusts the network and one that does not.
  env["ATOLL_POD_TOKEN_FILE"] = str(token)
  out = ends([start({**env, "CLOUD_TPU_TASK_ID": str(i), "ATOLL_POD_NETWORK": word})
              for i, word in enumerate(("tls", "trusted"))])
  for (text, _, code), what in zip(out, ("it talks in clear, this one over TLS", "it talks over TLS, this one in clear")):
    assert code == 3 and what in text and "set ATOLL_POD_NETWORK" in text, text


def test_tls_on_one_machine(alone):
  assert values(ends(through_jax(4, ATOLL_POD_WIRE="tcp", ATOLL_POD_NETWORK="tls"))) == alone


@pytest.fixture
def networks():
  """Two network namespaces with a cable between them: names and addresses."""
  names = [f"atoll{os.getpid() % 100000}{x}" for x in "ab"]
  steps = [f"netns add {n}" for n in names]
  steps += [f"link add {names[0]} netns {names[0]} type veth peer name {names[1]} netns {names[1]}"]
  for i, n in enumerate(names):
    steps += [f"-n {n} addr add 10.213.78.{i + 1}/24 dev {n}", f"-n {n} link set {n} up", f"-n {n} link set lo up"]
  ip = lambda what: subprocess.run(["ip", *what.split()], capture_output=True).returncode == 0
  try:
    if os.geteuid() or not shutil.which("ip") or not all(ip(s) for s in steps):
      pytest.skip("no network namespaces here (root and ip needed)")
    yield [(n, f"10.213.78.{i + 1}") for i, n in enumerate(names)]
  finally:
    for n in names:
      ip(f"netns del {n}")


def test_two_networks(networks, alone):
  jobs = [start({"COORDINATOR": f"{networks[0][1]}:7105", "COUNT": "2", "PROCESS": str(i),
                 "ATOLL_POD_ADDRESS": f"{address}:0"}, ["ip", "netns", "exec", name])
          for i, (name, address) in enumerate(networks)]
  assert values(ends(jobs)) == alone
