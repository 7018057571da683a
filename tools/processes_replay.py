#!/usr/bin/env python3
"""Programs of JAX's tests over several devices give the bits of one process in several.

  tools/processes_replay.py record [--files pjit_test,shard_map_test,array_test,layout_test] [-j 2]
  tools/processes_replay.py replay [--processes 4] [--shares 4,2,1,1|2,2,2,2] [--most N] [--seconds S]

record  runs JAX's tests in one process on eight chips and keeps every program over several devices, once for each
        set of arguments of other shapes: its StableHLO, how it is to be compiled, arguments and results of each
        device. Programs with host callbacks, tokens or references are left out.
replay  runs each in a job of several processes on a pod of sixteen chips, and in one: the chips of each process
        that take part are so many as --shares says. Then again, with those devices shuffled. Every result of every
        device must be the recorded bits.

The programs are in build/replay. The exit status is 1 if bits differ or a program fails where it did not alone.
"""
import argparse
import hashlib
import json
import os
import pathlib
import pickle
import random
import signal
import socket
import subprocess
import sys
import time

from jax_tests import SHARED, TOP, unpack

FOLDER = TOP / "build" / "replay"
RECORDED = "v6e:2x4"
POD = "v6e:4x4"
CHIPS = 16
LARGEST = 16 << 20  # bytes of a program's arguments and results


# ---- Recording: this file is a plugin of pytest, too --------------------------------------------------------------
def raw(a):
    return getattr(a, "_base_array", a)


def parts(a):
    import numpy as np
    return {s.device.id: np.asarray(s.data) for s in a.addressable_shards}


def describe(a):
    """What an array is, beside its parts."""
    order = a.format.layout.major_to_minor if a.format.layout is not None else None
    return {"shape": a.shape, "dtype": a.dtype.name, "memory": a.sharding.memory_kind, "order": order,
            "sharding": a.sharding._to_xla_hlo_sharding(a.ndim).to_proto().SerializeToString(),
            "devices": [d.id for d in a.sharding._device_assignment], "parts": parts(a)}


def options_of(o, devices):
    b = o.executable_build_options
    return {"replicas": o.num_replicas, "partitions": o.num_partitions, "spmd": b.use_spmd_partitioning,
            "shardy": b.use_shardy_partitioner, "devices": [d.id for d in devices],
            "in": list(b.allow_spmd_sharding_propagation_to_parameters),
            "out": list(b.allow_spmd_sharding_propagation_to_output)}


def keep(program):
    data = pickle.dumps(program)
    key = hashlib.sha256(program["module"] + repr([program["options"]["devices"], *((a["shape"], a["devices"])
                                                        for a in program["arguments"])]).encode()).hexdigest()[:24]
    path = FOLDER / "programs" / key
    if len(data) <= LARGEST and not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(data)
        part.rename(path)


def pytest_configure(config):
    from jax._src import compiler
    from jax._src.interpreters import mlir, pxla
    compile_and_load, call = compiler.backend_compile_and_load, pxla.ExecuteReplicated.__call__
    known, seen = {}, set()

    def compiling(backend, module, executable_devices, options, host_callbacks):
        text = mlir.module_to_bytecode(module) if len(executable_devices) > 1 and not host_callbacks else None
        loaded = compile_and_load(backend, module, executable_devices, options, host_callbacks)
        if text and backend.platform == "tpu":
            known[id(loaded)] = (text, options_of(options, executable_devices), loaded)
        return loaded

    def calling(self, *args):
        mine = known.get(id(self.xla_executable))
        if not mine or id(self.xla_executable) in seen or self.mut or self.ordered_effects or self.has_host_callbacks:
            return call(self, *args)
        seen.add(id(self.xla_executable))
        try:
            kept = [x for i, x in enumerate(args) if i in self.kept_var_idx]
            arguments = [describe(a) for a in self.in_handler(kept)]
        except Exception:
            return call(self, *args)
        out = call(self, *args)
        try:
            keep({"module": mine[0], "options": mine[1], "arguments": arguments, "name": self.name,
                  "test": os.environ.get("PYTEST_CURRENT_TEST", ""), "results": [parts(raw(o)) for o in out]})
        except Exception as e:
            print("not kept:", self.name, e, file=sys.stderr)
        return out

    compiler.backend_compile_and_load = compiling
    pxla.ExecuteReplicated.__call__ = calling


def record(options):
    (FOLDER / "programs").mkdir(parents=True, exist_ok=True)
    env = dict(os.environ, TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu",
               ATOLL_TARGET=RECORDED, JAX_NUM_GENERATED_CASES="1", JAX_SKIP_SLOW_TESTS="1", ATOLL_CACHE="off",
               PYTHONPATH=os.pathsep.join([str(SHARED), str(TOP / "tools")]))
    folder = unpack()
    for file in options.files.split(","):
        begin = time.time()
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "processes_replay", "-p", "no:cacheprovider", "-n",
                        str(options.jobs), "--timeout=300", f"tests/{file}.py"], cwd=folder, env=env,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(f"{file}: {len(list((FOLDER / 'programs').iterdir()))} programs so far, {time.time() - begin:.0f} s", flush=True)


