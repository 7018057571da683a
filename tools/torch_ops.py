"""Checks of single ops, made from PyTorch's table of ops: `tools/torch_tests.py ops` runs them.

A check is an op, its variant and a type: the first sample inputs of PyTorch's own generators, the op on the device and
on the CPU, results compared; where PyTorch differentiates the op, gradients too. A worker process runs them one after
the other and is replaced when it ends. What the client itself refuses (no kernel of its own for the op, no such type)
never reaches Atoll and is counted apart.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import zlib

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "build" / "torch"
SAMPLES = 4
TYPES = ["float32", "bfloat16", "float16", "int32", "int64", "int8", "uint8", "bool", "complex64"]
# Results that are random, undefined, or one choice among many.
FREE = re.compile(r"rand|normal|dropout|multinomial|bernoulli|cauchy|exponential|geometric|poisson|uniform|empty|resize_|"
                  r"svd|eig|qr|lobpcg|pca_lowrank|geqrf|ormqr|householder|resize_as|alpha|rrelu|fractional|"
                  r"sparse|jiterator|to_sparse|new_empty|linalg_lstsq|linalg.lstsq|ldl|lu_factor|linalg.lu|\blu\b|"
                  r"fused|_flash|_efficient|nested|masked.sort|item|argsort|msort|unique|as_strided.partial_views|"
                  r"topk/(u?int8|bool)")
TOLERANCE = {"float32": 2e-4, "complex64": 2e-4, "bfloat16": 3e-2, "float16": 4e-3}
# What a client says of ops and types that it has nothing for.
REFUSALS = re.compile(r"Could not run 'aten::|not implemented for|not currently supported|is not supported|"
                      r"[Uu]nsupported (data ?type|dtype|scalar type)|NotImplementedError|not yet implemented|"
                      r"does not support|Expected one of|not supported|expected the (input )?dtype|expected index to be|"
                      r"to be on cpu|exceeds tensor size", re.S)
OURS = re.compile(r"^(INTERNAL|UNIMPLEMENTED|INVALID_ARGUMENT)|detail:|hint:")


def device_of(client):
    """The client's device. torch_tpu looks for a PCI device first; it is asked to start without one."""
    if client == "torch_xla":
        import torch_xla
        return torch_xla.device()
    import torch
    import torch_tpu  # noqa: F401
    from torch_tpu import _loader
    _loader._init_device("tpu")
    return torch.device("tpu")


def checks(salt):
    """All checks by name, in the order of a hash."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    found = {}
    for op in op_db:
        for name in TYPES:
            full = f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''}/{name}"
            if not FREE.search(full) and op.supports_dtype(getattr(torch, name), "cpu"):
                found[full] = (op, getattr(torch, name))
    order = sorted(found, key=lambda name: (zlib.crc32((name + salt).encode()), name))
    return {name: found[name] for name in order}


def flat(value):
    import torch
    leaves = torch.utils._pytree.tree_leaves(value)
    return [v for v in leaves if isinstance(v, torch.Tensor)]


def moved(value, device, types):
    """Inputs on the device, those with gradients as leaves there. types: {type: the one to take instead}."""
    import torch

    def one(v):
        if isinstance(v, torch.dtype):
            return types.get(v, v)
        if not isinstance(v, torch.Tensor):
            return v
        return v.detach().to(device=device, dtype=types.get(v.dtype, v.dtype)).requires_grad_(v.requires_grad)
    return torch.utils._pytree.tree_map(one, value)


def outcome(op, sample, device, gradient, types={}):
    """Results and gradients, on the CPU."""
    import torch
    x, args, kwargs = (moved(part, device, types) for part in (sample.input, sample.args, sample.kwargs))
    out = op(x, *args, **kwargs)
    out = sample.output_process_fn_grad(out) if gradient else out
    results = flat(out)
    said = [r.detach().cpu() for r in results]
    if not gradient:
        return said, []
    leaves = [v for v in flat((x, args, kwargs)) if v.requires_grad]
    ends = [r for r in results if r.requires_grad]
    if not ends or not leaves:
        return said, []
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(r.shape, generator=generator).to(torch.bfloat16).to(r.dtype).to(device) for r in ends]
    grads = torch.autograd.grad(ends, leaves, weights, allow_unused=True)
    return said, [None if g is None else g.detach().cpu() for g in grads]


def difference(got, want, tolerance, exact_type=True):
    """What is different, or ''."""
    import torch
    if (got is None) != (want is None):
        return "there is one and not the other"
    if got is None:
        return ""
    if exact_type and got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} and not {want.dtype}{list(want.shape)}"
    if not want.dtype.is_floating_point and not want.dtype.is_complex:
        wrong = int((got != want).sum())
        return f"{wrong} of {want.numel()} elements differ" if wrong else ""
    wide = torch.complex128 if want.dtype.is_complex else torch.float64
    finite = want[torch.isfinite(want)]
    scale = float(finite.abs().to(torch.float64).mean()) if finite.numel() else 0.0
    close = torch.isclose(got.to(wide), want.to(wide), rtol=tolerance, atol=tolerance * max(scale, 0.05), equal_nan=True)
    if bool(close.all()):
        return ""
    first = int((~close).flatten().nonzero()[0])
    return (f"{int((~close).sum())} of {want.numel()} elements differ, first {got.flatten()[first].item()} "
            f"and not {want.flatten()[first].item()}")


def compare(got, want, tolerance, exact_type=True):
    """What is different between two outcomes, or ''."""
    for what, mine, theirs in zip(("result", "gradient"), got, want):
        if len(mine) != len(theirs):
            return f"{len(mine)} {what}s and not {len(theirs)}"
        for k, pair in enumerate(zip(mine, theirs)):
            said = difference(*pair, tolerance, exact_type)
            if said:
                return f"{what} {k}: {said}"
    return ""


def agrees_with_wider(got, op, sample, gradient, tolerance):
    """Whether the outcome is what the CPU computes in a wider type: the narrow one may be the CPU's own error."""
    import torch
    wider = {torch.float32: torch.float64, torch.bfloat16: torch.float32, torch.float16: torch.float32,
             torch.complex64: torch.complex128}
    try:
        want = outcome(op, sample, "cpu", gradient, wider)
    except Exception:
        return False
    return not compare(got, want, tolerance, exact_type=False)


