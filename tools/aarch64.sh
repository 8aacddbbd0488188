#!/bin/bash
# The kernels on 64-bit ARM: cross-built with Debian's compiler, `check` run under qemu-user. tools/aarch64.sh [CHECK OPTIONS...]
set -euo pipefail
cd "$(dirname "$0")/.."
sysroot=$PWD/build/aarch64-sysroot
libraries=(libhwy-dev libhwy1 libfmt-dev libfmt9 libprotobuf-dev libprotobuf32 libsqlite3-dev libsqlite3-0
           zlib1g-dev zlib1g)

# Debian's arm64 libraries, unpacked beside the build: an apt of its own, so that the system learns of no second architecture.
if [ ! -e "$sysroot/complete" ]; then
  rm -rf "$sysroot" build/aarch64-apt
  mkdir -p "$sysroot" build/aarch64-apt/{lists/partial,cache/archives/partial,debs}
  echo "fetching ${#libraries[@]} arm64 packages"
  apt=(apt-get -q -o Dir::State::Lists="$PWD/build/aarch64-apt/lists" -o Dir::Cache="$PWD/build/aarch64-apt/cache"
       -o Dir::State::Status=/dev/null -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root)
  "${apt[@]}" update
  (cd build/aarch64-apt/debs && "${apt[@]}" download "${libraries[@]}")
  for deb in build/aarch64-apt/debs/*.deb; do dpkg-deb -x "$deb" "$sysroot"; done
  touch "$sysroot/complete"
fi

export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR=1
cmake --preset aarch64 > build/configure-aarch64.log 2>&1 || { cat build/configure-aarch64.log >&2; exit 1; }
NINJA_STATUS="[%f/%t %es] " cmake --build --preset aarch64 -j "${JOBS:-$(nproc)}" --target ridgeline_cli
library=usr/lib/aarch64-linux-gnu
emulated() {
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$sysroot/$library:$sysroot/lib/aarch64-linux-gnu" \
    build/aarch64/ridgeline "$@"
}
emulated check "$@"
