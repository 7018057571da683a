"""`atoll debug` and atoll.debug: planted defects, refs, loops, several cores, scripts, and that nothing changes without it."""
import os
import pathlib
import pty
import random
import re
import subprocess
import sys

import numpy as np
import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tools"), str(TOP / "python")]
import check_planted  # noqa: E402

from atoll import _debug_command, _debug_names, debug  # noqa: E402

COMMAND = str(pathlib.Path(os.environ["ATOLL_LIBRARY"]).parent / "atoll")
KERNELS = """
import functools
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def double(v):
  return v * 2  # in the function

def blocks(n_ref, x_ref, o_ref, acc):
  @pl.when(pl.program_id(1) == 0)
  def _():
    acc[...] = jnp.zeros_like(acc)
  def turn(i, carry):
    acc[...] += x_ref[...]  # in the loop
    return carry
  jax.lax.fori_loop(0, n_ref[0], turn, 0)
  def scope(part):
    part[...] = double(acc[...])  # in the scope
    o_ref[...] = part[...]  # the store
  pl.run_scoped(scope, pltpu.VMEM(acc.shape, acc.dtype))

x = jnp.arange(32 * 256, dtype=jnp.float32).reshape(32, 256)
spec = pltpu.PrefetchScalarGridSpec(
    num_scalar_prefetch=1, grid=(4, 2), in_specs=[pl.BlockSpec((8, 128), lambda i, j, n: (i, j))],
    out_specs=pl.BlockSpec((8, 128), lambda i, j, n: (i, j)), scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32)])
f = jax.jit(pl.pallas_call(blocks, grid_spec=spec, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)))
n = jnp.array([3], jnp.int32)
"""


def line_of(code, mark):
    return next(i for i, line in enumerate(code.split("\n"), 1) if mark in line)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "blocks.py"
    path.write_text(KERNELS + "jax.block_until_ready(f(n, x))\nprint('done')\n")
    return path


def run(program, *commands, args=(), stdin=None, **env):
    options = [f"--eval={c}" for c in commands] + ([] if stdin is not None else ["--batch"])
    return subprocess.run([COMMAND, "debug", *options, *(["-x", "-"] if stdin is not None else []), str(program), *args],
                          input=stdin, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(TOP / "python"), **env})


# ---- Planted defects
@pytest.fixture
def planted(tmp_path):
    def start(module, name, *commands):
        checker = check_planted.Checker(COMMAND, tmp_path)
        return run(checker.program, *commands, args=[module, "defect", name], ATOLL_TARGET=check_planted.TARGETS[module])
    return start


def place_of(name, module="defects"):
    text = (TOP / "test" / "pallas" / f"{module}.py").read_text()
    return line_of(text, f"# here: {name}")


def test_a_race_with_a_copy(planted):
    here = place_of("copy_is_read_before_the_wait")
    done = planted("defects", "copy_is_read_before_the_wait", f"break defects.py:{here}", "run", "info copies",
                   "print s[0, :3]", "info semaphores", "continue", "where", "info refs", "continue")
    out = done.stdout
    assert done.returncode == 1, out + done.stderr
    assert f"defects.py:{here}" in out and "a check failed: kernel copy_is_read_before_the_wait: race" in out
    assert re.search(r"x\[0:8, 0:128\] -> s\[0:8, 0:128\], 4096 bytes, started by core 0.* at .*defects\.py:\d+", out), out
    assert "sem = 4096, last signal at" in out
    assert "s: f32[8,128] in VMEM, scratch" in out and "o: f32[8,128] in VMEM, output" in out
    assert out.count("[1. 1. 1.]") == 1 or "[0. 1. 2.]" in out, out


def test_a_deadlock(planted):
    here = place_of("waits_twice")
    done = planted("defects", "waits_twice", "run", "where", "info semaphores", "info cores", "continue")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "deadlock: nobody is left who could signal" in done.stdout
    assert re.search(rf"waits for sem \(0, needs \d+\) at .*defects\.py:{here}", done.stdout), done.stdout


def test_a_loop_that_leaves_the_array(planted):
    here = place_of("loop_is_one_turn_too_long")
    done = planted("defects", "loop_is_one_turn_too_long", "run", "where", "print o[24:, 0] - x[24:, 0]", "info refs")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "out of bounds" in done.stdout and re.search(rf"#0 \S*test/pallas/defects.py:{here} ", done.stdout)
    assert "turn 4 of the loop at" in done.stdout and "[1. 1. 1. 1. 1. 1. 1. 1.]" in done.stdout, done.stdout


