"""jnp.linalg.eigh and svd of matrices above 256 rows, where JAX has programs of its own for TPUs: residuals and orthogonality."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


def matrix(*shape, dtype="float32", seed=0):
  rng = np.random.default_rng(seed)
  x = rng.standard_normal(shape)
  return (x + 1j * rng.standard_normal(shape) if dtype == "complex64" else x).astype(dtype)


def symmetric(*shape, dtype="float32", seed=0):
  x = matrix(*shape, dtype=dtype, seed=seed)
  return (x + x.conj().swapaxes(-1, -2)) / 2


def orthogonal(v):
  return np.abs(v.conj().swapaxes(-1, -2) @ v - np.eye(v.shape[-1])).max()


# Complex matrices go through JAX's own program, which takes parts of padded matrices from the kernel.
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("shape", [(257, 257), (300, 300), (2, 260, 260)], ids=str)
def test_eigh(dtype, shape):
  a = symmetric(*shape, dtype=dtype)
  w, v = map(np.asarray, jax.jit(jnp.linalg.eigh)(a))
  wide = a.astype(np.complex128)
  assert np.abs(w - np.linalg.eigvalsh(wide)).max() < 2e-4
  assert np.abs(wide @ v - v * w[..., None, :]).max() < 2e-4
  assert orthogonal(v) < 1e-4


def test_eigh_reads_one_triangle():
  a = symmetric(280, 280)
  for lower in (True, False):
    half = np.tril(a) if lower else np.triu(a)
    f = jax.jit(lambda x, lower=lower: jnp.linalg.eigh(x, UPLO="L" if lower else "U", symmetrize_input=False))
    w, v = map(np.asarray, f(half))
    assert np.abs(a @ v - v * w).max() < 2e-4 and orthogonal(v) < 1e-4


def test_eigh_of_nan():
  a = symmetric(270, 270)
  a[3, 4] = a[4, 3] = np.nan
  w, _ = jax.jit(jnp.linalg.eigh)(a)
  assert np.isnan(np.asarray(w)).all()


@pytest.mark.parametrize("shape", [(300, 300), (290, 270), (260, 500)], ids=str)
def test_svd(shape):
  a = matrix(*shape)
  u, s, vt = map(np.asarray, jax.jit(lambda x: jnp.linalg.svd(x, full_matrices=False))(a))
  assert np.abs(s - np.linalg.svd(a.astype(np.float64), compute_uv=False)).max() < 2e-4
  assert np.abs((u * s) @ vt - a).max() < 2e-4
  assert orthogonal(u) < 1e-4 and orthogonal(vt.T) < 1e-4


def test_a_user_function_of_that_name():
  """A function that JAX calls _eigh_work, too, but that does something else."""
  def _eigh_work(h, n):
    return h[:, 0] + n, h * 2
  h = symmetric(300, 300)
  w, v = jax.jit(lambda x: jax.jit(_eigh_work)(x, jnp.int32(300)))(h)
  np.testing.assert_allclose(w, h[:, 0] + 300, rtol=1e-6)
  np.testing.assert_array_equal(v, h * 2)
