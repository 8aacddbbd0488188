#!/bin/bash
# Style and structure: tools/lint.sh [long]. The last line is the count.
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/count.sh
long=${1:-}
jobs=${JOBS:-$(nproc)}

sources() { git ls-files -co --exclude-standard -- 'include/*.h' 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'examples/*.h' 'examples/*.cpp' 'bench/*.cpp'; }

check_format() { sources | xargs clang-format-14 --dry-run -Werror --ferror-limit=3 && echo "$(sources | wc -l) files"; }

check_lengths() {
  local long_files
  long_files=$(git ls-files -co --exclude-standard | grep -E '\.(h|cpp|cu|cuh|py|sh|md|cmake)$|Makefile|CMakeLists.txt' |
    grep -v '^docs/operators.md$' | xargs wc -l | awk '$2 != "total" && $1 > 500 {print $1, $2}')
  [ -z "$long_files" ] || { echo "$long_files"; echo "files over 500 lines"; return 1; }
  echo "no file over 500 lines"
}

# Each header of the public API compiles by itself: nobody has to know in which order to include them. (ridgeline.h needs the
# generated ops.h: it is compiled with the tests.)
check_headers() {
  find include/ridgeline -name '*.h' ! -name ridgeline.h -print0 | xargs -0 -P "$jobs" -I{} \
    g++ -std=c++20 -fsyntax-only -Wall -Wextra -Wno-missing-field-initializers -Wno-pragma-once-outside-header -Iinclude -Isrc {} &&
    echo "$(find include/ridgeline -name '*.h' | wc -l) headers"
}

# clang-tidy takes seconds a file. The newest changes are read first; what is left after the budget is `make lint-long`'s.
check_tidy() {
  local budget=240
  [ "$long" = long ] && budget=36000
  python3 tools/tidy.py --budget "$budget" --jobs "$jobs"
}

step "format" check_format
step "order of includes" python3 tools/check_includes.py
step "length of files" check_lengths
step "public headers alone" check_headers
if step "configure and generate (release)" tools/build.sh release ridgeline_onnx_proto; then
  step "clang-tidy" check_tidy
fi
finish
