"""Custom calls that XLA's clients know by name: image resizing, ops of MHLO. Values beside numpy's."""
import math
import os
import pathlib
import subprocess

import numpy as np
import pytest

COMMAND = str(pathlib.Path(os.environ["ATOLL_LIBRARY"]).parent / "atoll")


def run(tmp_path, program, **arrays):
    text, inputs, results = tmp_path / "p.mlir", tmp_path / "in.npz", tmp_path / "out.npz"
    text.write_text(program)
    np.savez(inputs, **arrays)
    done = subprocess.run([COMMAND, "run", f"--out={results}", str(text), str(inputs)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.load(results)["out0"]


def weights(size_in, size_out, bilinear, align, half):
    """The matrix of a resize along one dimension, by its definition."""
    m = np.zeros((size_out, size_in), np.float32)
    scale = (size_in - 1) / (size_out - 1) if align and size_out > 1 else size_in / size_out
    for i in range(size_out):
        at = (i + 0.5 * half) * scale
        if bilinear:
            at = min(max(at - 0.5 * half, 0), size_in - 1)
            low = math.floor(at)
            m[i, low] += 1 - (at - low)
            m[i, min(low + 1, size_in - 1)] += at - low
        else:
            m[i, min(math.floor(at + 0.5) if align else math.floor(at), size_in - 1)] = 1
    return m


def call(target, align, half, before, after):
    shape = "x".join
    one, two = shape(map(str, before)), shape(map(str, after))
    return f"""func.func @main(%x: tensor<{one}xf32>) -> tensor<{two}xf32> {{
      %0 = stablehlo.custom_call @{target}(%x) {{backend_config = "\\22{int(align)}{int(half)}\\22"}} :
        (tensor<{one}xf32>) -> tensor<{two}xf32>
      return %0 : tensor<{two}xf32>
    }}"""


@pytest.mark.parametrize("align,half", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("target", ["ResizeBilinear", "ResizeNearest"])
@pytest.mark.parametrize("size", [(7, 3), (2, 9), (5, 6)])
def test_resize_and_its_gradient(tmp_path, target, align, half, size):
    bilinear = target == "ResizeBilinear"
    small, large = (2, 5, 6, 3), (2, *size, 3)
    rows, columns = (weights(small[d], large[d], bilinear, align, half) for d in (1, 2))
    x, y = (np.random.default_rng(1).normal(size=shape).astype(np.float32) for shape in (small, large))
    np.testing.assert_allclose(run(tmp_path, call(target, align, half, small, large), x=x),
                               np.einsum("nhwc,ah,bw->nabc", x, rows, columns), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run(tmp_path, call(target + "Grad", align, half, large, small), x=y),
                               np.einsum("nabc,ah,bw->nhwc", y, rows, columns), rtol=1e-5, atol=1e-5)


def test_what_is_not_a_number_stays_where_it_is(tmp_path):
    x = np.ones((1, 4, 4, 1), np.float32)
    x[0, 0, 0, 0] = np.nan
    got = run(tmp_path, call("ResizeNearest", False, False, x.shape, (1, 8, 8, 1)), x=x)
    assert np.isnan(got).sum() == 4


def test_ops_of_mhlo(tmp_path):
    got = run(tmp_path, """func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
      %0 = stablehlo.custom_call @mhlo.erf(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<5xf32>) -> tensor<5xf32>
      return %0 : tensor<5xf32>
    }""", x=np.linspace(-2, 2, 5, dtype=np.float32))
    np.testing.assert_allclose(got, [math.erf(v) for v in np.linspace(-2, 2, 5)], rtol=1e-6)


WITHOUT_RESULTS = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %y = stablehlo.sine %x : tensor<4xf32>
  stablehlo.custom_call @{}(%y) {{has_side_effect = true}} : (tensor<4xf32>) -> ()
  return %x : tensor<4xf32>
}}"""


@pytest.mark.parametrize("target", ["v6e:1x1", "v5p:1x1x1"])
def test_a_sink_keeps_what_it_is_given(tmp_path, monkeypatch, target):
    monkeypatch.setenv("ATOLL_TARGET", target)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run(tmp_path, WITHOUT_RESULTS.format("dce_sink"), x=x), x)


def test_calls_that_nobody_serves_are_refused_before_the_program_runs(tmp_path):
    (tmp_path / "p.mlir").write_text(WITHOUT_RESULTS.format("nobody"))
    np.savez(tmp_path / "in.npz", x=np.zeros(4, np.float32))
    done = subprocess.run([COMMAND, "run", "--repeat=3", str(tmp_path / "p.mlir"), str(tmp_path / "in.npz")],
                          capture_output=True, text=True)
    assert done.returncode != 0 and 'no handler is registered for the custom call "nobody"' in done.stderr, done.stderr
