#!/usr/bin/env python3
"""Tests of go-xla, the client of GoMLX, on Atoll.

  tools/go_tests.py --checkout DIR [--go GO] [--target v5e:2x2] [--library LIB] [--packages REGEX] [--logs DIR]

DIR is a checkout of https://github.com/gomlx/go-xla whose modules Go has or can get. Tests and their parts are counted
by `go test`'s own report. Tests that want another platform's words or hardware are listed apart: they may fail.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[1]
# Package, and what its tests take to choose a plug-in.
PACKAGES = {
    "pjrt": ["-plugin=tpu", "-force_shared_buffer"],
    "internal/tests": ["-plugins=tpu"],
    "compute/xla": [],  # GOMLX_BACKEND
    "stablehlo": [],
    "internal/shapeinference": [],
    "types/...": [],
}
OTHERS = {"pjrt/TestError": "wants the words of XLA's own message"}


def environment(options, plugins):
    return {**os.environ, "PJRT_PLUGIN_LIBRARY_PATH": plugins, "ATOLL_TARGET": options.target, "GOMLX_BACKEND": "xla:tpu",
            "GOMLX_NO_AUTO_INSTALL": "1"}


def run(options, package, flags, env):
    """(test -> pass, fail or skip; how the package ended; its output)."""
    command = [options.go, "test", "-json", "-count=1", "-vet=off", "./" + package]
    if flags:
        command += ["-args", *flags]
    p = subprocess.run(command, cwd=options.checkout, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    tests, output = {}, []
    for line in p.stdout.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            output.append(line + "\n")
            continue
        output.append(event.get("Output", ""))
        if "Test" in event and event["Action"] in ("pass", "fail", "skip"):
            tests[event["Test"]] = event["Action"]
    return tests, p.returncode, "".join(output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=pathlib.Path, required=True)
    parser.add_argument("--go", default="go")
    parser.add_argument("--target", default="v5e:2x2")
    parser.add_argument("--library", type=pathlib.Path, default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--packages", default="", help="only packages whose name has this")
    parser.add_argument("--logs", type=pathlib.Path, help="a folder for the output of each package")
    options = parser.parse_args()
    wrong = False
    with tempfile.TemporaryDirectory() as plugins:
        os.symlink(options.library.resolve(), pathlib.Path(plugins) / "pjrt_c_api_tpu_plugin.so")
        env = environment(options, plugins)
        for package, flags in PACKAGES.items():
            if not re.search(options.packages, package):
                continue
            tests, code, output = run(options, package, flags, env)
            if options.logs:
                options.logs.mkdir(parents=True, exist_ok=True)
                (options.logs / (re.sub(r"\W", "_", package) + ".txt")).write_text(output)
            count = collections.Counter(tests.values())
            print(f"{package}: {count['pass']} pass, {count['fail']} fail, {count['skip']} skip")
            failed = sorted(t for t, how in tests.items() if how == "fail")
            for test in failed:
                why = OTHERS.get(f"{package}/{test}")
                wrong |= not why
                print(f"  failed: {test}" + (f" ({why})" if why else ""))
            if code and not failed or not tests:
                wrong = True
                print("  the tests ended with\n" + output[-1500:])
    sys.exit(wrong)


if __name__ == "__main__":
    main()
