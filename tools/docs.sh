#!/usr/bin/env bash
# Writes the generated pages: docs/ops.md, docs/config.md, docs/import.md, docs/hlo.md, docs/mosaic_ops.md from the
# tables in the sources, docs/refusals.md, docs/api from docstrings and headers, and, with `coverage`, docs/coverage.md from a run of the conformance corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
"$build/atoll" dump --ops-doc >docs/ops.md
"$build/atoll" dump --flags-doc >docs/config.md
"$build/atoll" dump --import-doc >docs/import.md
"$build/atoll" dump --hlo-doc >docs/hlo.md
"$build/atoll" dump --mosaic-doc >docs/mosaic_ops.md
python3 tools/refusals.py
python3 tools/api_docs.py
if [ "${1:-}" = coverage ]; then
  "${PYTHON:-.venv/bin/python}" tools/coverage.py "$build/libatoll.so" >docs/coverage.md.new
  mv docs/coverage.md.new docs/coverage.md
fi
