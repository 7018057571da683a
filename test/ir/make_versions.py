#!/usr/bin/env python
"""Writes the programs of test/ir/import as portable artifacts of several StableHLO versions.

  make_versions.py IN_DIR OUT_DIR

OUT_DIR/<name>.<version>.mlirbc, wherever a version has every op and attribute of the program.
"""
import pathlib, sys

from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jaxlib.mlir import ir

VERSIONS = ['0.9.0', '0.14.0', '0.18.0', '0.19.0', '1.0.0', '1.1.0', '1.5.0', '1.8.0', '1.9.0', '1.11.0', '1.13.0']

def main(source, out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(pathlib.Path(source).glob('*.mlir')):
        last, kept = None, []
        for version in VERSIONS:
            with mlir.make_ir_context():
                module = ir.Module.parse(path.read_text())
                try:
                    data = _jax.mlir.serialize_portable_artifact(module, version)
                except Exception:
                    continue
            # Where nothing changed but the version's name, one artifact is enough.
            body = data.replace(version.encode(), b'')
            if body != last or version == VERSIONS[-1]:
                (out / f'{path.stem}.{version}.mlirbc').write_bytes(data)
                kept.append(version)
            last = body
        print(path.stem, *kept)

if __name__ == '__main__':
    main(*sys.argv[1:])