# ---- Replay: one process of a job ---------------------------------------------------------------------------------
def array_of(a, place, devices):
    import jax
    import numpy as np
    from jax._src.lib import xla_client as xc
    from jax._src.sharding_impls import GSPMDSharding
    proto = xc.OpSharding()
    proto.ParseFromString(a["sharding"])
    mine = [devices[place[d]] for d in a["devices"]]
    sharding = GSPMDSharding(mine, xc.HloSharding.from_proto(proto), memory_kind=a["memory"])
    local = []
    for d in a["devices"]:
        device = devices[place[d]]
        if device.process_index != jax.process_index():
            continue
        to = jax.sharding.SingleDeviceSharding(device, memory_kind=a["memory"])
        if a["order"] is not None and tuple(a["order"]) != tuple(range(len(a["shape"]))):
            from jax.experimental.layout import Format, Layout
            to = Format(Layout(major_to_minor=tuple(a["order"])), to)
        local.append(jax.device_put(np.asarray(a["parts"][d]), to))
    return jax.make_array_from_single_device_arrays(a["shape"], sharding, local, dtype=a["parts"][a["devices"][0]].dtype)


def compiled(program, place, devices):
    import numpy as np
    from jax._src import xla_bridge
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client as xc
    from jax._src.lib.mlir import ir
    o = program["options"]
    ids = [place[d] for d in o["devices"]]
    options, ids_of = xc.CompileOptions(), np.array([devices[i].id for i in ids]).reshape(o["replicas"], o["partitions"])
    options.num_replicas, options.num_partitions = o["replicas"], o["partitions"]
    b = options.executable_build_options
    b.num_replicas, b.num_partitions = o["replicas"], o["partitions"]
    b.device_assignment = xc.DeviceAssignment.create(ids_of)
    b.use_spmd_partitioning, b.use_shardy_partitioner = o["spmd"], o["shardy"]
    b.allow_spmd_sharding_propagation_to_parameters = o["in"]
    b.allow_spmd_sharding_propagation_to_output = o["out"]
    backend = xla_bridge.get_backend("tpu")
    with mlir.make_ir_context():
        module = ir.Module.parse(program["module"])
        return backend.compile_and_load(module, executable_devices=xc.DeviceList(tuple(devices[i] for i in ids)),
                                        compile_options=options)


def run_program(program, place, devices, all_can):
    """Digests of the results: {"result.device of the recording": digest}."""
    error = None
    try:
        executable = compiled(program, place, devices)
        arguments = [array_of(a, place, devices) for a in program["arguments"]]
    except Exception as e:  # the others must not wait for this process
        error = e
    if not all_can(not error):
        raise error or RuntimeError("another process cannot")
    results = executable.execute_sharded(arguments)
    back = {devices[p].id: d for d, p in place.items()}
    out = {}
    for i, shards in enumerate(results.disassemble_into_single_device_arrays()):
        for s in shards:
            (device,) = s.devices()
            out[f"{i}.{back[device.id]}"] = digest(s)
    return out


def digest(a):
    import numpy as np
    return hashlib.sha256(np.ascontiguousarray(np.asarray(a)).tobytes()).hexdigest()[:16]


def place_of(shares, shuffled):
    """The device of the pod that stands for each recorded one: the first chips of each process."""
    each = CHIPS // len(shares)
    ids = [i * each + k for i, n in enumerate(shares) for k in range(n)]
    if shuffled:
        random.Random(1).shuffle(ids)
    return dict(enumerate(ids))


def worker(options):
    """Runs the programs of the list; a line for each to the file of this process."""
    import jax
    if options.processes > 1:
        jax.distributed.initialize(f"localhost:{options.port}", options.processes, options.me, heartbeat_timeout_seconds=100)
    from jax._src import distributed
    client, devices = distributed.global_state.client, jax.devices()
    shares = [int(n) for n in options.shares.split(",")]
    out = open(f"{options.out}.{options.me}", "a")
    for key in pathlib.Path(options.list).read_text().split():
        program = pickle.loads((FOLDER / "programs" / key).read_bytes())
        row = {"key": key}
        for shuffled in (False, True):
            place, name = place_of(shares, shuffled), f"{key}/{shuffled}"

            def all_can(ok):
                if not client:
                    return ok
                client.key_value_set(f"{name}/{options.me}", str(int(ok)))
                return all(client.blocking_key_value_get(f"{name}/{i}", 60000) == "1" for i in range(options.processes))

            try:
                row["shuffled" if shuffled else "plain"] = run_program(program, place, devices, all_can)
            except Exception as e:
                row["shuffled" if shuffled else "plain"] = {"error": f"{type(e).__name__}: {e}"[:600]}
        out.write(json.dumps(row) + "\n")
        out.flush()
    if client:
        client.wait_at_barrier("the end", 60000)
    os._exit(0)