def test_what_a_second_run_finds(planted):
    here = place_of("half_of_scratch_is_filled")
    done = planted("defects", "half_of_scratch_is_filled", "run", "where", f"break defects.py:{here}", "run", "print s[2:6, 0]",
                   "print x[2:6, 0]")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the kernel has ended" in done.stdout and "error: no core is stopped" in done.stdout
    said = [line for line in done.stdout.split("\n") if line.startswith("[") and line.endswith("]")]
    assert re.fullmatch(r"\[\S+ +\S+ +nan +nan\]", said[0]) and "nan" not in said[1], done.stdout


def test_a_deadlock_of_chips(planted):
    text = (TOP / "test" / "pallas" / "defects.py").read_text()
    name = re.search(r'@kernel\("of device 1 waits".*\n(?:.*\n)*?def (\w+)', text)[1]
    done = planted("defects", name, "run", "info cores", "core 1", "info semaphores", "core 2", "info refs")
    assert done.returncode == 1 and "deadlock" in done.stdout, done.stdout + done.stderr
    assert re.search(r"core \d of device 1, .*waits for ", done.stdout), done.stdout


# ---- Breakpoints and steps
def test_lines_loops_scopes_and_prefetched_scalars(program):
    loop, scope, store = (line_of(KERNELS, m) for m in ("# in the loop", "# in the scope", "# the store"))
    done = run(program, f"break blocks.py:{loop} if grid == (1, 1)", "run", "where", "print acc[0, :2]", "continue", "where",
               "print acc[0, :2]", "print n_ref[...]", "delete", f"break {store}", "continue", "info refs", "print part[0, :2]",
               "print acc[0, :2] * 2", "delete", "continue")
    out = done.stdout
    assert done.returncode == 0, out + done.stderr
    assert "turn 0 of the loop at" in out and "turn 1 of the loop at" in out
    assert "part: f32[8,128] in VMEM, scoped" in out and "n_ref: i32[1] in SMEM, prefetched scalars" in out
    assert "x_ref: f32[8,128] in VMEM, input, block (1, 1) of [32,256]" in out
    # Six turns of grid (1, 0) and (1, 1) add up what their blocks hold.
    x = np.arange(32 * 256, dtype=np.float32).reshape(32, 256)
    a, b = 3 * x[8, :2], 3 * x[8, :2] + x[8, 128:130]
    assert out.index(str(a)) < out.index(str(b)), out
    total = str(3 * x[8, :2] * 2 + 3 * x[8, 128:130] * 2)
    assert out.count(total) == 2, out
    assert out.rstrip().endswith("the program has ended with status 0") and "done" in out


def test_steps_of_the_grid(program):
    done = run(program, "break grid (2, *)", "run", "info grid", "print core.grid", "continue", "print core.grid", "delete",
               "grid-step", "print core.grid", "grid-step", "print core.grid", "grid-step 2", "print core.grid")
    assert done.returncode == 3 and "the program has ended with status 0" in done.stdout, done.stdout + done.stderr
    said = [line for line in done.stdout.split("\n") if re.fullmatch(r"\(\d, \d\)", line)]
    assert said == ["(2, 0)", "(2, 1)", "(3, 0)", "(3, 1)"], done.stdout
    assert "x_ref: block (2, 0)" in done.stdout and "step 5 of 8" in done.stdout


def test_step_next_and_finish(program):
    inside, scope, store = (line_of(KERNELS, m) for m in ("# in the function", "# in the scope", "# the store"))
    shown = [scope, inside, store, scope, store]
    done = run(program, f"break {scope}", "run", "step", "finish", "delete", f"tbreak {scope}", "continue", "next", "quit")
    lines = [int(m[1]) for m in re.finditer(r"^blocks, core 0.*:(\d+)$", done.stdout, re.M)]
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[:2] == shown[:2] and lines[-1] == store and scope in lines[2:], (lines, shown, done.stdout)


def test_a_watched_ref(program):
    done = run(program, "break grid (0, 0)", "run", "watch acc[0, 0:2]", "delete 1", "continue", "continue", "continue", "info b")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[1]: 0.0 -> 1.0" in done.stdout and "[1]: 1.0 -> 2.0" in done.stdout, done.stdout
    assert "2: watch acc[0, 0:2], hit 3 times" in done.stdout


