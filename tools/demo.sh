#!/bin/bash
# The first look: a synthetic ResNet-50 and its optimization ladder. tools/demo.sh BINARY
set -euo pipefail
ridgeline=$1
folder=build/demo
mkdir -p "$folder"
show() {
  echo "\$ $*"
  "$@"
}
echo "A ResNet-50 as training leaves it: seeded weights, 53 convolutions, each with its BatchNormalization apart."
show "$ridgeline" make resnet50 -o "$folder/resnet50.onnx"
echo
echo "What it is, what bounds it, what each rewrite brings on this machine, and what to do next:"
show "$ridgeline" optimize "$folder/resnet50.onnx" -o "$folder/resnet50.optimized.onnx" --json "$folder/resnet50.json"
echo
echo "The optimized model is $folder/resnet50.optimized.onnx; every figure above is in $folder/resnet50.json."
