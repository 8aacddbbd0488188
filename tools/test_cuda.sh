#!/bin/bash
# Tests that need an NVIDIA GPU: tools/test_cuda.sh [BINARY]. The last line is the count.
# Random problems of every operator by every kernel of the GPU, models against the reference, the PTX path of sm_80 on
# whatever card there is, and compute-sanitizer on a sample of every kernel where the machine lets it run.
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/count.sh
ridgeline=$(realpath "${1:-build/release/ridgeline}")
cases=${CASES:-20000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step "the card" "$ridgeline" machine --device cuda
step "random problems ($cases)" "$ridgeline" check --device cuda --cases "$cases"
step "random problems, sm_80" env RIDGELINE_SM=80 "$ridgeline" check --device cuda --cases $((cases / 20))
for model in mlp resnet50 mobilenet_v3 bert vit decoder; do
  "$ridgeline" make "$model" -o "$work/$model.onnx" > /dev/null || continue
  step "verify $model" "$ridgeline" verify "$work/$model.onnx" --device cuda
  step "verify $model in f16" "$ridgeline" verify "$work/$model.onnx" --device cuda --precision f16
done
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck; do
    step "$tool" "$sanitizer" --tool "$tool" --error-exitcode 9 "$ridgeline" check --device cuda --cases "${SANITIZED:-300}"
  done
else
  echo "compute-sanitizer is not installed: memory and races were not checked"
fi
finish
