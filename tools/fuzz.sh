#!/bin/bash
# Fuzzes the importer for SECONDS from a corpus of small models: tools/fuzz.sh SECONDS
set -euo pipefail
seconds=$1
if [ ! -e tests/fuzz/import_fuzzer.cpp ]; then
  echo "no fuzz target yet"
  exit 0
fi
tools/build.sh fuzz import_fuzzer
corpus=build/fuzz/corpus
findings=build/fuzz/findings
seeds=build/fuzz/seeds
rm -rf "$seeds"
mkdir -p "$corpus" "$findings" "$seeds"
# Seeds: ONNX's own node models (each a few hundred bytes, one operator), and a small model of ours if the command is there.
models=/usr/share/libonnx-testdata/data/node
if [ -d "$models" ]; then
  (cd "$models" && find . -name model.onnx -size -8 -print0 | xargs -0 cp --parents -t "$OLDPWD/$seeds")
fi
if [ -x build/release/ridgeline ]; then
  build/release/ridgeline make mlp -o "$seeds/mlp.onnx" --quiet || rm -f "$seeds/mlp.onnx"
fi
echo "$(find "$seeds" -type f | wc -l) seeds"
# Memory: the importer may not allocate beyond the file's size plus a constant; 512 MiB covers the sanitizer's own.
build/fuzz/import_fuzzer -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=65536 \
  -print_final_stats=1 -verbosity=0 -artifact_prefix="$findings/" "$corpus" "$seeds"
