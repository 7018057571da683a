"""Programs of many Pallas kernels: those that are compiled quickly, for there are so many, give what they give alone."""
import importlib.util
import pathlib

import jax
import numpy as np

PATH = pathlib.Path(__file__).resolve().parents[1] / "pallas" / "many_kernels.py"
spec = importlib.util.spec_from_file_location("many_kernels", PATH)
many = importlib.util.module_from_spec(spec)
spec.loader.exec_module(many)

COUNT, EVERY = 240, 6


def test_kernels_give_the_same_bits_alone():
  fs = many.kernels("mixed", COUNT)
  together = jax.jit(lambda x: [f(x) for f in fs])(np.float32(.37))
  for i in sorted({i + i // EVERY % 4 for i in range(0, COUNT - 4, EVERY)}):
    alone = jax.jit(fs[i])(np.float32(.37))
    assert np.isfinite(alone).all()
    np.testing.assert_array_equal(np.asarray(together[i]).view(np.uint32), np.asarray(alone).view(np.uint32))
