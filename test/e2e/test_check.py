"""`atoll check`: planted defects and sound programs, exit statuses, and what each report holds."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tools"))
import check_planted  # noqa: E402
import sarif  # noqa: E402

COMMAND = str(pathlib.Path(os.environ["ATOLL_LIBRARY"]).parent / "atoll")
RACE = """
import sys
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def load(s):
  return s[...]  # the defect

def racy(x, o, s, sem):
  c = pltpu.make_async_copy(x, s, sem)
  c.start()
  if "sound" in sys.argv:
    c.wait()
  o[...] = load(s)
  if "sound" not in sys.argv:
    c.wait()

x = jnp.ones((8, 128))
f = pl.pallas_call(racy, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
                   scratch_shapes=[pltpu.VMEM(x.shape, x.dtype), pltpu.SemaphoreType.DMA])
try:
  jax.block_until_ready(jax.jit(f)(x))
except jax.errors.JaxRuntimeError:
  print("caught")
if "broken" in sys.argv:
  sys.exit(7)
"""
DEFECT = next(i for i, line in enumerate(RACE.split("\n"), 1) if "# the defect" in line)


def check(*args, **more):
    return subprocess.run([COMMAND, "check", *map(str, args)], capture_output=True, text=True,
                          env={**os.environ, "PYTHON": sys.executable, **more})


def run_code(tmp_path, code, *args, **more):
    program = tmp_path / "program.py"
    program.write_text(code)
    done = check("--json", program, *args, **more)
    assert done.stdout, done.stderr
    return done, json.loads(done.stdout)


@pytest.mark.parametrize("module", [*check_planted.TARGETS, *check_planted.DRAWN])
def test_planted_defects_are_reported_and_sound_twins_are_clean(module, tmp_path):
    # tools/check_planted.py takes all of them.
    checker = check_planted.Checker(COMMAND, tmp_path)
    known = checker.kernels(module)
    assert not checker.wrong(module, list(known)[::6], known)


def test_a_caught_exception_is_a_finding(tmp_path):
    done, report = run_code(tmp_path, RACE)
    assert done.returncode == 1 and "caught" in done.stderr
    [finding] = report["findings"]
    assert finding["rule"] == "race" and finding["kernel"] == "racy" and finding["level"] == "error"
    lines = [(pathlib.Path(p["file"]).name, p["line"]) for p in finding["stack"]]
    assert lines[0] == ("program.py", DEFECT)
    assert lines[1] == ("program.py", DEFECT + 7) and finding["stack"][1]["what"] == "called"
    assert finding["stack"][0]["column"] == RACE.split("\n")[DEFECT - 1].index("s[...]") + 1
    assert [p["line"] for p in finding["related"]] == [DEFECT + 4]


@pytest.mark.parametrize("words,status", [(["sound"], 0), ([], 1), (["broken"], 1), (["sound", "broken"], 3)])
def test_exit_statuses(tmp_path, words, status):
    done, report = run_code(tmp_path, RACE, *words)
    assert done.returncode == status, done.stderr
    assert report["status"] == (7 if "broken" in words else 0)
    assert report["errors"] == (0 if "sound" in words else 1)


def test_wrong_usage(tmp_path):
    program = tmp_path / "p.py"
    program.write_text("")
    for args in ([], [tmp_path / "absent.py"], ["--sariff=x", program], ["--sarif"], ["--json=1", program]):
        done = check(*args)
        assert done.returncode == 2 and not done.stdout, (args, done)


def test_files_on_the_way_go_where_tmpdir_says(tmp_path):
    program, folder = tmp_path / "p.py", tmp_path / "t"
    program.write_text("import os\nprint(os.environ['ATOLL_FINDINGS'])\n")
    folder.mkdir()
    done = check(program, TMPDIR=str(folder))
    assert done.returncode == 0 and done.stdout.startswith(f"{folder}/"), done
    assert not list(folder.iterdir()), "they are gone afterwards"
    done = check(program, TMPDIR=str(tmp_path / "absent"))
    assert done.returncode == 3 and f"cannot make a folder in {tmp_path}/absent" in done.stderr
    assert "hint: set TMPDIR" in done.stderr


def test_the_arguments_behind_a_program_are_its_own(tmp_path):
    done, report = run_code(tmp_path, "import sys\nprint(sys.argv[1:])\n", "--sarif=x", "--strict", "-v")
    assert done.returncode == 0 and "['--sarif=x', '--strict', '-v']" in done.stderr
    assert not (tmp_path / "x").exists() and not report["findings"]


def test_a_signal_ends_the_program(tmp_path):
    done, report = run_code(tmp_path, "import os\nos.kill(os.getpid(), 9)\n")
    assert done.returncode == 3 and report["status"] == 128 + 9


def test_text_quotes_the_source(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(RACE)
    done = check(program)
    assert done.returncode == 1
    text = done.stdout.split("\n")
    quoted = next(i for i, line in enumerate(text) if "# the defect" in line)
    assert text[quoted + 1].index("^") == text[quoted].index("s[...]")
    assert f"--> {program}:{DEFECT}:10 in kernel racy" in done.stdout
    assert "1 error, 0 warnings" in done.stdout


ENDLESS = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
def spins(x, o):
  i = jax.lax.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 8, jnp.int32(0))  # the loop
  o[...] = x[...] * i.astype(jnp.float32)
x = jnp.ones((8, 128))
try: jax.block_until_ready(jax.jit(pl.pallas_call(spins, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)))(x))
except jax.errors.JaxRuntimeError: pass
"""