def test_commands_of_a_file_and_what_is_wrong_with_them(program, tmp_path):
    script = tmp_path / "commands"
    script.write_text("# a comment\n\nbreak nowhere:\nprint x\nb grid (a)\nfrobnicate\nbreak 5 if (\nrun\nstep\n")
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(TOP / "python")}
    done = subprocess.run([COMMAND, "debug", "-x", script, "--batch", program], capture_output=True, text=True, env=env)
    assert done.returncode == 3 and done.stdout.count("error: ") == 6, done.stdout
    done = run(program, stdin="break grid (0, 0)\nrun\nlist\n")
    assert done.returncode == 0 and "(atoll) list" in done.stdout and " >" in done.stdout, done.stdout
    assert run(tmp_path / "absent.py").returncode == 2
    assert subprocess.run([COMMAND, "debug", "--evil=x", program], capture_output=True).returncode == 2


def test_expressions_are_python(program):
    done = run(program, "break grid (0, 1)", "run", "print int(np.isnan(acc[...]).sum()), float(x_ref[...].mean())",
               "print sorted({type(acc).__name__, 'a'}), acc[0, 0].item()", "print [i for i in range(3) if isinstance(i, int)]")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(0, 1087.5)" in done.stdout, done.stdout
    assert "(['Ref', 'a'], " in done.stdout and "[0, 1, 2]" in done.stdout


def test_breakpoints_that_nothing_reaches_are_told(program):
    count = len(program.read_text().splitlines())
    done = run(program, f"break {count + 1}", "break nowhere.py:3", "break nothing", "break grid (0, 0)", "run", "continue")
    assert done.returncode == 3 and f"error: {program} has {count} lines" in done.stdout, done.stdout
    missed = re.findall(r"^breakpoint (\d) was never reached: (.*)$", done.stdout, re.M)
    assert missed == [("1", "nowhere.py:3"), ("2", "kernel nothing")], done.stdout


def test_a_program_that_fails_by_itself(tmp_path):
    program = tmp_path / "p.py"
    program.write_text("import sys\nsys.exit(7)\n")
    done = run(program, "run", "print x", "continue")
    assert done.returncode == 1 and "ended with status 7" in done.stdout


# ---- Several cores
CHIPS = """
import functools
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def ring(x, o, sent, arrived):
  me, n = jax.lax.axis_index("x"), jax.lax.axis_size("x")
  c = pltpu.make_async_remote_copy(x, o, sent, arrived, device_id=(me + 1) % n, device_id_type=pltpu.DeviceIdType.LOGICAL)
  c.start()
  c.wait()  # the wait

mesh = jax.sharding.Mesh(jax.devices(), ("x",))
P = jax.sharding.PartitionSpec
call = pl.pallas_call(ring, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
                      in_specs=[pl.BlockSpec(memory_space=pl.ANY)], out_specs=pl.BlockSpec(memory_space=pl.ANY),
                      scratch_shapes=[pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA])
f = jax.jit(jax.shard_map(call, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
x = jnp.repeat(jnp.arange(len(jax.devices())), 8)[:, None] * jnp.ones((1, 128), jnp.float32)
jax.block_until_ready(f(x))
"""


def test_copies_between_chips(tmp_path):
    program = tmp_path / "ring.py"
    program.write_text(CHIPS)
    wait = line_of(CHIPS, "# the wait")
    done = run(program, f"break {wait}", "run", "info cores", "info copies", "print x[0, 0]", "continue", "info cores", "core 2",
               "print o[0, :2]", "delete", "continue", ATOLL_TARGET="v5e:2x2")
    out = done.stdout
    assert re.search(r"^x\[0:8, 0:128\] -> o\[0:8, 0:128\] of core 0 of device \d, 4096 bytes", out, re.M), out
    assert done.returncode == 0, out + done.stderr
    for device in range(4):
        assert re.search(rf"\d: core 0 of device {device}, ring: ", out), out
    assert "x[0:8, 0:128]" in out and "started by core 0 of device" in out
    assert "[0. 0.]" in out, out  # of device 0, which its copy brought to device 1
    again = run(program, f"break {wait}", "run", "info cores", "info copies", "print x[0, 0]", "continue", "info cores",
                "core 2", "print o[0, :2]", "delete", "continue", ATOLL_TARGET="v5e:2x2")
    assert again.stdout == out  # the same way each time


