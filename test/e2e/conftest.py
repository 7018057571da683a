"""Loads the library as JAX's TPU. ATOLL_LIBRARY names it."""

import os
from pathlib import Path

LIBRARY = os.environ.get("ATOLL_LIBRARY") or next(
    (str(p) for p in sorted(
        Path(__file__).resolve().parents[2].glob("build/*/libatoll.so"))), "")
os.environ["TPU_LIBRARY_PATH"] = LIBRARY
os.environ.setdefault("JAX_PLATFORMS", "tpu,cpu")
os.environ.setdefault("ATOLL_TARGET", "v6e")

import pods  # noqa: E402  (JAX reads the environment when it is imported)
import pytest  # noqa: E402


@pytest.fixture(scope="session")
def library():
  return LIBRARY


@pytest.fixture
def device():
  import jax
  return jax.devices()[0]


def run_python(code: str, env=None, timeout=300):
  """Runs a script in a process of its own; returns the finished process."""
  import subprocess
  import sys
  return subprocess.run(
      [sys.executable, "-c", code], env={**os.environ, **(env or {})},
      capture_output=True, text=True, timeout=timeout)


@pytest.fixture
def python():
  return run_python


@pytest.fixture(scope="module")
def user(tmp_path_factory):
  """PYTHONPATH of a user who has installed the package."""
  return pods.installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def pod():
  """Sixteen chips of four hosts, in two slices."""
  with pods.Pod("--hosts=4", "--target=2*v5e:2x4") as p:
    yield p
