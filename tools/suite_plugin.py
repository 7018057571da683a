"""pytest plugin of tools/kernel_suites.py: runs the chosen tests and writes a line of JSON for each.

SUITE_TESTS     file: the tests to run, one node id a line
SUITE_RESULTS   file: receives {test, target, result, message, programs} as each test begins ("started") and ends
SUITE_STUBS     module to import first: what the tests import and the archive lacks; empty: none
SUITE_PROGRAMS  folder: receives every program with a Pallas kernel that is compiled; empty: none is kept
"""
import hashlib
import importlib
import json
import os
import pathlib
import re

import pytest

results = None
programs = []


def say(**row):
    results.write(json.dumps(dict(row, target=os.environ["ATOLL_TARGET"])) + "\n")
    results.flush()


def keep_programs(folder):
    """Writes each program that JAX compiles and that holds a kernel: its bytes, its compile options, its devices."""
    from jax._src import compiler
    compile_program = compiler.backend_compile_and_load

    def recording(backend, module, executable_devices, options, host_callbacks):
        text = module.operation.get_asm(enable_debug_info=False)
        if "tpu_custom_call" in text and not host_callbacks:
            kind = executable_devices[0].device_kind
            key = hashlib.sha256(f"{kind} {len(executable_devices)} {text}".encode()).hexdigest()[:16]
            programs.append(key)
            path = folder / f"{key}.mlirbc"
            if not path.exists():
                (folder / f"{key}.options").write_bytes(options.SerializeAsString())
                with open(path.with_suffix(".part"), "wb") as out:
                    module.operation.write_bytecode(out)
                path.with_suffix(".part").rename(path)
        return compile_program(backend, module, executable_devices, options, host_callbacks)
    compiler.backend_compile_and_load = recording


def pytest_configure(config):
    global results
    if os.environ.get("SUITE_STUBS"):
        importlib.import_module(os.environ["SUITE_STUBS"])
    if not os.environ.get("SUITE_RESULTS"):
        return  # tests are only collected
    results = open(os.environ["SUITE_RESULTS"], "a")
    if os.environ.get("SUITE_PROGRAMS"):
        keep_programs(pathlib.Path(os.environ["SUITE_PROGRAMS"]))


def pytest_collection_modifyitems(config, items):
    if not results:
        return
    chosen = set(pathlib.Path(os.environ["SUITE_TESTS"]).read_text().splitlines())
    dropped = [item for item in items if item.nodeid not in chosen]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item.nodeid in chosen]


def message_of(report):
    """The error's own line, without the numbers that differ from run to run."""
    if isinstance(report.longrepr, tuple):  # a skip: file, line, reason
        return report.longrepr[2].removeprefix("Skipped: ")[:300]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return re.sub(r"0x[0-9a-f]+", "0x…", text.strip())[:600]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    programs.clear()
    say(test=item.nodeid, result="started")
    item.suite_reports = []
    outcome = yield
    bad = next((r for r in item.suite_reports if r.failed), None)
    skipped = next((r for r in item.suite_reports if r.skipped), None)
    told = bad or skipped
    say(test=item.nodeid, result="failed" if bad else "skipped" if skipped else "passed",
        message=message_of(told) if told else "", programs=sorted(set(programs)))
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    item.suite_reports.append(report)
    return report
