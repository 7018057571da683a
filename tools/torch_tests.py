#!/usr/bin/env python3
"""Tests of PyTorch's clients of a TPU, on Atoll and beside it on a CPU.

  tools/torch_tests.py xla --checkout DIR [--set ops spmd pallas] [--files REGEX] [--again]
  tools/torch_tests.py ops [--client torch_tpu] [--count 500] [--salt 1] [--only REGEX]
  tools/torch_tests.py table      the table in docs/pytorch.md from the results so far; rows without results stay

xla  torch_xla's own test files (a checkout of https://github.com/pytorch/xla at the tag of the installed package).
     Every test runs on torch_xla's CPU client and on Atoll. What passes on the CPU is what Atoll must pass, but for
     tests that skip themselves on a TPU. Tests of Pallas kernels run on Atoll only, with the products of a TPU
     (ATOLL_NUMERICS=tpu): their references multiply outside of the kernels. Results are kept in build/torch, a line
     each: what has a result is not run again without --again.
ops  one check for each chosen pair of an op and a type of PyTorch's own table of ops (op_db), forward and gradient,
     against PyTorch on the CPU (tools/torch_ops.py). The choice is by hash: the same for everybody.

Both want the library in TPU_LIBRARY_PATH and a Python that has the client's packages, pytest and pytest-timeout
(docs/pytorch.md).
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[1]
RESULTS = TOP / "build" / "torch"
DOC = TOP / "docs" / "pytorch.md"
SETS = {
    "ops": ["test_operations.py", "test_core_aten_ops.py", "test_data_type.py", "test_python_ops.py", "test_while_loop.py",
            "test_autocast.py", "test_as_stride_use_slice.py", "test_gru.py", "test_input_output_aliases.py", "test_fp8.py",
            "test_operations_hlo.py", "test_ops_error_message.py", "test_xla_graph_execution.py", "test_inplace_update.py",
            "test_mat_mul_precision.py", "test_syncfree_optimizers.py", "test_devices.py", "scan/test_scan.py",
            "scan/test_scan_layers.py", "eager/test_eager.py", "quantized_ops/test_dot_general.py",
            "quantized_ops/test_quantized_matmul.py", "dynamo/test_dynamo.py"],
    "spmd": ["spmd/test_xla_sharding.py", "spmd/test_xla_sharding_hlo.py", "spmd/test_xla_virtual_device.py",
             "spmd/test_dynamo_spmd.py", "spmd/test_spmd_debugging.py", "spmd/test_xla_spmd_python_api_interaction.py",
             "spmd/test_dtensor_integration.py", "spmd/test_dtensor_integration2.py", "spmd/test_xla_distributed_checkpoint.py",
             "spmd/test_dtensor_convert_mesh.py", "spmd/test_xla_dtensor_spec_conversion.py",
             "spmd/test_dtensor_redistribute.py", "spmd/test_xla_dtensor_placements.py", "spmd/test_fsdp_v2.py",
             "spmd/test_mp_input_sharding.py", "spmd/test_spmd_parameter_wrapping.py", "scan/test_scan_spmd.py",
             "test_gradient_accumulation.py"],
    "pallas": ["test_pallas.py", "test_pallas_spmd.py", "test_gmm.py", "test_splash_attention.py",
               "test_ragged_paged_attention_kernel.py", "test_multi_queries_paged_attention_kernel.py",
               "test_quantized_matmul_pallas_kernel.py"],
}
CHIPS = {"ops": 1, "spmd": 8, "pallas": 1, "test_pallas_spmd.py": 8, "test_splash_attention.py": 4}
TARGETS = {1: "v6e:1x1", 4: "v6e:2x2", 8: "v6e:2x4"}
# What torch_xla would ask a machine of Google's cloud.
MACHINE = {"TPU_SKIP_MDS_QUERY": "1", "TPU_PROCESS_BOUNDS": "1,1,1", "TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
BOUNDS = {1: "1,1,1", 4: "2,2,1", 8: "2,4,1"}


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def environment(options, place, chips, file, **more):
    """Atoll is a TPU to torch_xla; the CPU client has as many devices."""
    paths = [TOP / "tools", options.test, (options.test / file).parent]
    env = {**os.environ, "ATOLL_TARGET": TARGETS[chips], "XLA_EXPERIMENTAL": "nonzero:masked_select:masked_scatter:nms"
           if options.dynamic else "", "PYTHONPATH": os.pathsep.join(map(str, paths)), **more}
    env.pop("XLA_STABLEHLO_COMPILE", None)
    if place == "cpu":
        return {**env, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(chips)}
    if file in SETS["pallas"]:
        env["ATOLL_NUMERICS"] = "tpu"
    if options.stablehlo:
        env["XLA_STABLEHLO_COMPILE"] = "1"
    return {**env, **MACHINE, "PJRT_DEVICE": "TPU", "TPU_ACCELERATOR_TYPE": f"v6e-{chips}",
            "TPU_CHIPS_PER_PROCESS_BOUNDS": BOUNDS[chips]}


def pytest_command(*args):
    return [sys.executable, "-m", "pytest", "-q", "-p", "suite_plugin", "-p", "torch_main", "-p", "no:cacheprovider", *args]


def collect(options, file, chips):
    """The tests of a file, by name; asked once."""
    known = RESULTS / "collected.json"
    tests = json.loads(known.read_text()) if known.is_file() else {}
    if file in tests:
        return tests[file]
    run = subprocess.run(pytest_command("--collect-only", file), cwd=options.test, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, env=environment(options, "cpu", chips, file))
    found = [line for line in run.stdout.splitlines() if line.startswith(file + "::")]
    if not found:
        print(f"{file}: no tests: {run.stdout.strip()[-300:]}", flush=True)
        return []
    known.write_text(json.dumps({**tests, file: found}, indent=1))
    return found


def results_of(path):
    """The last result of each test. What began and never ended took its process with it."""
    rows = {row["test"]: row for row in read_lines(path)}
    return {t: dict(r, result="failed", message="the process ended") if r["result"] == "started" else r
            for t, r in rows.items()}


def run_file(options, place, chips, file, tests, path):
    """Runs tests of one file in as many processes as they end."""
    chosen, left = path.with_suffix(f".{os.getpid()}"), list(tests)
    while left:
        chosen.write_text("\n".join(left))
        before = len(read_lines(path))
        env = environment(options, place, chips, file, SUITE_TESTS=str(chosen), SUITE_RESULTS=str(path))
        with open(path.with_suffix(".log"), "w") as log:
            subprocess.run(pytest_command(f"--timeout={options.timeout}", "--tb=short", file), cwd=options.test, env=env,
                           stdout=log, stderr=log)
        chosen.unlink()
        done = {row["test"] for row in read_lines(path)[before:]}
        if not done:
            print(f"{file} on {place}: no test ran, see {path.with_suffix('.log')}", flush=True)
            return
        left = [test for test in left if test not in done]


def failures(wanted, rows, count):
    """Failed tests by what they say, the most frequent first."""
    said = collections.defaultdict(list)
    for test in wanted:
        row = rows.get(test, {"result": "no result", "message": ""})
        if row["result"] != "passed":
            said[f"{row['result']}: {row['message'].splitlines()[0] if row['message'] else ''}"[:160]].append(test)
    for message, tests in sorted(said.items(), key=lambda item: -len(item[1]))[:count]:
        print(f"  {len(tests):4} {message}")
        for test in tests[:3]:
            print(f"         {test}")


def wanted_of(name, tests, cpu, atoll):
    """What Atoll must pass: what the CPU passes, but for tests that do not run on a TPU; kernels run only there."""
    return [t for t in tests if atoll.get(t, {}).get("result") != "skipped" and
            (name == "pallas" or cpu.get(t, {}).get("result") == "passed")]


def xla(options):
    given = options.checkout.resolve() / "test"
    if not given.is_dir():
        sys.exit(f"{given} is no folder: give a checkout of pytorch/xla")
    # Their folder is a package, so pytest looks for modules in the one above it: there the checkout's sources of
    # torch_xla would hide the installed package.
    options.test = RESULTS / "checkout" / "test"
    shutil.copytree(given, options.test, dirs_exist_ok=True)
    folder = RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    passed = total = 0
    for name in options.set:
        paths = {place: folder / f"{name}-{place}.jsonl" for place in ("cpu", "atoll")}
        everything = []
        for file in SETS[name]:
            if options.files and not re.search(options.files, file):
                continue
            chips = CHIPS.get(file, CHIPS[name])
            tests = collect(options, file, chips)
            everything += tests
            for place in ["atoll"] if name == "pallas" else ["cpu", "atoll"]:
                rows = results_of(paths[place])
                again = options.again and place == "atoll"
                run_file(options, place, chips, file,
                         [t for t in tests if t not in rows or (again and rows[t]["result"] != "passed")], paths[place])
            cpu, atoll = (results_of(paths[place]) for place in ("cpu", "atoll"))
            mine = wanted_of(name, tests, cpu, atoll)
            print(f"{file:55} {len(tests):4} tests, {len(mine):4} wanted, "
                  f"{sum(atoll.get(t, {}).get('result') == 'passed' for t in mine):4} pass", flush=True)
        cpu, atoll = (results_of(paths[place]) for place in ("cpu", "atoll"))
        mine = wanted_of(name, everything, cpu, atoll)
        good = sum(atoll.get(t, {}).get("result") == "passed" for t in mine)
        print(f"{name}: {good} of {len(mine)} ({100 * good / max(1, len(mine)):.1f}%)")
        failures(mine, atoll, 40)
        passed, total = passed + good, total + len(mine)
    print(f"{passed} passed, {total - passed} failed")
    return 0 if passed == total else 1


def row_of_set(name, tests):
    """A set's row of the table; None where nothing of it ran."""
    cpu, atoll = (results_of(RESULTS / f"{name}-{place}.jsonl") for place in ("cpu", "atoll"))
    ran = [t for t in tests if t in atoll]
    wanted = wanted_of(name, ran, cpu, atoll)
    if not wanted:
        return None
    good = sum(atoll[t]["result"] == "passed" for t in wanted)
    skipped = sum(atoll[t]["result"] == "skipped" for t in ran)
    return [f"torch_xla's tests: {name}", len({t.split("::")[0] for t in tests}), len(tests), len(ran), skipped,
            len(ran) - len(wanted) - skipped, len(wanted), good, f"{good / len(wanted):.1%}"]


