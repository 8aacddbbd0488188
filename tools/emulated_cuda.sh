#!/bin/bash
# The sweep of GPU kernels without a card, all families: tools/emulated_cuda.sh [CASES]. Compiling takes minutes; the cache in
# build/emulated-cuda keeps it.
set -uo pipefail
cd "$(dirname "$0")/.."
library=$PWD/build/release/tests/libemulated_cuda.so
export RIDGELINE_CUDA_DRIVER=$library RIDGELINE_NVRTC=$library RIDGELINE_CACHE_DIR=$PWD/build/emulated-cuda
bad=0
for family in elementwise movement reduce normalize pool quantize; do
  build/release/ridgeline check --device cuda --family "$family" --cases "${1:-100}" || bad=1
done
exit $bad
