#!/usr/bin/env bash
# usage: tests/scripts/fuzz.sh SECONDS [JOBS] [NAME...]   builds the fuzzers with clang's libFuzzer and both sanitizers,
#        and runs each, or those named, for SECONDS, JOBS at a time
# Inputs that reach new code are kept in build/fuzz/corpus/NAME, and a later run goes on from them; an input that breaks
# something is written to build/fuzz/findings, with the log beside it. To keep one as a test, copy it to
# tests/fuzz/seeds/NAME. Exit status 1: there was a finding.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n '2,6s/^# //p' "$0" && exit 2; }
seconds=$1 jobs=${2:-1}
shift $(($# < 2 ? $# : 2))

fuzzers() {
  local source
  for source in tests/fuzz/fuzz_*.c; do basename "${source#*/fuzz_}" .c | sed 's/^fuzz_//'; done
}

# $1: name
fuzz() {
  local name=$1 corpus=build/fuzz/corpus/$1 findings=build/fuzz/findings log=build/fuzz/$1.log options=()
  mkdir -p "$corpus" "$findings"
  case $name in
    jinja | chat_template) options=(-dict=tests/fuzz/jinja.dict) ;;
    tokenizer_json) options=(-dict=tests/fuzz/tokenizer_json.dict) ;;
  esac
  if "build/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$findings/$name-" "${options[@]}" "$corpus" "tests/fuzz/seeds/$name" >"$log" 2>&1; then
    echo "  $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no finding"
  else
    cp "$log" "$findings/$name.log"
    tail -n 40 "$log"
    echo "  $name: a finding ($findings/$name.log)"
    return 1
  fi
}
export -f fuzz
export seconds

mkdir -p build
cmake --preset fuzz >build/fuzz.log 2>&1 && cmake --build --preset fuzz --parallel "$(nproc)" >>build/fuzz.log 2>&1 ||
  { cat build/fuzz.log && exit 1; }
# Each input makes a folder: in memory, where that can be had.
[ -n "${TMPDIR:-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm
if [ $# -eq 0 ]; then set -- $(fuzzers); fi
printf '%s\n' "$@" | xargs -P "$jobs" -I{} bash -euo pipefail -c 'fuzz {}'
