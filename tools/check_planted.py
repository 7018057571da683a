#!/usr/bin/env python3
"""`atoll check` over the kernels of test/pallas that have one planted defect each, and over their sound twins.

  tools/check_planted.py [--command build/release/atoll] [--sample N] [--drawn SEED] [NAME...]

A defect must end in status 1, with the line that the kernel marks in its findings and a SARIF report of the right shape;
a sound twin in status 0. A program per file and twin tries all kernels of it and catches what is raised, so that the
findings come from the runtime alone. --sample: about N kernels, spread over all files. --drawn: the 33 kernels of
test/pallas/drawn_defects.py instead, whose shapes, types and places are drawn from SEED.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import sarif

TOP = pathlib.Path(__file__).resolve().parent.parent
PLANTED = TOP / "test" / "pallas"
TARGETS = {"defects": "v5p:2x1x1", "more_defects": "v5p:2x2x1", "other_defects": "v5p:2x1x1", "flight_defects": "v5p:2x1x1",
           "choice_defects": "v5p:2x1x1"}
DRAWN = {"drawn_defects": "v5p:2x1x1"}
# Tries the kernels that are named, and says which there are without names.
PROGRAM = """
import importlib, json, sys
sys.path.insert(0, {folder!r})
import defects
module = importlib.import_module(sys.argv[1])
if len(sys.argv) == 2:
  kernels = [n for n, k in defects.KERNELS.items() if k[0].__module__ == module.__name__]
  print(json.dumps({{n: [defects.place_of(n), defects.KERNELS[n][1]] for n in kernels}}))
for name in sys.argv[3:]:
  defects.run(name, sys.argv[2] == "sound")
"""


def sarif_errors(log):
    """What is wrong with a SARIF 2.1.0 log: by the schema, then what code scanning services ask for beyond it."""
    errors = sarif.errors(log)
    if errors:
        return errors

    def want(condition, text):
        if not condition:
            errors.append(text)
    want(len(log["runs"]) == 1, "runs")
    for run in log["runs"]:
        rules = run["tool"]["driver"].get("rules", [])
        want(len({r["id"] for r in rules}) == len(rules) > 0, "ids of rules")
        want("columnKind" in run and len(run.get("invocations", [])) == 1, "columnKind, invocations")
        for rule in rules:
            want(all(rule.get(k, {}).get("text") for k in ("help", "shortDescription", "fullDescription")), "help of a rule")
            want("level" in rule.get("defaultConfiguration", {}), "level of a rule")
        for result in run["results"]:
            want(rules[result["ruleIndex"]]["id"] == result["ruleId"], "ruleIndex")
            want(result["message"]["text"] and "level" in result, "message, level")
            for place in result["locations"] + result.get("relatedLocations", []):
                want("region" in place.get("physicalLocation", {}) or place.get("logicalLocations"), "location")
            for frame in (f for s in result.get("stacks", []) for f in s["frames"]):
                want("region" in frame["location"]["physicalLocation"], "frame")
    return errors


def lines_of(results):
    """"file:line:" of every place that SARIF results name."""
    places = [p for r in results for p in r["locations"] + r.get("relatedLocations", [])]
    places += [frame["location"] for r in results for s in r.get("stacks", []) for frame in s["frames"]]
    physical = [p["physicalLocation"] for p in places if "physicalLocation" in p]
    return {f"{pathlib.Path(p['artifactLocation']['uri']).name}:{p['region']['startLine']}:" for p in physical}


class Checker:
    def __init__(self, command, folder):
        self.command, self.folder = command, pathlib.Path(folder)
        self.program = self.folder / "planted.py"
        self.program.write_text(PROGRAM.format(folder=str(PLANTED)))

    def environment(self, module):
        return {**os.environ, "PYTHON": sys.executable, "ATOLL_CACHE": "off", "ATOLL_TARGET": {**TARGETS, **DRAWN}[module],
                "ATOLL_KERNEL_TURNS": "4000000"}

    def kernels(self, module):
        """By name: where the defect is ("file:line:", or None), and words of its report."""
        done = subprocess.run([self.command, "run", self.program, module], env=self.environment(module), capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def check(self, module, twin, names):
        """The status and the SARIF log of one program that tries these kernels."""
        sarif = self.folder / "report.sarif"
        done = subprocess.run([self.command, "check", f"--sarif={sarif}", self.program, module, twin, *names],
                              env=self.environment(module), capture_output=True, text=True)
        assert done.returncode in (0, 1), (done.returncode, done.stderr[-2000:])
        return done.returncode, json.loads(sarif.read_text())

    def wrong(self, module, names, known):
        """What is not as it should be, a line each."""
        status, log = self.check(module, "defect", names)
        out = [f"{module}: SARIF: {e}" for e in sarif_errors(log)]
        results = [r for r in log["runs"][0]["results"] if r["level"] == "error"]
        if status != 1:
            out.append(f"{module}: defects end in status {status}")
        at = lines_of(results)
        for name in names:
            place, words = known[name]
            if place and place not in at:
                out.append(f"{module}: {name} is not found at {place}")
            if not place:  # no one line says which defect it is
                status, log = self.check(module, "defect", [name])
                texts = [r["message"]["text"] for r in log["runs"][0]["results"] if r["level"] == "error"]
                if status != 1 or not any(words in text for text in texts):
                    out.append(f"{module}: {name} is not found: {texts}")
        out += [f"{module}: no rule for: {r['message']['text'][:200]}" for r in results if r["ruleId"] == "failed"]
        status, log = self.check(module, "sound", names)
        out += [f"{module}: SARIF of sound twins: {e}" for e in sarif_errors(log)]
        out += [f"{module}: sound: {r['message']['text'][:300]}" for r in log["runs"][0]["results"] if r["level"] == "error"]
        if status != 0:
            out.append(f"{module}: sound twins end in status {status}")
        return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--command", default=str(TOP / "build" / "release" / "atoll"))
    parser.add_argument("--sample", type=int)
    parser.add_argument("--drawn", type=int)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    wrong, count, targets = [], 0, TARGETS
    if options.drawn is not None:
        os.environ["AT_DRAWN_SEED"], targets = str(options.drawn), DRAWN
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(options.command, folder)
        known = {m: checker.kernels(m) for m in targets}
        every = sum(map(len, known.values())) // options.sample if options.sample else 1
        for module in targets:
            names = [n for n in known[module] if not options.names or n in options.names][::max(every, 1)]
            if names:
                count += len(names)
                wrong += checker.wrong(module, names, known[module])
    print("\n".join(wrong + [f"{count} kernels with their sound twins, {len(wrong)} differences"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
