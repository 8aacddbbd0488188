#!/bin/bash
# Installs the Debian 12 packages that a step needs, if any is missing: tools/packages.sh build|test|lint ...
set -euo pipefail

build=(cmake ninja-build g++ ccache libfmt-dev nlohmann-json3-dev libcli11-dev libhwy-dev
       libprotobuf-dev protobuf-compiler libonnx-dev libgtest-dev libsqlite3-dev)
test=(python3 python3-numpy python3-pip clang-14 libclang-rt-14-dev libonnx-testdata git)
aarch64=(g++-aarch64-linux-gnu qemu-user)
lint=(python3 clang-format-14 clang-tidy-14 git)

wanted=()
for step in "$@"; do
  list="$step[@]"
  wanted+=("${!list}")
done

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get > /dev/null; then
  echo "This machine has no apt-get. What the build needs, by Debian's names: ${missing[*]}" >&2
  exit 0  # another system may have them under other names: CMake says what it does not find
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || { echo "Missing packages: ${missing[*]}. Install them as root, or install sudo." >&2; exit 1; }
  as_root=(sudo)
fi
mkdir -p build
log=build/packages.log
echo "installing ${#missing[@]} Debian packages: ${missing[*]}  (log: $log)"
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" < /dev/null >> "$log" 2>&1
}
: > "$log"
# A list that is already there may do (and then saves the download); an outdated one does not.
if ! apt install -y --no-install-recommends "${missing[@]}"; then
  if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; then
    tail -20 "$log" >&2
    echo "The packages could not be installed; see $log." >&2
    exit 1
  fi
fi
