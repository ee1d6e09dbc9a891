# shellcheck shell=bash
# What a Slurm job does, after its header and LAUNCH_FOLDER.
set -uo pipefail
ulimit -c 0
unset RANK LOCAL_RANK
export START_SCRIPT=submit.sh
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/settings.sh"
export JOB=$SLURM_JOB_ID JOB_FOLDER="$FOLDER/debug/$SLURM_JOB_ID"
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/chain.sh"
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/job.sh"

# What chain.sh calls.
# shellcheck disable=SC2317
cancel_waiting() { scancel --user="$(id -un)" --name="$NAME" --state=PENDING; }
# shellcheck disable=SC2317
is_job_running() {
  case $(squeue --noheader --jobs="$1" --format=%T 2>/dev/null) in
    RUNNING | COMPLETING | CONFIGURING | SUSPENDED | STOPPED) return 0 ;;
  esac
  return 1
}

say "job $JOB of $NAME on $SLURM_JOB_NODELIST"
if is_stopped; then
  cancel_waiting
  exit 0
fi
if ! prepare_folders; then
  cancel_waiting
  exit 74
fi
take_place || exit 75
trap leave_place EXIT
if [ -e "$FOLDER/chain/stopped" ]; then exit 1; fi
look_at_triggers || exit 0
cp -- "$LAUNCH_FOLDER"/* "$JOB_FOLDER/"
back_up_code || exit 74

# The next job waits while this one runs: Slurm lets one of a name run at a time.
if [ "$REQUEUE" = true ]; then
  next=$(sbatch --parsable --dependency=singleton "$LAUNCH_FOLDER/job.sbatch") &&
    say "job ${next%%;*} waits for this one's end"
fi

NODE_NAMES=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\n' ' ')
export MASTER_ADDR=${NODE_NAMES%% *} MASTER_PORT WORLD_SIZE=$((SLURM_JOB_NUM_NODES * RANKS_PER_NODE))
add_arguments_of_services
record_environment
began=$(saved_iteration)
say "training begins at iteration $began on ${NODE_NAMES% } ($WORLD_SIZE ranks, $MASTER_ADDR:$MASTER_PORT)"
# Where one rank ends, the others have a minute to do so, too.
srun --label --unbuffered --wait="$SECONDS_AFTER_A_FAILURE" "${SRUN_OPTIONS[@]}" \
  bash "$LAUNCH_FOLDER/rank.sh"
code=$?
judge "$code" "$began"
say "job $JOB ends"
exit "$code"
