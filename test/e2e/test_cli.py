"""The atoll command on real programs."""
import gzip
import json
import os
import pathlib
import re
import subprocess

import numpy as np

COMMAND = str(pathlib.Path(os.environ["ATOLL_LIBRARY"]).parent / "atoll")
PROGRAM = """
module @affine {
  func.func public @main(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> (tensor<2x3xf32>) {
    %0 = stablehlo.multiply %x, %y : tensor<2x3xf32>
    %1 = stablehlo.add %0, %x : tensor<2x3xf32>
    return %1 : tensor<2x3xf32>
  }
}
"""


def atoll(*args, **more):
    return subprocess.run([COMMAND, *map(str, args)], capture_output=True, text=True, env={**os.environ, **more})


def test_run_with_inputs_and_results(tmp_path):
    program, inputs, results = tmp_path / "p.mlir", tmp_path / "in.npz", tmp_path / "out.npz"
    program.write_text(PROGRAM)
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2, np.float32)
    np.savez(inputs, x=x, y=np.asfortranarray(y))
    done = atoll("run", "--json", f"--out={results}", program, inputs)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"] == ["f32[2,3]"]
    np.testing.assert_array_equal(np.load(results)["out0"], x * y + x)


def test_dump_every_stage(tmp_path):
    program = tmp_path / "p.mlir"
    program.write_text(PROGRAM)
    wanted = {"mlir": "stablehlo.add", "hlo": "add", "optimized": "main", "steps": "kernel", "llvm": "define", "asm": "ret"}
    for stage, word in wanted.items():
        done = atoll("dump", f"--stage={stage}", program)
        assert done.returncode == 0 and word in done.stdout, (stage, done.stdout[:500], done.stderr)
    optimized = atoll("dump", "--stage=optimized", program).stdout
    again = tmp_path / "p.hlo"
    again.write_text(optimized)
    assert atoll("run", again).returncode == 0


def test_doctor_and_tables():
    topics = {row["topic"] for row in json.loads(atoll("doctor", "--json").stdout)}
    assert {"cores", "memory", "huge pages", "libatoll.so"} <= topics
    assert "dot_general" in atoll("dump", "--ops-doc").stdout
    assert "ATOLL_TARGET" in atoll("dump", "--flags-doc").stdout


def test_errors_say_what_is_wrong(tmp_path):
    bad = tmp_path / "bad.mlir"
    bad.write_text(PROGRAM.replace("stablehlo.add %0, %x", "stablehlo.add %0, %nowhere"))
    done = atoll("run", bad)
    assert done.returncode == 2 and "nowhere" in done.stderr
    assert atoll("run").returncode == 2
    assert atoll("dump", "--stage=nothing", bad).returncode == 2
    assert "usage" in atoll().stderr
    assert atoll("run", tmp_path / "absent.mlir").returncode == 1


def test_docs_are_generated():
    top = pathlib.Path(os.environ["AT_SOURCE_DIR"])
    for flag, name in (("--ops-doc", "ops.md"), ("--flags-doc", "config.md"), ("--import-doc", "import.md"),
                       ("--mosaic-doc", "mosaic_ops.md"), ("--hlo-doc", "hlo.md")):
        assert (top / "docs" / name).read_text() == atoll("dump", flag).stdout, f"run tools/docs.sh: docs/{name} is old"