PIPELINE = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def inner(a, b):
  b[...] = a[...] * 2  # in the pipeline

def outer(x, o):
  block = pl.BlockSpec((8, 128), lambda i, j: (i, j))
  pltpu.emit_pipeline(inner, grid=(2, 2), in_specs=[block], out_specs=[block])(x, o)

x = jnp.ones((16, 256))
everywhere = pl.BlockSpec(memory_space=pl.ANY)
f = jax.jit(pl.pallas_call(outer, in_specs=[everywhere], out_specs=everywhere, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)))
jax.block_until_ready(f(x))
"""


def test_copies_into_allocations_of_a_pipeline(tmp_path):
    program = tmp_path / "pipeline.py"
    program.write_text(PIPELINE)
    done = run(program, f"break {line_of(PIPELINE, '# in the pipeline')}", "run", "info copies")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^x\[0:8, 128:256\] -> scoped\d\[\d:\d, 0:8, 0:128\], 4096 bytes", done.stdout, re.M), done.stdout


# ---- Python
def test_a_session_in_the_program(tmp_path, python):
    program = tmp_path / "inside.py"
    store = line_of(KERNELS, "# the store")
    program.write_text(KERNELS + f"""
import numpy as np
import atoll.debug
seen, told = [], []
def look(stop):
  seen.append((stop.core.grid, float(stop["part"][0, 0]), stop["x_ref"].shape, stop["x_ref"].array.shape, stop.place.line))
  assert np.asarray(stop["x_ref"]).dtype == np.float32 and stop.breakpoint.hits == len(seen)
plain = np.asarray(f(n, x))
with atoll.debug.session() as s:
  s.break_at(f"{{__file__}}:{store}", look)
  np.testing.assert_array_equal(np.asarray(f(n, x)), plain)
assert len(seen) == 8 and seen[3][0] == (1, 1) and seen[3][4] == {store}, seen
assert seen[2][1] == 6 * float(x[8, 0]) and seen[0][2:4] == ((8, 128), (32, 256)), seen
count = len(seen)
jax.block_until_ready(f(n, x))
assert len(seen) == count  # after the session it does not stop

# Again, with steps; what a callback raises comes out.
lines = []
def step(stop):
  lines.append(stop.place.line)
  return "step" if len(lines) < 4 else None
with atoll.debug.session() as s:
  s.break_grid((0, None), step)
  jax.block_until_ready(f(n, x))
assert len(lines) == 5 and len(set(lines[:4])) > 1, lines  # three steps, and grid (0, 1)
try:
  with atoll.debug.session() as s:
    s.break_kernel("blocks", lambda stop: 1 / 0)
    jax.block_until_ready(f(n, x))
except ZeroDivisionError:
  told.append("raised")
def bad(x, o):
  o[...] = jnp.log(x[...] - 1e6)
values = np.asarray(x)
with atoll.debug.session(on_failure=lambda stop: told.append((stop.why, stop.core.kernel, bool((stop["x"][...] == values).all())))) as s:
  try: jax.block_until_ready(pl.pallas_call(bad, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x))
  except jax.errors.JaxRuntimeError: told.append("failed")
assert told == ["raised", ("failure", "bad", True), "failed"], told
print("right")
""")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(TOP / "python"), "ATOLL_CHECK": ""})
    assert done.returncode == 0 and done.stdout.endswith("right\n"), done.stdout + done.stderr


def test_a_debugger_that_is_not_there(tmp_path):
    program = tmp_path / "blocks.py"
    program.write_text(KERNELS + "jax.block_until_ready(f(n, x))\n")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "ATOLL_DEBUG": str(tmp_path)})
    assert done.returncode != 0 and "no debugger listens at" in done.stderr, done.stderr


def test_a_debugger_that_goes_away_leaves_the_program_running(program):
    d = debug.Debugger()
    env = {**os.environ, **d.environment()}
    child = subprocess.Popen([sys.executable, program], env=env, stdout=subprocess.PIPE, text=True)
    d.break_kernel("blocks")
    stop = d.go()
    assert stop.why == "break" and stop.kernel == "blocks"
    d.close()
    assert child.communicate(timeout=300)[0] == "done\n" and child.returncode == 0


# ---- Reading
def test_names_of_refs(tmp_path):
    path = tmp_path / "k.py"
    path.write_text("""
