#!/usr/bin/env python3
"""Dispatch and collectives over several chips, interleaved with jaxlib's virtual CPU devices.

  bench/collectives.py [--library build/release/libatoll.so] [--rounds 5]

Each engine runs in a process of its own; the processes take turns, one measurement at a time, and
minima are compared. `step` is one psum step and a wait; `chained` many steps in flight, a step;
`fused` 128 steps in one program, a step.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[1]
SIZES = (8, 4 << 10, 256 << 10, 4 << 20, 64 << 20)


def worker():
    import time
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    devices = jax.devices()

    def mapped(f, n):
        mesh = Mesh(np.array(devices[:n]), ("x",))
        return (jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)),
                NamedSharding(mesh, P("x")))

    def best(call, repeat, times=3):
        jax.block_until_ready(call())
        result = float("inf")
        for _ in range(times):
            start = time.perf_counter()
            for _ in range(repeat):
                jax.block_until_ready(call())
            result = min(result, (time.perf_counter() - start) / repeat)
        return result

    def body(n):
        return lambda v: lax.psum(v, "x") * (1.0 / n) + 1.0

    def dispatch(kind):
        n = 8
        def fused(v):
            for _ in range(128):
                v = body(n)(v)
            return v
        f, cut = mapped(fused if kind == "fused" else body(n), n)
        x = jax.device_put(jnp.ones((n,)), cut)
        if kind == "chained":
            def chain():
                y = x
                for _ in range(25):  # jaxlib hangs with 64 in flight
                    y = f(y)
                return y
            return best(chain, 20) / 25
        return best(lambda: f(x), 100) / (128 if kind == "fused" else 1)

    ops = {"all_reduce": lambda v: lax.psum(v, "x"),
           "all_gather": lambda v: lax.all_gather(v, "x", tiled=True),
           "reduce_scatter": lambda v: lax.psum_scatter(v, "x", tiled=True),
           "all_to_all": lambda v: lax.all_to_all(v, "x", 0, 0, tiled=True),
           "permute": lambda v: lax.ppermute(v, "x", [(0, 1), (1, 0)])}

    def collective(name, size):
        n, inner = 2, 64 if size <= 4 << 10 else 1
        def repeated(v):
            for _ in range(inner):  # feeds the next, which keeps them apart
                u = ops[name](v)
                v = u if u.shape == v.shape else lax.optimization_barrier((v, u))[0]
            return u
        f, cut = mapped(repeated, n)
        x = jax.device_put(jnp.ones((n * max(size // 4, n),), jnp.float32), cut)
        return best(lambda: f(x), 3 if size > 1 << 20 else 20) / inner

    for line in sys.stdin:
        request = json.loads(line)
        value = dispatch(*request[1:]) if request[0] == "dispatch" else collective(*request[1:])
        print(json.dumps(value), flush=True)


def start(environment):
    return subprocess.Popen([sys.executable, __file__, "--worker"], env={**os.environ, **environment}, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def ask(process, request):
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    return json.loads(answer) if answer else float("nan")


def memory_bandwidth(library):
    """Bytes a second that all cores read and write as they copy past the caches."""
    peak = subprocess.run([pathlib.Path(library).parent / "peak", "memory"], capture_output=True, text=True, check=True)
    return json.loads(peak.stdout)["memory"] * 1e9


# What a collective must read and write on two devices, for each byte that one of them holds.
TRAFFIC = {"all_reduce": 2 + 2, "all_gather": 2 + 4, "reduce_scatter": 2 + 1, "all_to_all": 2 + 2, "permute": 2 + 2}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=str(TOP / "build" / "release" / "libatoll.so"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", action="store_true")
    options = parser.parse_args()
    if options.worker:
        return worker()
    engines = {
        "atoll": start({"PJRT_NAMES_AND_LIBRARY_PATHS": f"atoll:{options.library}", "JAX_PLATFORMS": "atoll",
                        "ATOLL_TARGET": "v5e:2x4"}),
        "jaxlib": start({"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"})}
    def row(request):
        times = {name: float("inf") for name in engines}
        for _ in range(options.rounds):
            for name, process in engines.items():
                times[name] = min(times[name], ask(process, request))
        return times["atoll"] * 1e6, times["jaxlib"] * 1e6
    print(f"{'8 devices':22s} {'atoll us':>10s} {'jaxlib us':>10s}")
    for kind in ("step", "chained", "fused"):
        print("{:22s} {:10.1f} {:10.1f}".format(kind, *row(["dispatch", kind])), flush=True)
    print("\n2 devices, bytes of one device")
    bandwidth, large = memory_bandwidth(options.library), {}
    for name in TRAFFIC:
        for size in SIZES:
            large[name] = row(["collective", name, size])
            print("{:14s} {:8d} {:10.1f} {:10.1f}".format(name, size, *large[name]), flush=True)
        bandwidth = max(bandwidth, memory_bandwidth(options.library))  # other work on the machine takes some
    print(f"\n64 MiB, beside the {bandwidth / 1e9:.1f} GB/s at which all cores copy past the caches (read and written)")
    for name, times in large.items():
        moved = TRAFFIC[name] * SIZES[-1]
        shares = (f"{moved / (t * 1e-6) / bandwidth:10.0%}" for t in times)
        print(f"{name:14s} {moved >> 20:4d} MiB", *shares)
    for process in engines.values():
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