def test_host_is_measured_first(tmp_path):
    program = tmp_path / "p.hlo"
    program.write_text('hlo module "m" entry="main" {\nfunc "main" (%0: f32[4]) -> (f32[4]) {\n'
                       "  %1 = add %0, %0 : f32[4]\n  return %1\n}\n}\n")
    done = atoll("estimate", "--target=host", program, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode and "doctor --measure" in done.stderr


def test_costs_of_a_previous_run(tmp_path):
    program, trace = tmp_path / "p.hlo", tmp_path / "t.json.gz"
    program.write_text('hlo module "m" entry="main" {\nfunc "main" (%0: f32[4]) -> (f32[4]) {\n'
                       "  %1 = add %0, %0 : f32[4]\n  return %1\n}\n}\n")
    with gzip.open(trace, "wt") as f:
        json.dump({"traceEvents": [{"name": "add.1", "ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 70}]}, f)
    done = atoll("estimate", "--target=H100", f"--costs={trace}", "--json", program)
    (op,) = json.loads(done.stdout)["ops"]
    assert op["source"] == "profile" and abs(op["seconds"] - 70e-6) < 1e-9


LOOP = """
module @loop {
  func.func public @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
    %n = stablehlo.constant dense<10> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<64x64xf32>
      cond {
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %one : tensor<i32>
        %d = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
        %t = stablehlo.tanh %d : tensor<64x64xf32>
        stablehlo.return %j, %t : tensor<i32>, tensor<64x64xf32>
      }
    return %r#1 : tensor<64x64xf32>
  }
}
"""


def test_steps_on_the_measured_host(tmp_path):
    """The steps that run here, each as often as its loop turns, by the host's own figures."""
    corpus = pathlib.Path(os.environ["AT_SOURCE_DIR"]) / "test" / "corpora" / "host_fuzz" / "measured.json"
    (tmp_path / "atoll").mkdir()
    (tmp_path / "atoll" / "host.json").write_text(corpus.read_text())
    program = tmp_path / "p.mlir"
    program.write_text(LOOP)
    done = atoll("estimate", "--target=host", "--json", program, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    steps = {o["name"].split(".")[0]: o for o in estimate["ops"]}
    assert steps["dot_general"]["runs"] == 10 and steps["dot_general"]["source"] == "host model"
    assert not estimate["notes"]
    total = sum(o["seconds"] * o["runs"] for o in estimate["ops"])
    assert abs(estimate["seconds"] - total) < 1e-9 + total * 1e-6


def test_files_that_cannot_be_read_say_why(tmp_path):
    for path, said in ((tmp_path, "Is a directory"), (tmp_path / "absent.mlir", "No such file or directory")):
        for command in ("run", "dump", "estimate"):
            done = atoll(command, path)
            assert done.returncode == 1 and f"{path}: {said}" in done.stderr, done.stderr


def test_output_that_is_lost_is_an_error(tmp_path):
    program = tmp_path / "p.mlir"
    program.write_text(PROGRAM)
    for arguments in (["--help"], ["run", "--help"], ["run", program], ["dump", program], ["estimate", program]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([COMMAND, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "cannot write to stdout: No space left on device" in done.stderr, (arguments, done)


def test_arguments_are_of_the_programs_types(tmp_path):
    program, inputs = tmp_path / "p.mlir", tmp_path / "in.npz"
    program.write_text(PROGRAM)
    good = np.ones((2, 3), np.float32)
    for bad, said in ((np.ones((2, 3), np.int32), "takes f32[2,3], the file has i32[2,3]"),
                      (np.ones((3, 2), np.float32), "takes f32[2,3], the file has f32[3,2]"),
                      (np.ones((2, 3)), "takes f32[2,3], the file has f64[2,3]")):
        np.savez(inputs, x=good, y=bad)
        done = atoll("run", program, inputs)
        assert done.returncode == 2 and f"argument 1 (y): the program {said}" in done.stderr, done.stderr
    np.savez(inputs, x=good, y=np.array([{}], object))
    assert atoll("run", program, inputs).stderr.endswith("y: element type |O\n")
    half = tmp_path / "half.mlir"
    half.write_text(PROGRAM.replace("f32", "bf16"))
    np.savez(inputs, x=np.full((2, 3), 0x3f80, np.uint16), y=np.full((2, 3), 0x3f80, np.uint16))
    assert "= 2, 2, 2" in atoll("run", half, inputs).stdout


def test_a_program_without_kernels_has_none_to_dump(tmp_path):
    program = tmp_path / "p.mlir"
    program.write_text(PROGRAM)
    done = atoll("dump", "--mosaic", program)
    assert done.returncode == 1 and f"{program}: the program calls no Pallas kernel" in done.stderr


def test_options_and_values_are_checked(tmp_path):
    """Every option that a command's help shows, without its value, with an empty one, misspelt."""
    program = tmp_path / "p.mlir"
    program.write_text(PROGRAM)
    commands = re.findall(r"^  (\w+) ", atoll("--help").stdout, re.M)
    assert {"run", "dump", "estimate", "profile", "cost", "config", "doctor"} <= set(commands)
    tried = 0
    for command in commands:
        usage = atoll(command, "--help").stdout
        for name, value in set(re.findall(r"(--[a-z-]+)(=\S)?", usage)):
            cases = [([name + "x"], "unknown option"), ([name + "=1"], "takes no value")]
            if value:
                cases = [([name], "needs a value"), ([name + "="], "needs a value"), ([name, "--json"], "needs a value"),
                         ([name[:-1] + "=1"], f"did you mean {name}?")]
            for arguments, said in cases:
                done = atoll(command, program, *arguments)
                assert done.returncode == 2 and said in done.stderr, (command, arguments, done.stderr)
                tried += 1
    assert tried > 100
    for arguments, said in ((("run", program, "--repeat=-3"), "--repeat=-3 is not a whole number"),
                            (("run", program, "--repeat=0"), "1..1000000"),
                            (("estimate", program, "--rows=many"), "--rows=many is not a whole number"),
                            (("estimate", program, "--interp=best"), "seed|xla|atoll"),
                            (("estimte", program), "did you mean estimate?")):
        done = atoll(*arguments)
        assert done.returncode == 2 and said in done.stderr, done.stderr
