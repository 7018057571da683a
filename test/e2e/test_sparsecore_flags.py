"""The SparseCore's flags in compiler_options and LIBTPU_INIT_ARGS: each check finds
its planted defect and says nothing on a clean run."""

import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent("""
    import json, os, sys
    import numpy as np, jax, jax.numpy as jnp
    from jax.extend.mlir import ir
    from jax.interpreters import mlir
    from jax.extend import core

    DEFECT, OPTIONS = sys.argv[1], json.loads(sys.argv[2])
    N = S = 2 if os.environ.get("ATOLL_TARGET", "v6e") == "v6e" else 4
    LIMIT, B, V, D = 16, 4 * S, 8 * S, 8
    p = core.Primitive("lookup")
    p.def_abstract_eval(lambda *a: jax.core.ShapedArray((B, D), jnp.float32))

    def lower(ctx, *args):
      from jax._src.lib.mlir.dialects import hlo
      f = ir.RankedTensorType.get((B, D), ir.F32Type.get())
      config = {"sparse_dense_matmul_config": {
          "max_ids_per_partition": int(os.environ.get("LIMIT", LIMIT)),
          "max_unique_ids_per_partition": LIMIT, "sharding_strategy": 1,
          "pad_value": 2147483647}, "device_type": "DEVICE_TYPE_SPARSECORE"}
      return hlo.CustomCallOp(
          [f], args, call_target_name=ir.StringAttr.get("SparseDenseMatmulOp"),
          backend_config=ir.StringAttr.get(json.dumps(config)),
          api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1)
      ).results
    mlir.register_lowering(p, lower)

    sys.path.insert(0, os.environ["SPARSE_PATH"])
    from atoll import sparsecore as sp
    table = sp.TableSpec("t", vocabulary_size=V, embedding_dim=D,
                         max_ids_per_partition=LIMIT,
                         max_unique_ids_per_partition=LIMIT)
    features = [sp.FeatureSpec("f", table, (B, 2))]
    sp.stack_tables(features, global_device_count=1, num_sc_per_device=S)
    ids = (np.arange(2 * B).reshape(B, 2) * 5 % V).astype(np.int32)
    x, _ = sp.preprocess_sparse_dense_matmul_input(
        [ids], None, features, 1, 1, num_sc_per_device=S)
    x = x.sparse_dense_matmul_input
    pointers, e, s, g = (np.array(a["t"]) for a in x)
    w = np.random.default_rng(0).normal(size=(V, D)).astype(np.float32)
    if DEFECT == "id": e[0] = V // S + 3
    if DEFECT == "sample": s[0] = B // S
    if DEFECT == "gain": g[0] = np.nan
    if DEFECT == "row": w[:] = np.nan
    if DEFECT == "inf": w[:] = np.inf; g[:len(g) // 2] *= 0
    if DEFECT == "pointer": pointers[1] = 10_000
    f = jax.jit(lambda *a: p.bind(*a), compiler_options=OPTIONS or None)
    out = f(pointers, e, s, g, w, np.zeros((B, D), np.float32))
    out = np.asarray(out)
    if not DEFECT:
      rows = w.reshape(S, V // S, D)
      want = np.stack([sum(rows[i % S, i // S] for i in r) for r in ids])
      np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    if os.environ.get("TRACE"):
      with jax.profiler.trace(os.environ["TRACE"]):
        for _ in range(3):
          jax.block_until_ready(f(pointers, e, s, g, w, out))
      found = sp.events_of(os.environ["TRACE"])
      profile = sp.profile_of_events(found)
      assert profile.steps == 3, profile
      assert profile.sparse_seconds > 0 and profile.step_seconds > 0
      assert "SparseDenseMatmulOp" in profile.longest("SparseCore")[0][0]
      sp.write_timeline(found, os.environ["TRACE"] + "/lanes.json")
    print("ran")
""")


def run(library, tmp_path, defect="", options=None, args="", **env):
  path = tmp_path / "program.py"
  path.write_text(PROGRAM)
  import json

  here = os.path.dirname(os.path.abspath(__file__))
  base = dict(os.environ, TPU_LIBRARY_PATH=library, ATOLL_CACHE="off",
              ATOLL_LIBRARY=library, LIBTPU_INIT_ARGS=args,
              SPARSE_PATH=os.path.join(here, "..", "..", "python"), **env)
  base.pop("JAX_PLATFORMS", None)
  done = subprocess.run(
      [sys.executable, str(path), defect, json.dumps(options or {})],
      capture_output=True, text=True, env=base, timeout=300)
  return done.returncode, done.stdout + done.stderr


