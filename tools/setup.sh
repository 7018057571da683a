#!/usr/bin/env bash
# Installs what Atoll is built and tested with, on Debian 12: packages by name and
# a virtual environment in .venv. Does nothing when all is there.
#   tools/setup.sh        build and run time
#   tools/setup.sh test   also what the tests need
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(clang-19 lld-19 llvm-19-dev cmake ninja-build
  libopenblas-serial-dev liblapacke-dev libssl-dev zlib1g-dev libzstd-dev
  libcmocka-dev libucx-dev xz-utils
  python3 python3-venv)
[ "${1:-}" != test ] || packages+=(clang-format-14 clang-tidy-14 libclang-rt-19-dev llvm-19-tools libmpfr-dev git fish zsh)

missing_of() {
  missing=()
  for p in "$@"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
  done
}
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
export DEBIAN_FRONTEND=noninteractive
missing_of "${packages[@]}"
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
# A browser for the tests of pages, which are skipped without it.
if [ "${1:-}" = test ]; then
  missing_of chromium chromium-driver
  [ ${#missing[@]} -eq 0 ] || { $sudo apt-get update -qq &&
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; } || echo "no browser: pages are not tested"
fi

want=$(cat tools/requirements.txt; [ "${1:-}" != test ] || cat tools/requirements-test.txt)
stamp=.venv/.requirements
if [ ! -x .venv/bin/python ] || ! grep -qxFf <(echo "$want") "$stamp" 2>/dev/null ||
   [ "$(grep -cxFf <(echo "$want") "$stamp")" -lt "$(echo "$want" | wc -l)" ]; then
  echo "setting up .venv"
  [ -x .venv/bin/python ] || /usr/bin/python3 -m venv .venv
  echo "$want" > .venv/.want
  .venv/bin/pip install -q --disable-pip-version-check -c tools/constraints.txt -r .venv/.want
  sort -u .venv/.want "$stamp" -o "$stamp" 2>/dev/null || cp .venv/.want "$stamp"
fi
