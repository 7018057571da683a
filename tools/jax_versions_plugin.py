"""pytest plugin of jax_versions.py: which tests run, and what they import that the wheel lacks.

  JAX_SAMPLE, JAX_SAMPLE_SALT   the share of the tests that run, by hash of their names and the salt; "1+2": both samples
  JAX_ONLY                      a file with the names of the tests that run, one a line
  JAX_TESTLIB                   a folder of modules for jax._src and jax._src.pallas
"""
import importlib
import os
import pathlib
import zlib


def pytest_configure(config):
    folder = os.environ.get("JAX_TESTLIB")
    for package in ("jax._src", "jax._src.pallas") if folder else ():
        importlib.import_module(package).__path__.append(folder)
    if folder and os.path.isdir(os.path.join(folder, "internal_test_util")):
        try:  # the wheel has some of its modules
            importlib.import_module("jax._src.internal_test_util").__path__.append(os.path.join(folder, "internal_test_util"))
        except ImportError:
            pass
    # A flag that says which compiler GPUs use; JAX 0.12 has one compiler for them, and no flag.
    importlib.import_module("jax._src.pallas.pallas_call")  # where older versions make it
    config = importlib.import_module("jax._src.config")
    if "jax_pallas_use_mosaic_gpu" not in config.config.values:
        config.jax_pallas_use_mosaic_gpu = config.bool_state(name="jax_pallas_use_mosaic_gpu", default=True, help="")


def pytest_collection_modifyitems(config, items):
    share = float(os.environ.get("JAX_SAMPLE", "1"))
    salts = os.environ.get("JAX_SAMPLE_SALT", "").split("+")
    only = os.environ.get("JAX_ONLY")
    names = set(pathlib.Path(only).read_text().splitlines()) if only else None

    def keep(item):
        if names is not None:
            return item.nodeid in names
        name = item.nodeid.split("/")[-1]
        return share >= 1 or any(zlib.crc32((name + salt).encode()) % 10000 < share * 10000 for salt in salts)

    kept = [item for item in items if keep(item)]
    config.hook.pytest_deselected(items=[item for item in items if not keep(item)])
    items[:] = kept
