"""Records a few training steps and a Pallas kernel with jax.profiler, and prints what XProf's
tools say of them, where XProf is installed (pip install xprof).

TPU_LIBRARY_PATH=build/release/libatoll.so python examples/record_profile.py [folder]
"""
import json
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

STEPS = 4


def double_tanh(x):
    def kernel(x, o):
        o[...] = jnp.tanh(x[...]) * 2
    block = pl.BlockSpec((128, 512), lambda i: (i, 0))
    return pl.pallas_call(kernel, grid=(4,), in_specs=[block], out_specs=block,
                          out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@jax.jit
def train_step(w, x):
    def loss(w):
        with jax.named_scope("up"):
            h = jax.nn.gelu(x @ w)
        with jax.named_scope("down"):
            return jnp.mean((h @ w.T - x) ** 2)
    value, grad = jax.value_and_grad(loss)(w)
    return w - 0.1 * grad, value


def record(folder):
    w, x = jnp.full((512, 2048), 0.01), jnp.ones((512, 512))
    step, kernel = train_step.lower(w, x).compile(), jax.jit(double_tanh).lower(x).compile()
    jax.block_until_ready((step(w, x), kernel(x)))
    with jax.profiler.trace(folder):
        for i in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=i):
                w, value = step(w, x)
                jax.block_until_ready((value, kernel(x)))
    return step


def show(folder, step):
    from xprof.convert import raw_to_tool_data as xprof
    traces = sorted(str(p) for p in Path(folder).rglob("*.xplane.pb"))[-1:]
    print("tools:", ", ".join(xprof.xspace_to_tool_names(traces)))

    def tool(name, **options):
        return json.loads(xprof.xspace_to_tool_data(traces, name, options)[0])
    steps = next(t for t in tool("overview_page") if t.get("cols") and t["cols"][0]["id"] == "stepnum")
    print(f"overview_page: {len(steps['rows'])} steps")
    table = tool("hlo_stats")
    columns = [c["id"] for c in table["cols"]]
    print("hlo_stats:")
    for row in table["rows"]:
        r = dict(zip(columns, (c["v"] for c in row["c"])))
        print(f"  {r['total_self_time']:10.0f} us {r['total_self_time_percent']:5.1f}%  {r['category']:<22}"
              f" {r['hlo_op_name']:<18} {r['tf_op_name']}")
    programs = tool("op_profile")["byProgram"]["children"]
    (train,) = [p["name"] for p in programs if p["name"].startswith("jit_train_step")]
    peak = tool("memory_viewer", module_name=train)["peakHeapMib"]
    print(f"memory_viewer: {train} takes {peak:.3f} MiB, memory_analysis() says "
          f"{step.memory_analysis().peak_memory_in_bytes / 2**20:.3f}")


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    step = record(folder)
    print("recorded into", folder)
    try:
        import xprof  # noqa: F401
    except ImportError:
        print("XProf is not installed: pip install xprof")
        return
    show(folder, step)


if __name__ == "__main__":
    main()
