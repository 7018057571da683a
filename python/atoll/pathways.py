"""JAX_PLATFORMS=proxy: the chips of a pod, as programs for Pathways ask for them.

They name the server in JAX_BACKEND_TARGET (`atoll://host:port`, `grpc://host:port`) and
call `pathwaysutils.initialize()`, which registers a backend `proxy` of JAX's own. JAX
calls plugins after that, so theirs is replaced here, except where JAX_BACKEND_TARGET
leads to a server that speaks gRPC: that is not Atoll's.
"""

import os
import socket

SCHEMES = ("atoll://", "grpc://")
# A client's first words in HTTP/2, and an empty SETTINGS frame.
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def address(target: str, pod: str) -> str:
  """The `host:port` of the controller that JAX_BACKEND_TARGET or ATOLL_POD names."""
  if not target:
    if pod:
      return pod
    raise ValueError(
        "JAX_PLATFORMS=proxy needs the address of a pod\n"
        "hint: JAX_BACKEND_TARGET=atoll://HOST:PORT; `atoll pod up` says which")
  where = target
  for scheme in SCHEMES:
    where = where.removeprefix(scheme)
  where = where.rstrip("/")
  if "/" in where or not where.rpartition(":")[0] or not where.rpartition(":")[2].isdigit():
    raise ValueError(f"JAX_BACKEND_TARGET={target} is not {SCHEMES[0]}HOST:PORT")
  return where


def speaks_grpc(where: str, timeout: float = 2.0) -> bool:
  """Whether an HTTP/2 server answers there. A controller of Atoll hangs up instead."""
  host, _, port = where.rpartition(":")
  try:
    with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout) as s:
      s.settimeout(timeout)
      s.sendall(_HTTP2)
      head = s.recv(9)
      return len(head) >= 4 and head[3] == 4  # SETTINGS come first
  except OSError:
    return False


def register(path: str, priority: int) -> None:
  """Registers the library at `path` with JAX, as the backend `proxy`.

  The pod's address is read when JAX makes the client: ATOLL_POD is set to it, or ValueError says
  what is wrong with it. A gRPC server there is left to the backend `proxy` that was registered before.
  """
  from jax._src import xla_bridge

  from atoll import pathways_programs

  others = xla_bridge._backend_factories.get("proxy")

  def make_client():
    target = xla_bridge.BACKEND_TARGET.value
    where = address(target, os.environ.get("ATOLL_POD", ""))
    if target.startswith("grpc://") and others and speaks_grpc(where):
      return others.factory()
    os.environ["ATOLL_POD"] = where
    pathways_programs.install()
    return xla_bridge.make_pjrt_c_api_client("proxy")

  xla_bridge.register_plugin("proxy", priority=priority, library_path=path, factory=make_client)
