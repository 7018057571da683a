#!/usr/bin/env python3
"""What the TPU compiler says of small Pallas kernels, for tools/pallas_verdicts.py --verdicts. No TPU is needed.

usage: pallas_oracle.py --kernels=FILE.py --topology=v5e:2x2 --out=FILE.json

FILE.py has CASES: name -> (function that returns (callable, argument structs), flags). Kernels are compiled ahead of time by
libtpu for the topology, so this Python needs the packages jax and libtpu. A verdict is ok, refused (by JAX's lowering or by
the compiler) or crash: the compiler ended the process. FILE.json is written after each crash and at the end: names that it
has are not asked again.
"""
import argparse, collections, importlib.util, json, os, pathlib, subprocess, sys

KINDS = {"v2": "TPU v2", "v3": "TPU v3", "v4": "TPU v4", "v5e": "TPU v5 lite", "v5p": "TPU v5", "v6e": "TPU v6 lite",
         "tpu7x": "TPU7x"}
TWO_CORES = ("v4", "v5p")


def compiler_of(topology):
    """a function: case -> verdict"""
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # others may ask it at the same time: no TPU is opened
    import jax
    import numpy as np
    from jax._src.pallas.mosaic import tpu_info
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
    chip = topology.split(":")[0]
    devices = topologies.get_topology_desc(topology, platform="tpu").devices
    # The lowering asks for the default device, which is a CPU here.
    tpu_info.get_device_kind = lambda: KINDS[chip]
    tpu_info.get_num_device_cores = lambda: 2 if chip in TWO_CORES else 1

    def compiled(make, flags):
        stage = "jax-lowering"
        try:
            jax.config.update("jax_enable_x64", bool(flags.get("x64")))
            function, operands = make()
            where = SingleDeviceSharding(devices[0])
            if flags.get("mesh"):
                mesh, spec = Mesh(np.array(devices[:4]), ("x",)), PartitionSpec()
                function = jax.shard_map(function, mesh=mesh, in_specs=(spec,) * len(operands), out_specs=spec, check_vma=False)
                where = NamedSharding(mesh, spec)
            operands = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where) for x in operands]
            lowered = jax.jit(function).trace(*operands).lower(lowering_platforms=("tpu",))
            stage = "compiler"
            lowered.compile()
            return {"verdict": "ok", "stage": "ok", "message": ""}
        except Exception as e:
            return {"verdict": "refused", "stage": stage, "message": f"{type(e).__name__}: {e}"}
    return compiled


def cases_of(path):
    spec = importlib.util.spec_from_file_location("kernels", path)
    kernels = importlib.util.module_from_spec(spec)
    sys.modules["kernels"] = kernels
    spec.loader.exec_module(kernels)
    return kernels.CASES


def ask(options):
    """In a process of its own: a verdict is a line, after its name."""
    compiled = compiler_of(options.topology)
    known = set(json.loads(sys.stdin.read()))
    for name, (make, flags) in cases_of(options.kernels).items():
        if name in known:
            continue
        print(json.dumps(name), flush=True)
        print(json.dumps(compiled(make, flags)), flush=True)


def ask_all(options):
    out = pathlib.Path(options.out)
    verdicts = json.loads(out.read_text()) if out.exists() else {}
    end = "/" + options.topology
    while True:
        known = json.dumps([k[:-len(end)] for k in verdicts if k.endswith(end)])
        run = subprocess.run([sys.executable, *sys.argv, "--ask"], input=known, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        lines = [json.loads(x) for x in run.stdout.splitlines() if x[:1] in '"{']
        for name, verdict in zip(lines[::2], [*lines[1::2], {"verdict": "crash", "stage": "compiler", "message": "crash"}]):
            verdicts[name + end] = verdict
        out.write_text(json.dumps(verdicts, indent=1, sort_keys=True))
        if not run.returncode:
            break
        if not lines:
            sys.exit(run.stderr)
        print(f"the compiler crashed on {lines[-1] if len(lines) % 2 else 'its way out'}", file=sys.stderr, flush=True)
    counts = collections.Counter((v["verdict"], v["stage"]) for k, v in verdicts.items() if k.endswith(end))
    print(", ".join(f"{verdict} ({stage}): {n}" for (verdict, stage), n in sorted(counts.items())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", required=True)
    parser.add_argument("--topology", required=True, help="v5e:2x2, v5p:2x2x1, v6e:2x2, tpu7x:2x2x1, v4:2x2x1, ...")
    parser.add_argument("--out", required=True)
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.topology.split(":")[0] not in KINDS:
        parser.error(f"no such chip: {options.topology}; known are {', '.join(KINDS)}")
    (ask if options.ask else ask_all)(options)


if __name__ == "__main__":
    main()