def kernel(scale, x, o, s, *, bm=8):
  def inner(a):
    a[...] = 1
  pl.run_scoped(inner, pltpu.VMEM())
  @functools.partial(pl.run_scoped, z=1, b=2)
  def other(b, z):
    b[...] = z[...]
def starred(x, *outs, bm):
  x[...]
""")
    name = str(path)
    assert _debug_names.argument_names(name, 4, "kernel", 3) == ["x", "o", "s"]
    assert _debug_names.argument_names(name, 4, "other name", 3) == ["x", "o", "s"]
    assert _debug_names.argument_names(name, 10, "starred", 3) == ["x", "outs0", "outs1"]
    assert _debug_names.argument_names(name, 4, "kernel", 9) is None
    assert _debug_names.argument_names(name, 40, "kernel", 3) is None
    assert _debug_names.scope_names(name, 5, 1) == ["a"] and _debug_names.scope_names(name, 6, 2) == ["b", "z"]
    assert _debug_names.scope_names(name, 2, 1) is None
    assert _debug_names.lines_of_break(name, 5) == (5, 8) and _debug_names.function_range(name, 4) == (2, 8)
    assert _debug_names.lines(str(tmp_path / "absent")) == []


def test_any_line_is_a_command_or_an_error(tmp_path):
    generator = random.Random(0)
    letters = "abc xyz[](){}:;,.*\\\"'0123456789-+=@#%\t\0é if "
    heads = [m[3:].replace("_", "-") for m in dir(_debug_command.Prompt) if m.startswith("do_") and m != "do_run"]
    d = debug.Debugger()
    with open(os.devnull, "w") as out:
        prompt = _debug_command.Prompt(d, [str(tmp_path / "absent.py")], out)
        for _ in range(4000):
            line = "".join(generator.choice(letters) for _ in range(generator.randrange(24)))
            if generator.random() < 0.7:
                line = f"{generator.choice(heads)} {line}"
            try:
                prompt.obey(line)
                prompt.complete(line, line.split(" ")[-1])
            except _debug_command.Quit:
                pass
    d.close()


def test_completion():
    d = debug.Debugger()
    prompt = _debug_command.Prompt(d, ["k.py"])
    assert prompt.complete("gr", "gr") == ["grid-step"] and "continue" in prompt.complete("", "")
    assert prompt.complete("info s", "s") == ["semaphores"] and prompt.complete("frob x", "x") == []
    d.break_grid((0,))
    assert prompt.complete("delete ", "") == ["1"]
    d.close()


def test_the_prompt_of_a_terminal(program, tmp_path):
    ours, theirs = pty.openpty()
    child = subprocess.Popen([COMMAND, "debug", program], stdin=theirs, stdout=theirs, stderr=theirs,
                             env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(TOP / "python"),
                                  "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"})
    os.close(theirs)
    said = ""

    def answer():  # up to the next prompt, or the end
        text = ""
        while not text.endswith("(atoll) "):
            try:
                text += os.read(ours, 4096).decode()
            except OSError:
                break
        return text
    answer()
    # A command is completed, and an empty line does the same again.
    for line in ("gri\t\n", "br\tgrid (0, 0)\n", "run\n", "print acc[0, 0]\n", "step\n", "\n", "quit\n"):
        os.write(ours, line.encode())
        said += answer()
    assert child.wait(timeout=60) == 3 and "error: the program does not run" in said, said
    assert "breakpoint 1: grid (0, 0)" in said and len(re.findall(r"^blocks, core 0", said, re.M)) == 3, said
    os.close(ours)
    assert (tmp_path / "atoll" / "debug_history").read_text().split("\n")[1] == "break grid (0, 0)"


# ---- Nothing changes without a debugger
def test_code_without_a_debugger_has_no_calls_of_it(tmp_path):
    program = TOP / "test" / "programs" / "kernel_product.mlir"

    def code(**env):
        done = subprocess.run([COMMAND, "dump", "--stage=llvm", program], capture_output=True, text=True, check=True,
                              env={**os.environ, "ATOLL_CACHE": "off", **env})
        return done.stdout
    plain, checked = code(), code(ATOLL_CHECK="all")
    debugged = code(ATOLL_CHECK="all", ATOLL_DEBUG=str(tmp_path))
    assert "at_core_debug" not in plain and "at_core_debug" not in checked
    assert "at_core_debug_line" in debugged
