#!/usr/bin/env bash
# Sets up a fresh machine if need be, builds, and runs every test.
#   ./test.sh          release build: unit, lint, end to end; address sanitizer: unit, fuzz
#                      replay; thread sanitizer: the tests of the runtime
#   ./test.sh quick    release build only
set -euo pipefail
cd "$(dirname "$0")"
tools/setup.sh test
export AT_PYTHON="$PWD/.venv/bin/python"
jobs=$(nproc)

echo "== release build"
cmake --preset release -DAT_PYTHON="$AT_PYTHON" >build.log 2>&1 || { cat build.log; exit 1; }
ninja -C build/release -j"$jobs" >build.log 2>&1 || { tail -50 build.log; exit 1; }
echo "== tests"
ctest --test-dir build/release -j"$jobs" --output-on-failure --no-tests=error
echo "== what is handed out"
./dist.sh --reuse

if [ "${1:-}" != quick ]; then
  echo "== sanitizer build (address, undefined behaviour)"
  cmake --preset asan -DAT_PYTHON="$AT_PYTHON" >build.log 2>&1 || { cat build.log; exit 1; }
  ninja -C build/asan -j"$jobs" >build.log 2>&1 || { tail -50 build.log; exit 1; }
  echo "== tests under sanitizers"
  ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --test-dir build/asan -j"$jobs" -L 'unit|fuzz-replay' --output-on-failure --no-tests=error

  echo "== runtime under the thread sanitizer"
  runtime='^(base|profile|device|exec|pod|control|pjrt)/'
  cmake --preset tsan -DAT_PYTHON="$AT_PYTHON" >build.log 2>&1 || { cat build.log; exit 1; }
  mapfile -t tests < <(ctest --test-dir build/tsan -N -R "$runtime" | sed -n 's|.* #[0-9]*: [a-z]*/||p')
  ninja -C build/tsan -j"$jobs" "${tests[@]}" >build.log 2>&1 || { tail -50 build.log; exit 1; }
  ctest --test-dir build/tsan -j"$jobs" -R "$runtime" --output-on-failure --no-tests=error
fi
rm -f build.log
