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

# Runs ctest with the arguments, all cores at work. Up to three tests that failed get a
# second try with the machine to themselves, since some have deadlines; what failed first
# is listed. Fails if more failed, or one of them again.
run_tests() {
  ctest "$@" -j"$jobs" --output-on-failure --no-tests=error && return
  local failed="$2/Testing/Temporary/LastTestsFailed.log"
  [ "$(wc -l <"$failed")" -le 3 ] || return 1
  echo "== second try, one at a time, of:"
  cat "$failed"
  ctest "$@" -j1 --rerun-failed --output-on-failure --no-tests=error
}

echo "== release build"
cmake --preset release -DAT_PYTHON="$AT_PYTHON" >build.log 2>&1 || { cat build.log; exit 1; }
ninja -C build/release -j"$jobs" >build.log 2>&1 || { tail -50 build.log; exit 1; }
echo "== tests"
run_tests --test-dir build/release
echo "== what is handed out"
./dist.sh --reuse

if [ "${1:-}" != quick ]; then
  echo "== sanitizer build (address, undefined behaviour)"
  cmake --preset asan -DAT_PYTHON="$AT_PYTHON" >build.log 2>&1 || { cat build.log; exit 1; }
  ninja -C build/asan -j"$jobs" >build.log 2>&1 || { tail -50 build.log; exit 1; }
  echo "== tests under sanitizers"
  ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
    run_tests --test-dir build/asan -L 'unit|fuzz-replay'

  echo "== runtime under the thread sanitizer"
  runtime='^(base|profile|device|exec|pod|control|pjrt)/'
  cmake --preset tsan -DAT_PYTHON="$AT_PYTHON" >build.log 2>&1 || { cat build.log; exit 1; }
  mapfile -t tests < <(ctest --test-dir build/tsan -N -R "$runtime" | sed -n 's|.* #[0-9]*: [a-z]*/||p')
  ninja -C build/tsan -j"$jobs" "${tests[@]}" >build.log 2>&1 || { tail -50 build.log; exit 1; }
  run_tests --test-dir build/tsan -R "$runtime"
fi
rm -f build.log
