#!/bin/bash
# Trains on this machine: the same chain as under a cluster's scheduler, one job after the other.
# TERM, INT and the exit signal end the job with a checkpoint, and the chain with it.
set -uo pipefail
ulimit -c 0
LAUNCH_FOLDER=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
export START_SCRIPT=run.sh
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/settings.sh"
export JOB=$$ JOB_FOLDER="$FOLDER/debug/$$"
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/chain.sh"
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/job.sh"

# What chain.sh calls. No jobs wait here.
# shellcheck disable=SC2317
cancel_waiting() { :; }
# shellcheck disable=SC2317
is_job_running() { kill -0 "$1" 2>/dev/null; }

watch_signals
prepare_folders || exit 74
take_place || exit 75
trap leave_place EXIT
# All output also goes to a log, whose writer outlives signals from the keyboard.
exec > >(exec tee -i -a -- "$FOLDER/logs/$NAME-$JOB.out") 2>&1
begin_chain || exit 74
look_at_triggers || exit 0
cp -- "$LAUNCH_FOLDER"/* "$JOB_FOLDER/"
back_up_code || exit 74
add_arguments_of_services
record_environment
export MASTER_ADDR=localhost MASTER_PORT NODE_RANK=0 WORLD_SIZE=$RANKS_PER_NODE

while true; do
  began=$(saved_iteration)
  say "training begins at iteration $began ($WORLD_SIZE ranks)"
  put "$FOLDER/chain/running" "$JOB $began" || exit 74
  run_ranks
  judge "$CODE" "$began"
  if [ "$REQUEUE" != true ] || [ -e "$FOLDER/chain/stopped" ] || $IS_TOLD_TO_END; then break; fi
  look_at_triggers || break
done
exit "$CODE"
