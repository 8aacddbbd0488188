#!/bin/bash
# Configures a preset once and builds targets of it: tools/build.sh PRESET [TARGET ...]
set -euo pipefail
preset=$1
shift
log=build/configure-$preset.log
mkdir -p build
if ! cmake --preset "$preset" > "$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
# What one clone of the tree has compiled serves another in another folder (a fresh clone in CI).
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR=1
start=$SECONDS
echo "building $preset: ${*:-everything} (${JOBS:-$(nproc)} jobs)"
NINJA_STATUS="[%f/%t %es] " cmake --build --preset "$preset" -j "${JOBS:-$(nproc)}" ${*:+--target "$@"}
echo "built $preset in $((SECONDS - start)) s"