ALL = {
    "xla_sparse_core_enable_id_bound_check": "true",
    "xla_sc_detect_nan": "true",
    "xla_sc_assert_level": "bounds",
    "xla_sc_force_aligned_buffers": "false",
    "xla_tpu_buffer_contents_sanitizer_config":
        "cores_to_sanitize: [TC, SC_SCS, SC_TILE], sanitizer_mode: LOCAL_ONLY",
    "xla_tpu_verify_launch_id_across_cores": "true",
    "xla_sc_num_serialized_tables_to_optimize_hbm": "2",
}


def test_a_clean_run_is_silent(library, tmp_path):
  code, out = run(library, tmp_path, options=ALL)
  assert code == 0 and "ran" in out, out


@pytest.mark.parametrize("defect, option, says", [
    ("id", "xla_sparse_core_enable_id_bound_check=true", "is out of range"),
    ("sample", "xla_sparse_core_enable_id_bound_check=true", "is out of range"),
    ("gain", "xla_sc_detect_nan=true", "NaN in the gains of table"),
    ("row", "xla_sc_detect_nan=true", "NaN in the rows that go in of table"),
    ("inf", "xla_sc_detect_nan=true", "NaN in the activations of table"),
    ("pointer", "xla_sc_assert_level=bounds", "past the buffer"),
])
@pytest.mark.parametrize("how", ["options", "args"])
def test_a_planted_defect_is_found(library, tmp_path, defect, option, says, how):
  name, value = option.split("=")
  given = dict(options={name: value}) if how == "options" else dict(
      args=f"--{option}")
  code, out = run(library, tmp_path, defect, **given)
  assert code != 0 and says in out, out


def test_limits_are_checked_with_bounds(library, tmp_path):
  code, out = run(library, tmp_path, args="--xla_sc_assert_level=bounds",
                  LIMIT="1")
  assert code != 0 and "max_ids_per_partition (1)" in out, out


def test_nan_passes_without_the_check(library, tmp_path):
  code, out = run(library, tmp_path, "row")
  assert code == 0, out


def test_an_unknown_option_is_refused_by_name(library, tmp_path):
  code, out = run(library, tmp_path, options={"xla_sc_no_such_flag": "true"})
  assert code != 0 and "No such compile option: 'xla_sc_no_such_flag'" in out


def test_a_misspelt_flag_is_refused_and_others_are_listed(library, tmp_path,
                                                          monkeypatch):
  code, out = run(library, tmp_path, args="--xla_sc_detect_nans=true")
  assert code != 0 and "did you mean xla_sc_detect_nan" in out, out
  monkeypatch.setenv("ATOLL_LOG", "info")
  code, out = run(library, tmp_path, args="--xla_sc_no_such_flag=true")
  assert code == 0 and "xla_sc_no_such_flag" in out, out


def test_a_bad_value_is_refused(library, tmp_path):
  code, out = run(library, tmp_path, options={"xla_sc_detect_nan": "maybe"})
  assert code != 0 and "is not a valid bool value" in out


def test_what_the_compiler_refuses_is_refused(library, tmp_path):
  code, out = run(library, tmp_path, ATOLL_TARGET="v5e")
  assert code != 0


FDO = textwrap.dedent("""
    import os, sys
    import jax, jax.numpy as jnp, numpy as np
    from atoll import sparsecore as sp
    B, S = 64, 2
    def step(limit):
      from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_csr as csr
      pointers, buffer = np.zeros(8 * S, np.int32), 64
      z = lambda t: np.zeros(buffer, t)
      f = lambda *a: csr.tpu_sparse_dense_matmul_csr_primitive.bind(
          *a, device_batch_size=B, max_ids_per_partition=limit, max_unique_ids_per_partition=limit,
          sharding_strategy=1)
      return jax.jit(f)(pointers, z(np.int32), z(np.int32), z(np.float32), np.int32(1), np.ones((64, 8), np.float32))
    assert sp.recompiles() == (0, 0)
    step(256)
    step(256)
    with jax.profiler.trace(sys.argv[1]):
      for i in range(3): step(256).block_until_ready()
      step(300).block_until_ready()
      step(256).block_until_ready()  # known
      step(512).block_until_ready()
      jax.jit(lambda x: x + 1)(1.0)
    count, seconds = sp.recompiles()
    assert count == 2 and 0 < seconds < 60, (count, seconds)
    p = sp.profile(sys.argv[1])
    assert p.recompiles == 2 and abs(p.recompile_seconds - seconds) < 1e-5 + seconds * 1e-3, p
    p.step_seconds = 1e-4
    assert "recompiles" in [a.cause for a in sp.advise(p)], sp.advise(p)
    sp.write_timeline(sp.events_of(sys.argv[1]), sys.argv[1] + "/lanes.json")
    assert '"recompiles"' in open(sys.argv[1] + "/lanes.json").read()
""")


