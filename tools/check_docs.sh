#!/bin/bash
# docs/operators.md is generated from the declarations; a stale copy fails. To renew it: tools/check_docs.sh --write
set -euo pipefail
ridgeline=build/release/ridgeline
if ! "$ridgeline" op list --markdown > build/operators.md 2> build/operators.err; then
  cat build/operators.err
  if [ ! -e docs/operators.md ]; then
    echo "no operator list yet"
    exit 0
  fi
  exit 1
fi
if [ "${1:-}" = --write ]; then
  cp build/operators.md docs/operators.md
fi
[ -e docs/operators.md ] || { echo "docs/operators.md is missing: tools/check_docs.sh --write"; exit 1; }
diff -u docs/operators.md build/operators.md || { echo "docs/operators.md is stale: tools/check_docs.sh --write"; exit 1; }
echo "docs/operators.md is what the declarations say"