def test_a_loop_without_an_end_is_found_without_a_knob(tmp_path):
    done, report = run_code(tmp_path, ENDLESS)
    assert done.returncode == 1, done.stderr
    [finding] = report["findings"]
    assert finding["rule"] == "endless" and finding["stack"][0]["line"] == 5, finding
    assert "stopped after 16777216 turns" in finding["message"]


def test_nan_outside_kernels(tmp_path):
    code = "import jax, jax.numpy as jnp\nf = jax.jit(lambda x: jnp.log(x) + 1)\ntry: f(jnp.float32(-1)).block_until_ready()\nexcept Exception: pass\n"
    done, report = run_code(tmp_path, code)
    assert done.returncode == 1
    [finding] = report["findings"]
    assert finding["rule"] == "nan" and finding["stack"][0]["line"] == 2


def test_memory_overflow(tmp_path):
    code = "import jax.numpy as jnp\ntry: jnp.zeros((1 << 22,), jnp.float32).block_until_ready()\nexcept Exception: pass\n"
    done, report = run_code(tmp_path, code, ATOLL_HBM="1M")
    assert done.returncode == 1 and [f["rule"] for f in report["findings"]] == ["memory"], done.stdout


def test_refusals_of_the_compiler(tmp_path):
    code = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
def big(x, o):
  o[...] = x[...]
x = jnp.ones((8192, 1024))
try: jax.jit(pl.pallas_call(big, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)))(x)
except Exception: pass
"""
    done, report = run_code(tmp_path, code, ATOLL_TARGET="v5e")
    assert done.returncode == 1
    [finding] = report["findings"]
    assert finding["rule"] == "memory" and finding["kernel"] == "big" and finding["stack"], finding


@pytest.mark.parametrize("strict", [False, True])
def test_warnings_count_where_they_shall(tmp_path, strict):
    program, junit = tmp_path / "p.py", tmp_path / "j.xml"
    program.write_text("""
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
def angle(x, o):
  o[...] = jnp.arctan2(x[...], x[...])
