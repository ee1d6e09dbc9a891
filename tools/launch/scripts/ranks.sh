#!/bin/bash
# All ranks of one node: starts them, hands on signals, and ends when they have ended.
# NODE_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set. Its exit code is that of the first
# rank that failed; the others then have a minute to end.
set -uo pipefail
LAUNCH_FOLDER=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/settings.sh"

ranks=()
is_ending=false
hand_on() {
  is_ending=true
  if [ ${#ranks[@]} -gt 0 ]; then kill -s "$EXIT_SIGNAL" "${ranks[@]}" 2>/dev/null; fi
}
trap hand_on TERM INT "$EXIT_SIGNAL"

for ((local_rank = 0; local_rank < RANKS_PER_NODE; ++local_rank)); do
  RANK=$((NODE_RANK * RANKS_PER_NODE + local_rank)) LOCAL_RANK=$local_rank \
    bash "$LAUNCH_FOLDER/rank.sh" &
  ranks+=($!)
done
# A signal that came meanwhile has not reached all.
if $is_ending; then hand_on; fi

first_failure=0
while [ ${#ranks[@]} -gt 0 ]; do
  ended=
  wait -n -p ended "${ranks[@]}"
  code=$?
  # Without a process: a signal came, and was handed on.
  [ -n "${ended-}" ] || continue
  left=()
  for rank in "${ranks[@]}"; do
    if [ "$rank" != "$ended" ]; then left+=("$rank"); fi
  done
  ranks=("${left[@]}")
  if [ "$code" -ne 0 ] && [ "$first_failure" -eq 0 ]; then
    first_failure=$code
    if [ ${#ranks[@]} -gt 0 ]; then
      (
        sleep "$SECONDS_AFTER_A_FAILURE"
        kill -KILL "${ranks[@]}" 2>/dev/null
      ) >/dev/null 2>&1 &
      reaper=$!
    fi
  fi
done
if [ -n "${reaper:-}" ]; then kill "$reaper" 2>/dev/null; fi
exit "$first_failure"