def test_recompiles_of_changed_limits_are_counted(python, tmp_path):
  pytest.importorskip("jax_tpu_embedding")
  source = os.path.join(os.path.dirname(__file__), "..", "..", "python")
  p = python(f"import sys; sys.argv.append({str(tmp_path)!r}); sys.path.insert(0, {source!r})\n" + FDO,
             env={"ATOLL_TARGET": "v6e", "ATOLL_CACHE_DIR": str(tmp_path / "cache")})
  assert p.returncode == 0, p.stdout + p.stderr


def test_a_trace_has_a_lane_for_the_sparsecores(library, tmp_path):
  import json

  code, out = run(library, tmp_path, TRACE=str(tmp_path / "trace"))
  assert code == 0, out
  lanes = json.loads((tmp_path / "trace" / "lanes.json").read_text())
  names = {e["args"]["name"] for e in lanes["traceEvents"] if e["ph"] == "M"}
  assert {"SparseCore 0", "SparseCore 1", "programs", "TPU:0"} <= names


LIMITED = textwrap.dedent("""
    import json, os, sys
    import numpy as np, jax, jax.numpy as jnp
    sys.path.insert(0, os.environ["SPARSE_PATH"])
    from atoll import sparsecore as sp
    S, B, V, D = 2, 64, 512, 8
    spec = sp.TableSpec("t", V, D, max_ids_per_partition=256, max_unique_ids_per_partition=256)
    features = [sp.FeatureSpec("f", spec, (B, 3))]
    sp.stack_tables(features, global_device_count=1, num_sc_per_device=S)
    ids = np.random.default_rng(0).integers(0, V, (B, 3)).astype(np.int32)
    x, _ = sp.preprocess_sparse_dense_matmul_input([ids], None, features, 1, 1, num_sc_per_device=S)
    x = [np.asarray(a["t"]) for a in x.sparse_dense_matmul_input]
    config = {"max_ids_per_partition": 256, "max_unique_ids_per_partition": 256, "sharding_strategy": 1}
    call = jax.ffi.ffi_call("SparseDenseMatmulOp", jax.ShapeDtypeStruct((B, D), jnp.float32), custom_call_api_version=1,
                            legacy_backend_config=json.dumps({"sparse_dense_matmul_config": config}))
    lookup = jax.jit(lambda ids, tables: call(*ids, tables["t"], jnp.zeros((B, D))))
    args = x, {"t": np.ones((V, D), np.float32)}
    try:
      np.asarray(lookup(*args))
      print("temporaries", lookup.lower(*args).compile().memory_analysis().temp_size_in_bytes)
    except Exception as e:
      print(e)
""")


@pytest.mark.parametrize("text,says", [
    (None, "xla_sparse_core_max_ids_file .*: No such file"),
    ({"t": (16, 16)}, r"max_ids_per_partition \(16\)"),
    ({"t": (256, 20)}, "max_unique_ids_per_partition is 20"),
    ({"other": (1, 1)}, "temporaries"),
    ({"t": (4096, 4096)}, "temporaries"),
    ("{}", "xla_sparse_core_max_ids_file .*: its format is not"),
])
def test_a_limits_file_acts_for_a_program_that_does_not_know_of_it(tmp_path, text, says):
  """The file's limits take the place of the program's: they are checked, and size the memory."""
  import json
  import re
  path = tmp_path / "limits.json"
  if isinstance(text, dict):
    text = json.dumps({"format": "atoll sparsecore limits 1",
                       "tables": {k: {"max_ids_per_partition": a, "max_unique_ids_per_partition": b} for k, (a, b) in text.items()}})
  if text is not None:
    path.write_text(text)

  def run(flags):
    env = {**os.environ, "ATOLL_TARGET": "v6e", "ATOLL_CACHE": "off", "JAX_PLATFORMS": "tpu,cpu", "LIBTPU_INIT_ARGS": flags,
           "SPARSE_PATH": os.path.join(os.path.dirname(__file__), "..", "..", "python")}
    p = subprocess.run([sys.executable, "-c", LIMITED], env=env, capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, p.stderr
    return p.stdout
  got = run(f"--xla_sparse_core_max_ids_file={path} --xla_sc_assert_level=bounds")
  assert re.search(says, got), got
  if isinstance(text, str) and '"t"' in text and "4096" in text:
    plain = int(run("").split()[1])
    assert int(got.split()[1]) > 4 * plain
