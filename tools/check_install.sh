#!/bin/bash
# Installs into an empty folder and builds and runs tests/install against the copy, with nothing of this tree in reach.
set -euo pipefail
prefix=$PWD/build/install-check/prefix
project=$PWD/build/install-check/project
rm -rf build/install-check
mkdir -p "$project"
cmake --install build/release --prefix "$prefix" > build/install.log
for part in tests/install examples; do
  copy="$project/$(basename "$part")"
  cp -r "$part" "$copy"
  cmake -S "$copy" -B "$copy/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" > "$copy/configure.log" ||
    { cat "$copy/configure.log"; exit 1; }
  cmake --build "$copy/build"
  ctest --test-dir "$copy/build" --output-on-failure --no-tests=error
done
"$prefix/bin/ridgeline" --help > /dev/null
echo "an outside project and the examples build and run against the installed copy"
