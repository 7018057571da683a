#!/usr/bin/env python3
"""The page of JAX's Pallas TPU tests on Atoll, from the results of tools/pallas_tests.py.

  tools/pallas_page.py TARGET RESULT.json ...   adds results to docs/pallas_tests.json and writes docs/pallas_tests.md
  tools/pallas_page.py                          writes the page again

A file's counts are those of the last run that was added for the target; a test that fails is named with its reason.
"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pallas_tests

DOCS = pallas_tests.TOP / "docs"
STORE = DOCS / "pallas_tests.json"
# What is known to be missing: the test's name, why it fails.
REASONS = [
    (r"test_roll_partial_with_dynamic_shift", "wants the refusal of an older compiler; libtpu from 0.0.50 on, whose verdicts the rules "
                                              "keep to, compiles turns of part of a tile by a number of the run"),
    (r"test_stateful_matmul", "wants the kernel's sum over blocks of the reduction axis to equal XLA's product bit for bit, as on v5e both add up "
                              "in the order of its MXU; here they differ in the last bits (for other chips the test allows that)"),
    (r"test_interpret_remote_dma_asymmetrical_indexer", "`interpret=True` makes a collective of each remote copy, here two different ones "
                                                        "in branches of which each chip takes one; they wait for each other, and that is said"),
    (r"test_mpmd_reduce_scatter", "the test races, as `ATOLL_CHECK=races` shows: a chip may send into a slot that its neighbour "
                                  "has not passed on yet; it passes where all chips are equally fast"),
    (r"test_copy_with_cross_core_signaling", "the test's subcores 8 to 15 copy rows of an array that has 8: refused as out of bounds"),
    (r"test_padded_matmul", "hypothesis ends it after a few inputs, which pass: the test turns most of its inputs away itself"),
    (r"VectorSubcoreTest.*test_barrier", "the test races after its barrier: a subcore overwrites a row that its neighbour still has to read"),
    (r"test_unary_primitives_pow2", "compares the kernel's `math.exp2`, which is e^(x ln 2) as that of `jnp.exp2`, with `power`, which is exact: the last bit, "
                                    "over the tolerance for some of hypothesis' inputs"),
    (r"Timeout", "took longer than the time limit on a shared machine"),
]


def reason_of(name, message):
    for pattern, text in REASONS:
        if re.search(pattern, name) or re.search(pattern, message[:2000]):
            return text
    return pallas_tests.reason(message)


def add(store, target, path):
    result = json.loads(pathlib.Path(path).read_text())
    for module, counts in result["counts"].items():
        if not counts:
            continue
        failing = {f["name"]: reason_of(f["name"], f["message"]) for f in result["failures"] if f["file"] == module}
        store.setdefault(target, {})[module] = {"whole": result.get("sample") == 1, "counts": {k: counts.get(k, 0) for k in ("passed", "failed", "skipped")},
                                                "failing": failing}


def page(store):
    lines = ["# JAX's own Pallas TPU tests on Atoll", "",
             "Made by `tools/pallas_page.py` from what `tools/pallas_tests.py` ran; do not edit. Of some files all tests ran, of",
             "others samples; a file that is not named for a target was not run there. Tests of several chips ran on 2 x 4 or",
             "2 x 2 x 1 of them. A test that failed and passed when it ran again after a mend counts as passed.", ""]
    for target in sorted(store):
        total = {k: sum(f["counts"][k] for f in store[target].values()) for k in ("passed", "failed", "skipped")}
        ran = total["passed"] + total["failed"]
        lines += [f"## {target}: {total['passed']} of {ran} pass ({100 * total['passed'] / max(ran, 1):.1f}%), "
                  f"{total['skipped']} skipped", "", "| file | ran | passed | failed | skipped |", "|---|---|---|---|---|"]
        for module, f in sorted(store[target].items()):
            c = f["counts"]
            lines.append(f"| {module} | {'all' if f.get('whole') else 'sample'} | {c['passed']} | {c['failed']} | {c['skipped']} |")
        failing = [(m, n, why) for m, f in sorted(store[target].items()) for n, why in sorted(f["failing"].items())]
        if failing:
            lines += ["", "| fails | why |", "|---|---|"]
            lines += [f"| {m}: {n} | {why.replace('|', '/')} |" for m, n, why in failing]
        lines.append("")
    return "\n".join(lines)


def main():
    store = json.loads(STORE.read_text()) if STORE.is_file() else {}
    for path in sys.argv[2:]:
        add(store, sys.argv[1], path)
    STORE.write_text(json.dumps(store, indent=1, sort_keys=True) + "\n")
    (DOCS / "pallas_tests.md").write_text(page(store))


if __name__ == "__main__":
    main()
