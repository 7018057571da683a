#!/usr/bin/env bash
# Builds the documentation as a site, which needs no server: build/site/index.html.
#   ./docs.sh [FOLDER]   tutorials, how-to, reference, API and explanation; warnings are errors
# tools/docs.sh writes the pages that are made from the sources.
set -euo pipefail
cd "$(dirname "$0")"
tools/setup.sh test
exec .venv/bin/python -m sphinx -b html -W --keep-going -q -j auto -c tools/site -d build/site.cache docs "${1:-build/site}"
