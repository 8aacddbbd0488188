#!/bin/bash
# The kernels on 64-bit ARM, cross-built with Debian's compiler and run under qemu-user.
#   tools/aarch64.sh kernels      kernels and sweep alone (tests/kernels): a few problems of each family, NEON and scalar
#   tools/aarch64.sh [OPTIONS]    the whole program, and `check` with these options
set -euo pipefail
cd "$(dirname "$0")/.."
sysroot=$PWD/build/aarch64-sysroot
if [ "${1:-}" = kernels ]; then
  preset=aarch64-kernels target=check_kernels
  libraries=(libhwy-dev libhwy1 libfmt-dev libfmt9)
else
  preset=aarch64 target=ridgeline_cli
  libraries=(libhwy-dev libhwy1 libfmt-dev libfmt9 libprotobuf-dev libprotobuf32 libsqlite3-dev libsqlite3-0 zlib1g-dev zlib1g)
fi

# Debian's arm64 libraries, unpacked beside the build: an apt of its own, so that the system learns of no second architecture.
missing=()
for library in "${libraries[@]}"; do
  [ -e "$sysroot/unpacked/$library" ] || missing+=("$library")
done
if [ ${#missing[@]} -gt 0 ]; then
  rm -rf build/aarch64-apt
  mkdir -p "$sysroot/unpacked" build/aarch64-apt/{lists/partial,cache/archives/partial,debs}
  echo "fetching ${#missing[@]} arm64 packages"
  apt=(apt-get -q -o Dir::State::Lists="$PWD/build/aarch64-apt/lists" -o Dir::Cache="$PWD/build/aarch64-apt/cache"
       -o Dir::State::Status=/dev/null -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root)
  "${apt[@]}" update
  (cd build/aarch64-apt/debs && "${apt[@]}" download "${missing[@]}")
  for deb in build/aarch64-apt/debs/*.deb; do dpkg-deb -x "$deb" "$sysroot"; done
  for library in "${missing[@]}"; do touch "$sysroot/unpacked/$library"; done
fi

tools/build.sh "$preset" "$target"
library=usr/lib/aarch64-linux-gnu
emulated() {
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$sysroot/$library:$sysroot/lib/aarch64-linux-gnu" "$@"
}
if [ "$target" = ridgeline_cli ]; then
  emulated build/aarch64/ridgeline check "$@"
  exit
fi

families=(matmul conv elementwise attention movement quantize normalize reduce pool)
sweep() { # sweep LEVEL: 60 problems of each family, further ones for kernels that few reach
  emulated build/aarch64-kernels/tests/kernels/check_kernels 60 "$1" "${families[@]}" > "build/aarch64-$1.log" 2>&1
}
sweep scalar &  # beside the other: each is one thread's work
scalar=$! status=0
sweep neon || status=1
wait "$scalar" || status=1
cat build/aarch64-{scalar,neon}.log
cat build/aarch64-{scalar,neon}.log | awk '/ at level /{sum += $5; n++} END{print sum, "problems in", n, "sweeps at the levels scalar and neon"}'
exit "$status"
