#!/usr/bin/env bash
# Sets up a fresh machine if need be, builds Atoll, and trains two models on it:
# a small GPT on the text that Python ships, and a CNN on handwritten digits.
# Each also runs some steps on XLA:CPU in the same process and prints the ratio.
#   ./demo.sh            both; about five minutes after the build
#   ./demo.sh --quick    fewer steps
set -euo pipefail
cd "$(dirname "$0")"
tools/setup.sh
echo "building"
cmake --preset release -DAT_PYTHON="$PWD/.venv/bin/python" >build.log 2>&1 || { cat build.log; exit 1; }
ninja -C build/release -j"$(nproc)" atoll >>build.log 2>&1 || { tail -50 build.log; exit 1; }
rm -f build.log
export TPU_LIBRARY_PATH="$PWD/build/release/libatoll.so"
export PYTHONPATH="$PWD/python${PYTHONPATH:+:$PYTHONPATH}"
unset JAX_PLATFORMS
mkdir -p demo-out
.venv/bin/python demo/digits.py "$@"
.venv/bin/python demo/gpt.py "$@"
# A DLRM on SparseCores, where jax-tpu-embedding is there.
if .venv/bin/python -c "import jax_tpu_embedding" 2>/dev/null; then
  .venv/bin/python examples/dlrm.py --check
fi
echo "plots: demo-out/digits.png demo-out/gpt.png"