def row_of_checks(path):
    counts = collections.Counter(row["result"] for row in read_lines(path))
    wanted = counts["passed"] + counts["failed"]
    return [f"checks of ops, {path.stem.removeprefix('checks-')}", "", sum(counts.values()), sum(counts.values()),
            counts["empty"], counts["refused"], wanted, counts["passed"], f"{counts['passed'] / max(1, wanted):.1%}"]


def table(options):
    known = RESULTS / "collected.json"
    collected = json.loads(known.read_text()) if known.is_file() else {}
    rows = [row_of_set(name, [t for file in files for t in collected.get(file, [])]) for name, files in SETS.items()]
    rows += [row_of_checks(path) for path in sorted(RESULTS.glob("checks-*.jsonl"))]
    begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
    before, rest = DOC.read_text().split(begin)
    old, after = rest.split(end)
    rows = {row[0]: "| " + " | ".join(map(str, row)) + " |" for row in rows if row}
    kept = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines()[2:]}
    lines = ["| | files | tests | run | skip themselves | refused by the client, or fail on its CPU | count | pass | share |",
             "|---" * 9 + "|", *{**kept, **rows}.values()]
    DOC.write_text(before + begin + "\n".join(lines) + "\n" + end + after)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("xla")
    p.add_argument("--checkout", type=pathlib.Path, required=True, help="of pytorch/xla")
    p.add_argument("--set", nargs="+", choices=sorted(SETS), default=["ops", "spmd", "pallas"])
    p.add_argument("--files", help="only test files that match")
    p.add_argument("--again", action="store_true", help="run again what did not pass on Atoll")
    p.add_argument("--timeout", type=int, default=300, help="seconds for one test")
    p.add_argument("--stablehlo", action="store_true", help="programs as StableHLO (XLA_STABLEHLO_COMPILE=1)")
    p.add_argument("--dynamic", action="store_true", help="with bounded dynamic shapes")
    p.set_defaults(run=xla)
    p = commands.add_parser("ops")
    p.add_argument("--client", choices=["torch_tpu", "torch_xla"], default="torch_tpu")
    p.add_argument("--count", type=int, default=500)
    p.add_argument("--salt", default="1")
    p.add_argument("--only", help="only checks whose names match")
    p.add_argument("--timeout", type=int, default=180, help="seconds in which a worker must say something")
    p.set_defaults(run=lambda options: __import__("torch_ops").run(options))
    p = commands.add_parser("table")
    p.set_defaults(run=table)
    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
