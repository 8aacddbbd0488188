#!/bin/bash
# NVRTC, NVIDIA's runtime compiler, below build/nvrtc: with it the CUDA sources are compiled where no toolkit is installed
# (a test does; a GPU is not needed). From PyPI, 58 MB; nothing outside the build folder is touched.
set -euo pipefail
cd "$(dirname "$0")/.."
version=13.5.37 # registers in tests/cuda_resources.txt are of this one
folder=build/nvrtc
[ ! -e "$folder/$version" ] || exit 0
[ "$(uname -m)" = x86_64 ] || { echo "no NVRTC for $(uname -m): the CUDA sources are not compiled here" >&2; exit 0; }
rm -rf "$folder"
mkdir -p "$folder"
echo "fetching NVRTC $version from PyPI"
if ! python3 -m pip install -q --no-deps --no-compile --disable-pip-version-check --root-user-action=ignore --target "$folder" \
    "nvidia-cuda-nvrtc==$version" > build/nvrtc.log 2>&1; then
  cat build/nvrtc.log >&2
  exit 1
fi
touch "$folder/$version"