x = jnp.ones((16, 128), jnp.bfloat16)
jax.jit(pl.pallas_call(angle, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)))(x).block_until_ready()
""")
    done = check("--json", f"--junit={junit}", *["--strict"] * strict, program, ATOLL_TARGET="v5e", ATOLL_LENIENT="1")
    report = json.loads(done.stdout)
    assert (report["errors"], report["warnings"]) == (0, 1) and report["findings"][0]["level"] == "warning", report
    assert done.returncode == strict
    suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) == strict


def test_programs_without_python(tmp_path):
    program, junit = tmp_path / "p.mlir", tmp_path / "j.xml"
    for op, status in (("log", 1), ("exponential", 0)):
        program.write_text(f"module @m {{ func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n"
                           f"  %c = stablehlo.constant dense<-1.0> : tensor<4xf32>\n  %s = stablehlo.add %x, %c : tensor<4xf32>\n"
                           f"  %0 = stablehlo.{op} %s : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}} }}\n")
        done = check(f"--junit={junit}", program)
        assert done.returncode == status, (op, done.stdout, done.stderr)
        suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
        assert int(suite.get("failures")) == status == len(suite.findall("testcase/failure"))
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
    program.write_text("no program")
    assert check(program).returncode == 1


def test_junit_of_a_program_that_fails(tmp_path):
    program, junit = tmp_path / "p.py", tmp_path / "j.xml"
    program.write_text("1 / 0\n")
    assert check("--junit", junit, program).returncode == 3
    suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
    assert suite.get("errors") == "1" and suite.find("testcase/error") is not None


def test_sarif_names_files_below_the_working_folder_from_there(tmp_path):
    program, written = tmp_path / "program.py", tmp_path / "a.sarif"
    program.write_text(RACE)
    done = subprocess.run([COMMAND, "check", "--sarif", "a.sarif", "program.py"], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHON": sys.executable})
    assert done.returncode == 1, done.stderr
    log = json.loads(written.read_text())
    assert check_planted.sarif_errors(log) == []
    [result] = log["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "program.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"]["startLine"] == DEFECT and "# the defect" in place["region"]["snippet"]["text"]


def test_what_is_wrong_with_sarif_is_found(tmp_path):
    """The validator of these tests, beside jsonschema where that is installed."""
    program, path = tmp_path / "program.py", tmp_path / "a.sarif"
    program.write_text(RACE)
    check("--sarif", path, program)
    good = path.read_text()
    assert check_planted.sarif_errors(json.loads(good)) == []
    reference = None
    if importlib.util.find_spec("jsonschema"):
        import jsonschema
        jsonschema.Draft4Validator.check_schema(sarif.SCHEMA)
        reference = jsonschema.Draft4Validator(sarif.SCHEMA)
        assert reference.is_valid(json.loads(good))

    def broken(*path, value=None):
        log = at = json.loads(good)
        for key in path[:-1]:
            at = at[key]
        if value is None:
            del at[path[-1]]
        else:
            at[path[-1]] = value
        found = sarif.errors(log)
        assert not reference or reference.is_valid(log) == (not found), (path, value, found)
        return found
    result = "runs", 0, "results", 0
    place = *result, "locations", 0, "physicalLocation"
    assert broken("version", value="2.0.0") and broken("runs") and broken("runs", value={}) and broken("run", value=[])
    assert broken("runs", 0, "tool", "driver", "name") and broken("runs", 0, "tool", "driver", "rules", 0, "id", value=1)
    assert broken(*result, "message") and broken(*result, "level", value="fatal") and broken(*result, "occurrenceCount", value=0)
    assert broken(*place, "artifactLocation", "uri", value="a b.py") and broken(*place, "region", "startLine", value=0)
    assert broken(*place, "region", "startLine", value=True) and broken(*place, "region", "line", value=1)
    assert broken(*result, "stacks", 0, "frames", value=[]) and broken("runs", 0, "invocations", 0, "executionSuccessful", value=1)
    rules = json.loads(good)["runs"][0]["tool"]["driver"]["rules"]
    assert broken("runs", 0, "tool", "driver", "rules", value=[rules[0], rules[0]])
    log = json.loads(good)
    log["runs"][0]["results"][0]["ruleId"] = "other"
    assert not sarif.errors(log) and check_planted.sarif_errors(log) == ["ruleIndex"]


def test_pages_of_kernels(tmp_path):
    folder = tmp_path / "deep" / "pages"
    program = tmp_path / "program.py"
    program.write_text(RACE)
    done = check(f"--html={folder}", program, ATOLL_TARGET="v5e")
    assert done.returncode == 1, done.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["index.html", "racy.html"]
    page = (folder / "racy.html").read_text()
    for part in ("a load from memory that a copy still writes", "# the defect", "Bound by:", "scratch 0", "vmem", "f32[8,128]",
                 "Advice", "<svg", "prefers-color-scheme:dark"):
        assert part in page, part
    assert "http" not in page and " src=" not in page and "<link" not in page
    assert 'href="racy.html"' in (folder / "index.html").read_text()


PARTS = ("Findings", "Grid", "<svg", "Bound by:", "Advice", "Memory by address", "0x0", "of VMEM's limit", "through HBM")
JAX_KERNELS = """
import jax, jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import flash_attention, matmul, megablox
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash, splash_attention_mask as masks
q = jnp.ones((1, 2, 256, 128), jnp.bfloat16)
jax.block_until_ready(flash_attention.flash_attention(q, q, q, causal=True))
mask = masks.MultiHeadMask([masks.CausalMask((256, 256))] * 2)
try: jax.block_until_ready(splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1)(q[0], q[0], q[0]))
except jax.errors.JaxRuntimeError: pass  # its scratch is outputs that a parallel dimension shares
x = jnp.ones((512, 512), jnp.float32)
jax.block_until_ready(matmul.matmul(x, x, block_shape=(256, 256), block_k=256))
jax.block_until_ready(megablox.gmm(x, jnp.ones((2, 512, 512)), jnp.array([256, 256], jnp.int32), jnp.float32))
"""


def assert_all_parts(folder, least):
    pages = [p for p in folder.iterdir() if p.name not in ("index.html", "outside~kernels.html")]
    assert len(pages) >= least, pages
    for page in pages:
        text = page.read_text()
        lacks = [part for part in PARTS if part not in text]
        assert not lacks, (page.name, lacks)
        assert "</html>" in text or text.rstrip().endswith("</body>"), page.name


def test_pages_of_jax_s_own_kernels_have_every_part(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(JAX_KERNELS)
    done = check("--html", tmp_path / "pages", program, ATOLL_TARGET="v5e")
    assert done.returncode == 1 and "1 error, 0 warnings" in done.stdout, (done.stdout, done.stderr)
    assert_all_parts(tmp_path / "pages", 4)


def test_pages_of_planted_kernels_have_every_part(tmp_path):
    checker = check_planted.Checker(COMMAND, tmp_path)
    names = ("scratch_is_read_first", "copy_is_read_before_the_wait", "wrong_slot_of_a_double_buffer", "waits_twice",
             "copy_is_never_waited_for", "half_of_scratch_is_filled")
    done = subprocess.run([COMMAND, "check", f"--html={tmp_path / 'pages'}", checker.program, "defects", "defect", *names],
                          env=checker.environment("defects"), capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert_all_parts(tmp_path / "pages", len(names))
    for page in (tmp_path / "pages").glob("*.html"):
        marked = [n for n in names if f"# here: {n}" in page.read_text()]
        assert page.name == "index.html" or marked, page.name  # its finding, with the source


def test_pages_of_kernels_with_one_name_and_of_none(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
def twice(x, o):
  o[...] = x[...] * 2
for rows in (8, 16, 8):
  x = jnp.ones((rows, 128))
  jax.jit(pl.pallas_call(twice, name="a<b", out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)))(x)
try: jax.jit(lambda x: jnp.log(x) + 1)(jnp.float32(-1)).block_until_ready()
except Exception: pass
""")
    done = check("--html", tmp_path / "pages", program)
    assert done.returncode == 1, done.stderr
    names = {p.name for p in (tmp_path / "pages").iterdir()}
    assert names == {"index.html", "a_b.html", "a_b~2.html", "outside~kernels.html"}, names
    text = (tmp_path / "pages" / "index.html").read_text()
    assert "outside kernels" in text and "<b>" not in text


@pytest.mark.parametrize("words,status", [([], 0), (["--broken"], 1)])
def test_the_example(words, status):
    done = check("--json", TOP / "examples" / "checked_kernel.py", *words)
    assert done.returncode == status, (done.stdout, done.stderr)
    assert all(f["rule"] == "race" for f in json.loads(done.stdout)["findings"])


def test_interpret_mode_is_compared(tmp_path):
    # The matrix unit rounds operands to bf16, which takes away all that differs here.
    code = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
def rounded(x, y, o):
  o[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)
columns = jnp.arange(128) % 2
x, y = jnp.ones((8, 128)) + (1 - columns) * 2.0 ** -10, jnp.ones((128, 128)) * (1 - 2.0 * columns)[:, None]
pl.pallas_call(rounded, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32))(x, y).block_until_ready()
"""
    done, report = run_code(tmp_path, code)
    assert done.returncode == 0 and not report["findings"], done.stderr
    done = check("--json", "--interpret", tmp_path / "program.py")
    assert done.returncode == 1, done.stderr
    [finding] = json.loads(done.stdout)["findings"]
    assert finding["rule"] == "interpret" and finding["kernel"] == "rounded" and finding["stack"][0]["line"] == 4, finding
