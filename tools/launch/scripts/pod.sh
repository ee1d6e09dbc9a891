#!/bin/bash
# The ranks of one pod. Which pod this is, and where the first one listens, comes from the operator
# (PyTorchJob) or from the manifest (JobSet, Job). Kubernetes starts pods again that fail, up to its
# limit: the exit code is 0 when there is nothing left to do, and 85 when the pod was asked to end.
set -uo pipefail
ulimit -c 0
LAUNCH_FOLDER=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
export START_SCRIPT=manifest.yaml
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/settings.sh"
export NODE_RANK=${PET_NODE_RANK:-${JOB_COMPLETION_INDEX:-${RANK:-0}}}
unset RANK LOCAL_RANK
export JOB=${JOB:-$NAME}
export JOB_FOLDER="$FOLDER/debug/$JOB"
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/chain.sh"
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/job.sh"

# shellcheck disable=SC2317
cancel_waiting() { :; }

watch_signals
prepare_folders || exit 74
back_up_code || exit 74
export MASTER_ADDR=${MASTER_ADDR:-localhost} MASTER_PORT WORLD_SIZE=$((NODES * RANKS_PER_NODE))
add_arguments_of_services
if [ "$NODE_RANK" = 0 ]; then record_environment; fi
say "pod $NODE_RANK of $NODES: $RANKS_PER_NODE ranks of $WORLD_SIZE, $MASTER_ADDR:$MASTER_PORT"
run_ranks
now=$(saved_iteration)
say "pod $NODE_RANK ends with exit code $CODE; iteration $now is saved"
if [ "$CODE" != 0 ]; then exit "$CODE"; fi
if has_exit_trigger; then
  say "the exit trigger was found: training ends"
  # Other pods look for it, too.
  if [ "$NODE_RANK" = 0 ]; then
    sleep 10
    remove_exit_trigger
  fi
  exit 0
fi
if [ -n "$SAVE_FOLDER" ] && [ "$now" -lt "$LAST_ITERATION" ]; then exit 85; fi
exit 0
