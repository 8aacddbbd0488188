#!/bin/bash
# Tests: tools/test.sh [release|sanitized|long], without a word release and sanitized. The last line is the count.
# Order: what is quick and likely to fail comes first.
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/count.sh
mode=${1:-}
jobs=${JOBS:-$(nproc)}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

# ctest counts its own cases; its report holds the numbers.
run_ctest() { # run_ctest PRESET [ctest options]
  local preset=$1 start=$SECONDS log="build/logs/ctest-$1.log" report bad total skipped
  shift
  report="$PWD/build/logs/ctest-$preset.xml"
  rm -f "$report"
  mkdir -p build/logs
  : > "$log"
  watch_log "tests ($preset)" "$log" &
  local watcher=$!
  ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error --timeout 300 --output-junit "$report" "$@" \
    > "$log" 2>&1 < /dev/null
  kill $watcher 2> /dev/null
  wait $watcher 2> /dev/null
  if [ ! -s "$report" ]; then
    note 1 "tests ($preset)" $((SECONDS - start)) "no report"
    tail -20 "$log"
    return 1
  fi
  total=$(grep -c '<testcase ' "$report")
  bad=$(grep -c '<testcase .*status="fail"' "$report")
  skipped=$(grep -cE '<testcase .*status="(notrun|disabled)"' "$report")
  passed=$((passed + total - bad - skipped))
  # A skipped test is a failure: all they need is installed, and GoogleTest calls one skipped whose suite could not be set up.
  bad=$((bad + skipped))
  failed=$((failed + bad))
  printf '%-5s tests (%s)%*s %4d s  %d of %d passed, %d skipped\n' "$([ "$bad" -eq 0 ] && echo ok || echo FAIL)" "$preset" \
    $((26 - ${#preset})) '' $((SECONDS - start)) $((total - bad)) "$total" "$skipped"
  if [ "$bad" -gt 0 ]; then
    failures+=("tests ($preset)")
    grep -E -A 40 '\[  FAILED  \]|Failure$|Skipped$|ERROR: |runtime error' "$log" | head -200
    sed -n '/The following tests FAILED/,$p' "$log"
    return 1
  fi
}

built() { # built PRESET [TARGET...]: a build that fails is one failure, its tests then do not run
  step "build ($1)" tools/build.sh "$@"
}

sanitized() { # sanitized SECONDS: of fuzzing
  echo "sanitizer build (address, undefined behaviour) and its tests"
  # The examples are the release build's: here they would be a minute of compiling for what the tests call as well. NVRTC is a
  # library of others that keeps memory to itself.
  built debug ridgeline_tests && run_ctest debug -E '^example|nvrtc'
  echo "fuzzing"
  step "import fuzzing, $1 s" tools/fuzz.sh "$1"
}

known_failures() { # known_failures [options of tests/known/run.py]; the first Python may be one without NumPy
  local python
  for python in python3 /usr/bin/python3; do
    "$python" -c 'import numpy' 2> /dev/null && break
  done
  "$python" tests/known/run.py "$@"
}

release() {
  echo "release build and its tests"
  if built release; then
    run_ctest release
    counted "known failures" known_failures
    # Several seeds: one that passes says little (Winograd's tolerance was found too narrow by every second seed).
    for seed in 1 2 3 4; do
      step "random problems, seed $seed" build/release/ridgeline check --cases 1500 --seed "$seed"
      step "random convolutions, seed 2$seed" build/release/ridgeline check --family conv --cases 300 --seed "2$seed"
    done
    step "ONNX's own cases" python3 tools/onnx_suites.py
    step "install and use" tools/check_install.sh
    step "docs up to date" tools/check_docs.sh
  fi
  step "order of includes" python3 tools/check_includes.py
}

# The kernels cross-built, a few problems of each family under an emulator: what only NEON has is built and run each time.
arm() {
  echo "64-bit ARM"
  step "kernels on 64-bit ARM, quick" tools/aarch64.sh kernels
}

longer() {
  echo "longer sweeps"
  if [ -x build/release/ridgeline ]; then
    step "20,000 random problems" build/release/ridgeline check --cases 20000
    step "GPU kernels, emulated" tools/emulated_cuda.sh
    # The emulator is forty times slower than this machine.
    step "kernels on 64-bit ARM" tools/aarch64.sh --cases 300
    counted "known failures, large" known_failures --large
    counted "known failures, each pass and instruction set" known_failures --sweep
  fi
  # The thread sanitizer needs addresses where its shadow memory expects them.
  built tsan && TSAN_OPTIONS=halt_on_error=1 run_ctest tsan -R "${TSAN_TESTS:-[Tt]hread|[Pp]lan|[Ss]ession|[Pp]ool|Context|^Op}"
}

case "$mode" in
  "") release; arm; sanitized 60 ;;
  release) release ;;
  sanitized) sanitized 60 ;;
  long) release; longer; sanitized 600 ;;
  *) echo "tools/test.sh: '$mode' is none of release, sanitized, long" >&2 && exit 2 ;;
esac
finish
