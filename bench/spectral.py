#!/usr/bin/env python3
"""Transforms and linear algebra on Atoll beside XLA:CPU, and beside FFTW and OpenBLAS called directly.

  bench/spectral.py [--filter REGEX] [--rounds N]

All of them in turns, in one process; a line is the median of the rounds in milliseconds, and
the ratios say how many times faster Atoll is. FFTW (PyPI: pyfftw) plans with FFTW_MEASURE, untimed,
and takes as many threads as there are cores; OpenBLAS is SciPy's. Programs that neither
has (spectrograms, convolutions, exponentials) have a ratio to XLA:CPU alone.
Needs TPU_LIBRARY_PATH=.../libatoll.so.
"""
import argparse
import math
import os
import re
import statistics
import time

os.environ.pop("JAX_PLATFORMS", None)

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from scipy.linalg import lapack

try:
    import pyfftw
except ImportError:
    pyfftw = None

jax.config.update("jax_enable_x64", True)
RNG = np.random.default_rng(0)
CORES = len(os.sched_getaffinity(0))


def array(shape, dtype):
    x = RNG.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * RNG.standard_normal(shape)
    return x.astype(dtype)


# ---- Transforms: name, kind, shape of the signal, axes, element type of the complex side
def fft_row(kind, shape, dtype, axes=(-1,)):
    real = np.float32 if dtype == np.complex64 else np.float64
    forward = {"c2c": lambda x: jnp.fft.fftn(x, axes=axes), "r2c": lambda x: jnp.fft.rfftn(x, axes=axes),
               "c2r": lambda x: jnp.fft.irfftn(x, s=[shape[a] for a in axes], axes=axes)}[kind]
    half = (*shape[:-1], shape[-1] // 2 + 1)
    source, source_type = {"c2c": (shape, dtype), "r2c": (shape, real), "c2r": (half, dtype)}[kind]
    target, target_type = {"c2c": (shape, dtype), "r2c": (half, dtype), "c2r": (shape, real)}[kind]
    x = array(source, source_type)

    def peer():
        if not pyfftw:
            return None
        a, b = pyfftw.empty_aligned(source, source_type), pyfftw.empty_aligned(target, target_type)
        plan = pyfftw.FFTW(a, b, axes=axes, threads=CORES, flags=("FFTW_MEASURE",),
                           direction="FFTW_BACKWARD" if kind == "c2r" else "FFTW_FORWARD")
        a[:] = x
        return plan.execute
    return forward, [x], peer


C64, C128 = np.complex64, np.complex128
ROWS = {}
for kind, shape, dtype, axes in [
        ("c2c", (1024, 64), C64, (-1,)), ("c2c", (512, 256), C64, (-1,)), ("c2c", (256, 1000), C64, (-1,)),
        ("c2c", (64, 4096), C64, (-1,)), ("c2c", (1, 4096), C64, (-1,)), ("c2c", (1, 65536), C64, (-1,)),
        ("c2c", (1, 1 << 20), C64, (-1,)), ("c2c", (8, 65536), C128, (-1,)), ("c2c", (128, 2520), C128, (-1,)),
        ("c2c", (128, 1009), C64, (-1,)), ("c2c", (1, 100003), C64, (-1,)),
        ("c2c", (1024, 1024), C64, (-2, -1)), ("c2c", (512, 512), C128, (-2, -1)), ("c2c", (64, 64, 64), C64, (-3, -2, -1)),
        ("r2c", (2048, 512), C64, (-1,)), ("r2c", (16, 16384), C64, (-1,)), ("r2c", (1, 1 << 18), C64, (-1,)),
        ("r2c", (720, 1280), C64, (-2, -1)), ("c2r", (2048, 512), C64, (-1,)), ("c2r", (16, 16384), C64, (-1,)),
        ("c2r", (64, 4096), C128, (-1,))]:
    ROWS[f"{kind}_{'x'.join(map(str, shape))}_{'c64' if dtype == C64 else 'c128'}" + (f"_{len(axes)}d" if len(axes) > 1 else "")] = (
        lambda kind=kind, shape=shape, dtype=dtype, axes=axes: fft_row(kind, shape, dtype, axes))


# ---- Programs around transforms
def fft_convolution(batch, n, taps):
    def fn(x, h):
        size = n + taps - 1
        size = 1 << (size - 1).bit_length()
        return jnp.fft.irfft(jnp.fft.rfft(x, size) * jnp.fft.rfft(h, size), size)[..., :n]
    return fn, [array((batch, n), np.float32), array((taps,), np.float32)], lambda: None


def spectrogram(batch, n, window):
    def fn(x):
        return jnp.abs(jax.scipy.signal.stft(x, nperseg=window)[2]) ** 2
    return fn, [array((batch, n), np.float32)], lambda: None


def frames(n, window, hop):
    def fn(x, w):
        at = jnp.arange((n - window) // hop + 1)[:, None] * hop + jnp.arange(window)[None]
        return jnp.log1p(jnp.abs(jnp.fft.rfft(x[at] * w)))
    return fn, [array((n,), np.float32), np.hanning(window).astype(np.float32)], lambda: None


for batch, n, taps in [(1, 4096 - 64, 65), (16, 16384 - 256, 257), (4, 65536 - 1024, 1025)]:
    ROWS[f"fft_convolution_{batch}x{n + taps - 1}"] = lambda b=batch, n=n, t=taps: fft_convolution(b, n, t)
for window in (256, 512, 1024):
    ROWS[f"spectrogram_{window}"] = lambda w=window: spectrogram(4, 65536, w)
ROWS["frames_rfft_400"] = lambda: frames(160000, 400, 160)


# ---- Linear algebra
def positive(shape, dtype):
    a = array(shape, dtype)
    return (a @ a.conj().swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def each(call, a):
    """The routine for every matrix of a batch, as a caller of LAPACK would."""
    flat = a.reshape(-1, *a.shape[-2:])

    def run():
        for m in flat:
            call(m)
    return run


def cholesky(shape, dtype):
    a = positive(shape, dtype)
    f, = scipy.linalg.get_lapack_funcs(("potrf",), (a,))
    return jnp.linalg.cholesky, [a], lambda: each(lambda m: f(m, lower=0, clean=1), a)


def lu(shape, dtype):
    a = array(shape, dtype)
    f, = scipy.linalg.get_lapack_funcs(("getrf",), (a,))
    return jax.lax.linalg.lu, [a], lambda: each(f, a)


def solve(shape, dtype):
    a, b = array(shape, dtype), array((*shape[:-1], 1), dtype)
    f, = scipy.linalg.get_lapack_funcs(("gesv",), (a,))
    flat = list(zip(a.reshape(-1, *shape[-2:]), b.reshape(-1, shape[-1], 1)))
    return jnp.linalg.solve, [a, b], lambda: lambda: [f(m, v) for m, v in flat]


def qr(shape, dtype):
    a = array(shape, dtype)
    f, g = scipy.linalg.get_lapack_funcs(("geqrf", "orgqr"), (a,))
    work = 64 * shape[-1]

    def one(m):
        packed, tau, _, _ = f(m, lwork=work)
        g(packed, tau, lwork=work)
    return jnp.linalg.qr, [a], lambda: each(one, a)


def triangular(shape, dtype):
    a, b = np.tril(positive(shape, dtype)), array(shape, dtype)
    f, = scipy.linalg.get_blas_funcs(("trsm",), (a,))
    flat = list(zip(a.reshape(-1, *shape[-2:]), b.reshape(-1, *shape[-2:])))
    return (lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), [a, b],
            lambda: lambda: [f(1, m.T, v.T, side=1, lower=0) for m, v in flat])


def eigh(shape, dtype):
    a = positive(shape, dtype)
    f, = scipy.linalg.get_lapack_funcs(("syevd",), (a,))
    return jnp.linalg.eigh, [a], lambda: each(f, a)


def svd(shape, dtype):
    a = array(shape, dtype)
    f, = scipy.linalg.get_lapack_funcs(("gesdd",), (a,))
    return (lambda x: jnp.linalg.svd(x, full_matrices=False)), [a], lambda: each(f, a)


def expm(shape, dtype):
    return jax.scipy.linalg.expm, [array(shape, dtype) / math.sqrt(shape[-1])], lambda: None


F32, F64 = np.float32, np.float64
for name, make in [("cholesky", cholesky), ("lu", lu), ("qr", qr), ("triangular", triangular), ("solve", solve),
                   ("eigh", eigh), ("svd", svd), ("expm", expm)]:
    sizes = [((256, 256), F32), ((512, 512), F32), ((512, 512), F64), ((1024, 1024), F32),
             ((4096, 4, 4), F32), ((2048, 16, 16), F32), ((512, 32, 32), F64), ((256, 64, 64), F32)]
    if name in ("eigh", "svd", "expm"):
        sizes = [((256, 256), F32), ((512, 512), F32), ((1024, 8, 8), F32), ((128, 32, 32), F32)]
    for shape, dtype in sizes:
        ROWS[f"{name}_{'x'.join(map(str, shape))}_{'f32' if dtype == F32 else 'f64'}"] = (
            lambda make=make, shape=shape, dtype=dtype: make(shape, dtype))


def compiled(device, fn, args):
    args = [jax.device_put(a, device) for a in args]
    call = jax.jit(fn).lower(*args).compile()
    jax.block_until_ready(call(*args))

    def run():
        jax.block_until_ready(call(*args))
    return run


def seconds(run, repeat):
    start = time.perf_counter()
    for _ in range(repeat):
        run()
    return (time.perf_counter() - start) / repeat


def measure(make, rounds, devices):
    fn, args, peer = make()
    sides = {k: compiled(d, fn, args) for k, d in devices.items()}
    direct = peer()
    if direct:
        sides["peer"] = direct
    times = {k: [] for k in sides}
    repeats = {k: max(1, round(3e-3 / max(1e-7, seconds(run, 1)))) for k, run in sides.items()}
    for _ in range(rounds):
        for k, run in sides.items():
            times[k].append(seconds(run, repeats[k]))
    return {k: statistics.median(v) * 1e3 for k, v in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    devices = {"atoll": jax.devices()[0], "xla": jax.devices("cpu")[0]}
    print(f"{'program':34s} {'Atoll ms':>10s} {'XLA ms':>10s} {'ratio':>7s} {'FFTW/BLAS':>10s} {'ratio':>7s}")
    ratios = {"xla": [], "peer": []}
    for name, make in ROWS.items():
        if not re.search(args.filter, name):
            continue
        t = measure(make, args.rounds, devices)
        for k in ratios:
            if k in t:
                ratios[k].append(t[k] / t["atoll"])
        direct = f"{t['peer']:10.4f} {t['peer'] / t['atoll']:7.2f}" if "peer" in t else ""
        print(f"{name:34s} {t['atoll']:10.4f} {t['xla']:10.4f} {t['xla'] / t['atoll']:7.2f} {direct}", flush=True)
    for k, v in ratios.items():
        if v:
            print(f"geometric mean to {k}: {math.exp(sum(map(math.log, v)) / len(v)):.2f} over {len(v)}, lowest {min(v):.2f}")


if __name__ == "__main__":
    main()