# ---- Replay: who starts them --------------------------------------------------------------------------------------
def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def job(options, keys, processes, shares, out):
    """Runs the programs in one job, until its end, or until nothing comes any more."""
    listed = out.with_suffix(".list")
    listed.write_text("\n".join(keys))
    with socket.create_server(("localhost", 0)) as s:
        port = s.getsockname()[1]
    env = dict(os.environ, TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu",
               ATOLL_TARGET=POD, JAX_ENABLE_X64="0")
    jobs = []
    for i in range(processes):
        with open(f"{out}.log{i}", "w") as log:
            jobs.append(subprocess.Popen(
                [sys.executable, __file__, "worker", "--processes", str(processes), "--shares", shares, "--me", str(i),
                 "--port", str(port), "--list", str(listed), "--out", str(out)], env=env, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True))
    seen, last = -1, time.monotonic()
    while any(p.poll() is None for p in jobs) and time.monotonic() < options.until:
        now = sum(len(lines(pathlib.Path(f"{out}.{i}"))) for i in range(processes))
        if now != seen:
            seen, last = now, time.monotonic()
        if time.monotonic() - last > options.patience:
            break
        time.sleep(0.5)
    for p in jobs:
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)
        p.wait()


def run_all(options, keys, processes, shares):
    """{key: {"plain": digests, "shuffled": digests}}; goes on where an earlier run stopped."""
    out = FOLDER / f"run-{processes}-{shares.replace(',', '.')}"
    while time.monotonic() < options.until:
        each = [{r["key"]: r for r in lines(pathlib.Path(f"{out}.{i}"))} for i in range(processes)]
        left = [k for k in keys if not all(k in e for e in each)]
        if not left:
            break
        job(options, left, processes, shares, out)
        after = [{r["key"] for r in lines(pathlib.Path(f"{out}.{i}"))} for i in range(processes)]
        stuck = next((k for k in left if not all(k in a for a in after)), None)
        if stuck and time.monotonic() < options.until:
            for i in range(processes):
                if stuck not in after[i]:
                    with open(f"{out}.{i}", "a") as f:
                        f.write(json.dumps({"key": stuck, "plain": {"error": "hangs, or ends the process"},
                                            "shuffled": {"error": "hangs, or ends the process"}}) + "\n")
    found = {}
    for i in range(processes):
        for r in lines(pathlib.Path(f"{out}.{i}")):
            mine = found.setdefault(r["key"], {"plain": {}, "shuffled": {}, "processes": 0})
            mine["processes"] += 1
            for way in ("plain", "shuffled"):
                mine[way].update(r[way])
    return {k: v for k, v in found.items() if v["processes"] == processes and k in keys}


def expected(program):
    return {f"{i}.{d}": digest(a) for i, parts in enumerate(program["results"]) for d, a in parts.items()}


def replay(options):
    keys = sorted(p.name for p in (FOLDER / "programs").iterdir() if "." not in p.name)[:options.most]
    options.until = time.monotonic() + options.seconds
    bad = 0
    alone = run_all(options, keys, 1, "8")
    for shares in options.shares.split("|"):
        found, same, refused = run_all(options, keys, options.processes, shares), 0, 0
        for key, ways in sorted(found.items()):
            program = pickle.loads((FOLDER / "programs" / key).read_bytes())
            right = expected(program)
            for way in ("plain", "shuffled"):
                one, told = alone.get(key, {}).get(way, {}), ways[way]
                if "error" in one and "error" in told:
                    refused += 1
                elif told == right:
                    same += 1
                else:
                    bad += 1
                    wrong = [k for k in right if told.get(k) != right[k]]
                    cause = told.get("error") or f"{len(wrong)} of {len(right)} parts differ: {wrong[:6]}"
                    print(f"DIFFERS {key} {program['name']} ({program['test']}) {shares} {way}"
                          f"{'' if one == right else ', in one process too'}: {cause}")
        print(f"{options.processes} processes with {shares} chips: {same} runs of {len(found)} programs give the recorded "
              f"bits, {refused} are refused in one process, too", flush=True)
    sys.exit(1 if bad else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "replay", "worker"))
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--files", default="pjit_test,shard_map_test,array_test,layout_test")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--shares", default="4,2,1,1")
    parser.add_argument("--most", type=int, default=1 << 30, help="programs")
    parser.add_argument("--seconds", type=float, default=1e9, help="of all; another run goes on")
    parser.add_argument("--patience", type=float, default=60, help="seconds for a program")
    for name in ("--me", "--port"):
        parser.add_argument(name, type=int, default=0, help=argparse.SUPPRESS)
    for name in ("--list", "--out"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    {"record": record, "replay": replay, "worker": worker}[options.what](options)


if __name__ == "__main__":
    main()
