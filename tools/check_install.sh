#!/bin/bash
# Installs into an empty folder and builds and runs tests/install against the copy, with nothing of this tree in reach.
set -euo pipefail
prefix=$PWD/build/install-check/prefix
project=$PWD/build/install-check/project
rm -rf build/install-check
mkdir -p "$project"
cmake --install build/release --prefix "$prefix" > build/install.log
cp -r tests/install/. "$project"
cmake -S "$project" -B "$project/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" > "$project/configure.log" ||
  { cat "$project/configure.log"; exit 1; }
cmake --build "$project/build"
ctest --test-dir "$project/build" --output-on-failure --no-tests=error
"$prefix/bin/ridgeline" --help > /dev/null
echo "an outside project builds and runs against the installed copy"
