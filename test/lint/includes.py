#!/usr/bin/env python3
"""Fails on an #include that the table of rooms does not allow.

usage: includes.py SOURCE_DIR ROOMS_TXT

A file of room R may include headers of R, and of the rooms in R's DEPS only their
face (<room>/<room>.h) or a header that the room names in its README as public. base
and abi are public as a whole. hlo/rows.h, codegen/emit.h, codegen/build.h, codegen/check_link.h,
pjrt/own.h, cost/host.h, cost/tpu.h, cost/count.h, device/core.h, machine/topology.h, mosaic/code.h, mosaic/tree.h,
sparsecore/engine.h, pod/again.h, pod/hosts.h, pod/join.h and those of pod that sessions are made of,
exec/proxy.h, profile/spans.h, schedule/lifetime.h, schedule/place.h, compile/describe.h, the faces of control, spinput/flags.h,
spinput/limits.h, spinput/size.h and exec/exec_test_util.h are public too.

Inside a room, stages do not see each other's insides (APART): who writes code reads the plan,
but not what the passes that made it know, and those see no code.
"""
import pathlib, re, sys

PUBLIC_ROOMS = {"base", "abi"}
PUBLIC_HEADERS = {"pjrt/own.h", "cost/host.h", "cost/tpu.h", "cost/count.h", "codegen/emit.h", "codegen/build.h", "codegen/check_link.h", "device/core.h", "hlo/random.h", "hlo/rows.h", "machine/topology.h",
                  "mosaic/code.h", "mosaic/tree.h", "passes/shard.h", "tiles/lower.h", "sparsecore/engine.h", "pod/again.h", "pod/hosts.h", "pod/join.h", "pod/proof.h", "pod/wire.h", "pod/address.h", "pod/build.h", "pod/party.h", "pod/network.h", "pod/token.h",
                  "exec/proxy.h", "profile/spans.h", "control/client.h", "control/controller.h", "control/files.h", "control/host.h", "control/message.h", "control/named.h", "control/plan.h", "control/session.h", "control/simulate.h", "control/token.h", "control/tool.h", "control/trace.h",
                  "schedule/overlap.h", "schedule/lhs.h", "schedule/lifetime.h", "schedule/place.h", "compile/describe.h",
                  "spinput/flags.h", "spinput/limits.h", "spinput/size.h",
                  "exec/exec_test_util.h"}
# Files of a room, and headers that they may not include.
APART = [(re.compile(r"mosaic/emit.*"), re.compile(r"mosaic/plan_internal\.h")),
         (re.compile(r"mosaic/(plan|forms|matmul|lanes).*"), re.compile(r"mosaic/emit.*|codegen/(emit|build)\.h"))]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def main() -> int:
    src = pathlib.Path(sys.argv[1]) / "src"
    rooms = {}
    for line in open(sys.argv[2]):
        name, _, deps = line.strip().partition(":")
        if name:
            rooms[name] = set(filter(None, deps.strip().split(";")))
    bad = []
    files = sorted(p for p in src.rglob("*") if p.suffix in {".c", ".h"})
    for path in files:
        room = path.relative_to(src).parts[0]
        if room not in rooms:
            bad.append(f"{path}: no room '{room}' in CMakeLists.txt")
            continue
        own = str(path.relative_to(src))
        for inc in INCLUDE.findall(path.read_text(errors="replace")):
            target = inc.split("/")[0]
            if any(files.fullmatch(own) and headers.fullmatch(inc) for files, headers in APART):
                bad.append(f"{path}: this stage may not include '{inc}'")
            if "/" not in inc or target == room or target not in rooms:
                continue
            if target not in rooms[room]:
                bad.append(f"{path}: room '{room}' may not include '{inc}'")
            elif (target not in PUBLIC_ROOMS and inc != f"{target}/{target}.h"
                  and inc not in PUBLIC_HEADERS and not inc.endswith(".def")):
                bad.append(f"{path}: '{inc}' is not the face of room '{target}'")
    print("\n".join(bad) if bad else f"{len(files)} files, {len(rooms)} rooms: includes are fine")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
