#!/usr/bin/env bash
# Makes what is handed out, in dist/: the Python wheel and a tarball for C programs. The
# same commit gives the same bytes. Then checks both: what they need of a machine, their
# size, and that they work where they are installed.
#   ./dist.sh            all of it, from an empty build folder
#   ./dist.sh --reuse    goes on in build/release, as ./test.sh left it
set -euo pipefail
cd "$(dirname "$0")"
case "${1:-}" in
  '') build=build/dist reuse= ;;
  --reuse) build=build/release reuse=1 ;;
  *) sed -n "2,6s/^# \{0,1\}//p" "$0"; exit 2 ;;
esac
tools/setup.sh
root=$PWD
# Also for who is not the checkout's owner.
git() { command git -c safe.directory="$root" "$@"; }
python=$root/.venv/bin/python
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
umask 022

[ -n "$reuse" ] || rm -rf "$build"
echo "== build"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang-19 \
  -DAT_WERROR=ON -DAT_PYTHON="$python" >build.log 2>&1 || { cat build.log; exit 1; }
ninja -C "$build" atoll_portable atoll_cli atoll_input atoll_tiles >build.log 2>&1 ||
  { tail -50 build.log; exit 1; }
rm -f build.log

echo "== wheel"
rm -rf dist && mkdir dist
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Only what is committed, without what earlier builds left in the folder.
git ls-files -z python LICENSE | xargs -0 cp -a --parents -t "$scratch"
ATOLL_BUILD=$root/$build "$python" -m pip wheel -q --disable-pip-version-check --no-deps \
  --no-build-isolation -w dist "$scratch/python"
wheel=$(echo dist/atoll-*.whl)

echo "== tarball"
version=$(basename "$wheel" | cut -d- -f2)
name=atoll-$version-x86_64
cmake --install "$build" --prefix "$scratch/$name" >/dev/null
cp "$build/portable/libatoll.so" "$scratch/$name/lib/atoll/"
strip --strip-unneeded "$scratch/$name"/lib/*.so "$scratch/$name/lib/atoll/atoll"
cp LICENSE "$scratch/$name/"
mkdir "$scratch/$name/examples"
cp examples/run_program.c examples/twice.mlir "$scratch/$name/examples/"
"$python" -m zipfile -e "$wheel" "$scratch/wheel" && mv "$scratch/wheel/atoll/licenses" "$scratch/$name/"
tar -C "$scratch" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
  --numeric-owner -cf - "$name" | xz -T1 -6 >"dist/$name.tar.xz"

echo "== checks"
"$python" tools/dist_check.py "$wheel" "dist/$name.tar.xz"
(cd dist && sha256sum -- *)
