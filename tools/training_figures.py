#!/usr/bin/env python3
"""Published training figures of MaxText beside what `atoll estimate` says of the same programs.

  tools/training_figures.py lower --maxtext=FOLDER [NAME...]   lowers train steps (a checkout of MaxText, its
                                                               packages and libtpu in this Python; no chip)
  tools/training_figures.py report [--atoll=FILE] [--json | --out=docs/training_figures.md] [NAME...]

Rows are in data/tpu/training_figures.json: the published configuration and figure. `lower` writes the train step
of each as portable MLIR bytecode into data/tpu/training, without names of files. `report` prints for each the
published and the estimated tokens per second and chip; then with one factor per chip that takes in what a schedule
cannot tell (input, clock, hosts): the median ratio of the other rows of that chip.
"""
import argparse
import json
import lzma
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[1]
FIGURES = TOP / "data" / "tpu" / "training_figures.json"
PROGRAMS = TOP / "data" / "tpu" / "training"
PAGE = """# Published training figures

Written by `tools/training_figures.py report --out=docs/training_figures.md`. Tokens per second and chip as MaxText and
its recipes published them (`data/tpu/training_figures.json` has the sources and the configurations), beside
`atoll estimate` of the same train step: MaxText's own program, lowered with the published configuration, Pallas
attention and offloading included. The factor of a chip takes in what no schedule tells (input, clock, hosts); it is the
median of the *other* configurations on that chip.

What is assumed: a step takes as long as its program on the device; one slice, every link of its torus is there; XLA
flags of the recipes (collective fusion, SparseCore offload of collectives, limits of scoped VMEM) change nothing but
that collectives run beside kernels; figures were published between 2023 and 2026 with MaxText and libtpu of their day,
the programs are of one MaxText commit; TFLOP per second of the v5e and v5p tables count attention whole.
"""
# What every row has: synthetic data, no checkpoints, attention by the splash kernel.
COMMON = {"run_name": "figures", "base_output_directory": "/nonexistent", "enable_checkpointing": False,
          "dataset_type": "synthetic", "attention": "flash", "use_iota_embed": True,
          "skip_jax_distributed_system": True, "compile_topology_num_slices": 1}


def program_of(name):
    return PROGRAMS / f"{name}.mlirbc.xz"


def settings(figures, row):
    made = dict(COMMON, compile_topology=row["topology"])
    for use in row["config"].get("use", []):
        made.update(figures["use"][use])
    made.update({k: v for k, v in row["config"].items() if k != "use"})
    return [f"{k}={v}" for k, v in made.items()]


# ---- Lowering


def lower_one(maxtext, name):
    """Lowers one row in this process and ends it: MaxText's flags live as long as the process."""
    figures = json.loads(FIGURES.read_text())
    row = next(r for r in figures["rows"] if r["name"] == name)
    sys.path[:0] = [str(maxtext / "src"), str(maxtext)]
    os.environ.update(TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="2")
    import jax
    from jax._src.lib.mlir import ir
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax
    from jaxlib.mlir.dialects import stablehlo
    from maxtext.trainers.pre_train import train_compile
    from maxtext.utils import maxtext_utils
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")

    def keep(func, args, kwargs, mesh, in_shardings, out_shardings, static_argnums, donate_argnums, config, rules):
        with jax.set_mesh(mesh), mesh, rules:
            lowered = jax.jit(func, in_shardings=in_shardings, out_shardings=out_shardings,
                              static_argnums=static_argnums, donate_argnums=donate_argnums).lower(*args, **kwargs)
        module = lowered.compiler_ir("stablehlo")
        with module.context:
            bare = ir.Module.parse(str(module))  # printed without locations: names of files stay here
            code = _jax.mlir.serialize_portable_artifact(mlir.module_to_bytecode(bare), stablehlo.get_current_version(), True)
        PROGRAMS.mkdir(exist_ok=True)
        program_of(name).write_bytes(lzma.compress(code, preset=9))
        total, weights, attention = maxtext_utils.calculate_tflops_training_per_device(config, log=False)
        print(json.dumps({"tokens": config.per_device_batch_size * config.max_target_length * config.gradient_accumulation_steps,
                          "tflop": total, "tflop_attention": attention}), flush=True)
        os._exit(0)  # the rest of train_compile would compile and save

    train_compile.jit_and_compile = keep
    train_compile.main(["train_compile", str(maxtext / "src" / "maxtext" / "configs" / "base.yml"), *settings(figures, row)])