def check(name, op, dtype, device):
    """(result, message) of one check."""
    import torch
    torch.manual_seed(zlib.crc32(name.encode()))
    gradient = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex) and \
        dtype in op.supported_backward_dtypes("cpu")
    tolerance, ran = TOLERANCE.get(str(dtype)[6:], 2e-4), 0
    for i, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=gradient)):
        if i == SAMPLES:
            break
        try:
            want = outcome(op, sample, "cpu", gradient)
        except Exception:  # not a sample that the CPU takes
            continue
        try:
            got = outcome(op, sample, device, gradient)
        except Exception as e:
            text = f"{type(e).__name__}: {e}"
            refused = REFUSALS.search(text) and not OURS.search(str(e))
            return "refused" if refused else "failed", f"sample {i}: {text[:600]}"
        if want[1] and not got[1]:
            return "refused", f"sample {i}: the client's result has no gradient"
        ran += 1
        said = compare(got, want, tolerance)
        if said and not agrees_with_wider(got, op, sample, gradient, tolerance):
            return "failed", f"sample {i}: {said}"
    return ("passed", "") if ran else ("empty", "no sample")


def work(client, salt, names_path, results_path):
    """Runs the named checks; a line of JSON when each begins and when it ends."""
    device, known = device_of(client), checks(salt)
    with open(results_path, "a") as out:
        for name in pathlib.Path(names_path).read_text().split("\n"):
            print(json.dumps({"check": name, "result": "started", "message": ""}), file=out, flush=True)
            start = time.time()
            result, message = check(name, *known[name], device)
            print(json.dumps({"check": name, "result": result, "message": message,
                              "seconds": round(time.time() - start, 2)}), file=out, flush=True)


def run_worker(client, salt, names, folder, results, limit):
    """One worker until it ends or says nothing for `limit` seconds."""
    chosen = folder / "names"
    chosen.write_text("\n".join(names))
    with open(folder / "log", "w") as log:
        child = subprocess.Popen([sys.executable, "-c", f"import torch_ops; torch_ops.work({client!r}, {salt!r}, "
                                  f"{str(chosen)!r}, {str(results)!r})"],
                                 stdout=log, stderr=log,
                                 env={"ATOLL_TARGET": "v6e:1x1", "TPU_ACCELERATOR_TYPE": "v6e-1", "PJRT_DEVICE": "TPU",
                                      **os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)})
        size, since = -1, time.time()
        while child.poll() is None:
            now = results.stat().st_size if results.exists() else 0
            if now != size:
                size, since = now, time.time()
            if time.time() - since > limit:
                child.kill()
            time.sleep(0.2)


def run(options):
    folder = pathlib.Path(tempfile.mkdtemp())
    RESULTS.mkdir(parents=True, exist_ok=True)
    # What is done is kept until all is: a run that is cut off goes on there.
    results, rows, silent = RESULTS / f"begun-{options.client}-{options.salt}.jsonl", {}, 0
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    names = [n for n in checks(options.salt) if not options.only or re.search(options.only, n)][:options.count]

    def read():
        """Reads what is done; says what is left."""
        for line in results.read_text().splitlines() if results.exists() else []:
            row = json.loads(line)
            rows[row["check"]] = row
        return [n for n in names if n not in rows]
    left = read() + [n for n, row in rows.items() if row["result"] == "started"]  # one that was cut off is run again
    while left:
        before = len(left)
        run_worker(options.client, options.salt, left[:120], folder, results, options.timeout)
        left = read()
        silent = silent + 1 if len(left) == before else 0
        if silent == 3:
            sys.exit(f"no check ran: {(folder / 'log').read_text()[-2000:]}")
        print(f"{len(rows)} of {len(names)} checks done", file=sys.stderr, flush=True)
    for row in rows.values():
        if row["result"] == "started":
            row.update(result="failed", message="the process ended")
    for result in ("refused", "failed"):
        for row in rows.values():
            if row["result"] == result:
                print(f"{result} {row['check']:50} {row['message'].splitlines()[0][:200]}")
    kept = RESULTS / f"checks-{options.client}.jsonl"
    kept.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    results.unlink()
    counts = collections.Counter(row["result"] for row in rows.values())
    print(f"{len(rows)} checks: {dict(counts)}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {len(rows) - counts['passed'] - counts['failed']} skipped")
    return 1 if counts["failed"] else 0
