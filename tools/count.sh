# Sourced by test.sh and lint.sh: named steps, each timed and counted, and the closing line. A step's output goes to a log
# that is shown when it fails.
passed=0
failed=0
failures=()

note() { # note OK(0|1..) NAME SECONDS DETAIL
  if [ "$1" -eq 0 ]; then
    passed=$((passed + 1))
    printf 'ok    %-34s %4d s  %s\n' "$2" "$3" "${4:-}"
  else
    failed=$((failed + 1))
    failures+=("$2")
    printf 'FAIL  %-34s %4d s  %s\n' "$2" "$3" "${4:-}"
  fi
}

# A sign of life every half minute: the log's last line. (The sleep may outlive its parent: it must not hold our output open.)
watch_log() { # watch_log NAME LOG
  while sleep 30 > /dev/null 2>&1; do
    printf '  ..  %-34s         %s\n' "$1" "$(tail -1 "$2" | tr -d '\r' | cut -c1-100)"
  done
}

step() { # step NAME COMMAND...: one thing that passes or fails
  local name=$1 log status watcher start=$SECONDS
  shift
  log="build/logs/${name//[ \/]/-}.log"
  mkdir -p build/logs
  : > "$log"
  watch_log "$name" "$log" &
  watcher=$!
  "$@" > "$log" 2>&1 < /dev/null
  status=$?
  kill $watcher 2> /dev/null
  wait $watcher 2> /dev/null
  note $status "$name" $((SECONDS - start)) "$(tail -1 "$log" | cut -c1-100)"
  [ $status -eq 0 ] || tail -40 "$log"
  return $status
}

counted() { # counted NAME COMMAND...: as step, for a command whose last line counts what passed and what failed
  local status=0 good bad
  step "$@" || status=$?
  read -r good _ bad _ < <(tail -1 "build/logs/${1//[ \/]/-}.log" | grep -E '^[0-9]+ passed, [0-9]+ failed')
  if [ "$status" -eq 0 ]; then
    passed=$((passed - 1 + ${good:-1}))
  else
    passed=$((passed + ${good:-0}))
    failed=$((failed - 1 + (${bad:-0} > 1 ? bad : 1)))
  fi
  return "$status"
}

finish() {
  [ ${#failures[@]} -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
  printf 'took %d s\n%d passed, %d failed\n' "$SECONDS" "$passed" "$failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