def lower(args):
    figures = json.loads(FIGURES.read_text())
    failed = 0
    for row in figures["rows"]:
        if args.names and row["name"] not in args.names:
            continue
        run = subprocess.run([sys.executable, __file__, "lower", f"--maxtext={args.maxtext}", "--one", row["name"]],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            row.update(json.loads(run.stdout.splitlines()[-1]))
            print(row["name"], "lowered,", program_of(row["name"]).stat().st_size, "bytes", flush=True)
        except (IndexError, ValueError):
            failed += 1
            print(row["name"], "failed:", run.stderr[-1500:], flush=True)
        write_figures(figures)
    return failed != 0


def write_figures(figures):
    """One line a row, so that changes are seen as such."""
    rows = ",\n    ".join(json.dumps(r) for r in figures["rows"])
    rest = {k: v for k, v in figures.items() if k != "rows"}
    head = json.dumps(rest, indent=2)
    FIGURES.write_text(head[:-2] + ',\n  "rows": [\n    ' + rows + "\n  ]\n}\n")


# ---- The report


def published(row):
    """Seconds of a step as published."""
    if "tokens_s" in row:
        return row["tokens"] / row["tokens_s"]
    return (row["tflop"] + row["tflop_attention"]) / row["tflops_s"]


def estimate(atoll, row):
    with tempfile.NamedTemporaryFile(suffix=".mlirbc") as f:
        f.write(lzma.decompress(program_of(row["name"]).read_bytes()))
        f.flush()
        run = subprocess.run([atoll, "estimate", f.name, f"--target={row['target']}", "--json"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        raise SystemExit(f"{row['name']}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def rows_of(atoll, names=None):
    """[{name, chip, published_s, estimated_s, tokens, peak}], of rows whose program is at hand."""
    figures = json.loads(FIGURES.read_text())
    made = []
    for row in figures["rows"]:
        if (names and row["name"] not in names) or not program_of(row["name"]).is_file():
            continue
        said = estimate(atoll, row)
        made.append({"name": row["name"], "chip": row["target"].split(":")[0], "tokens": row["tokens"],
                     "published_s": published(row), "estimated_s": said["seconds"]})
    for row in made:
        others = [r["published_s"] / r["estimated_s"] for r in made if r["chip"] == row["chip"] and r is not row]
        row["factor"] = statistics.median(others) if others else 1.0
    return made


def errors_of(row):
    """Of tokens per second: as estimated, and with the factor."""
    ratio = row["published_s"] / row["estimated_s"]
    return ratio - 1, ratio / row["factor"] - 1


def summary(rows):
    said = []
    for which, what in enumerate(("As estimated", "With the factor of the chip's other rows")):
        sizes = sorted(abs(errors_of(r)[which]) for r in rows)
        said.append(f"{what}: median error {100 * statistics.median(sizes):.1f}%, "
                    f"{sum(e <= 0.15 for e in sizes)} of {len(sizes)} within 15%.")
    return said


def report(args):
    rows = rows_of(args.atoll, args.names)
    if not rows:
        raise SystemExit("no row has its program: tools/training_figures.py lower makes them")
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    lines = [PAGE, "| configuration | published | estimated | error | factor | error with it |", "|---|---|---|---|---|---|"]
    for r in rows:
        plain, fitted = errors_of(r)
        lines.append(f"| {r['name']} | {r['tokens'] / r['published_s']:.0f} | {r['tokens'] / r['estimated_s']:.0f} | "
                     f"{100 * plain:+.1f}% | {1 / r['factor']:.3f} | {100 * fitted:+.1f}% |")
    lines += ["", *summary(rows)]
    text = "\n".join(lines) + "\n"
    if args.out:
        args.out.write_text(text)
    else:
        print(text, end="")
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["lower", "report"])
    p.add_argument("names", nargs="*")
    p.add_argument("--maxtext", type=pathlib.Path)
    p.add_argument("--one", help=argparse.SUPPRESS)
    p.add_argument("--atoll", default=str(TOP / "build" / "release" / "atoll"))
    p.add_argument("--json", action="store_true")
    p.add_argument("--out", type=pathlib.Path)
    args = p.parse_intermixed_args()
    if args.one:
        lower_one(args.maxtext, args.one)
    elif args.command == "lower":
        if not args.maxtext:
            p.error("lower needs --maxtext=FOLDER")
        return lower(args)
    return report(args)


if __name__ == "__main__":
    sys.exit(main())
