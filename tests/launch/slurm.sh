#!/bin/bash
# ferry launch under a real Slurm of one node: tests/launch/slurm.sh FERRY [CASE...]
# Each case trains for real, in jobs that Slurm schedules, and compares what is saved at the end with
# an unbroken run, bit for bit. Exit code 77, and the reason, where Slurm cannot be started here.
# Cases: requeue, signal, triggers, crash, guardrail, failures, hostile. All take some five minutes,
# most of which Slurm's time limits of whole minutes take.
# shellcheck disable=SC2317  # cases are called by their names
set -uo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
ferry=$(realpath "${1:?usage: slurm.sh FERRY [CASE...]}")
shift
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(requeue triggers crash guardrail failures hostile signal)
# shellcheck source=/dev/null
. "$here/slurm_here.sh"
problem=$(slurm_problem)
if [ -n "$problem" ]; then
  echo "not tested: $problem"
  exit 77
fi
work=$(mktemp -d)
finish() {
  scancel --user="$(id -un)" 2>/dev/null
  stop_slurm
  rm -rf "$work"
}
trap finish EXIT
if ! start_slurm "$work/slurm"; then
  echo "not tested: Slurm does not start here"
  exit 77
fi
bad=0
fail() {
  echo "FAILED: $*"
  bad=1
}
expect() { [ "$2" = "$3" ] || fail "$1: $2 instead of $3"; }
expect_text() { grep -q -- "$3" "$2" 2>/dev/null || fail "$1: '$3' is not in $2: $(tail -n 3 "$2" 2>&1)"; }

# The run that the chains below have to end like: two ranks, tensor-parallel, 24 iterations.
common=(--preset one-machine --set ranks.per_node=2 arguments.tensor-model-parallel-size=2
  arguments.train-iters=24 arguments.save-interval=12 arguments.log-interval=2
  environment.OMP_NUM_THREADS=1)
launch() {
  local folder=$1
  shift
  "$ferry" launch slurm "${common[@]}" "folder=$folder" "name=$(basename "$folder" | tr -cd 'a-z0-9')" "$@" \
    >"$work/launch.txt" 2>&1 || fail "ferry launch: $(cat "$work/launch.txt")"
}
start() { bash "$1/launch/submit.sh" >/dev/null || fail "submit.sh"; }
jobs_left() { squeue --noheader --format=%i | wc -l; }
wait_for_jobs() {
  local i
  for ((i = 0; i < 240; ++i)); do
    [ "$(jobs_left)" = 0 ] && return
    sleep 0.5
  done
  fail "jobs are still there: $(squeue --noheader)"
  scancel --user="$(id -un)"
}
wait_until() { # SECONDS COMMAND...
  local i limit=$1
  shift
  for ((i = 0; i < limit * 10; ++i)); do
    "$@" && return
    sleep 0.1
  done
  fail "never came true: $*"
}
has_saved() { [ -s "$1/checkpoints/latest_checkpointed_iteration.txt" ]; }
is_pending() { [ -n "$(squeue --noheader --states=PENDING)" ]; }
same_as_unbroken() {
  "$ferry" diff "$work/unbroken/checkpoints" "$1/checkpoints" --quiet >/dev/null ||
    fail "$1: the state differs from the unbroken run's"
}
stopped() { expect_text "$(basename "$1")" "$1/chain/stopped" "$2"; }
job_count() { find "$1/debug" -mindepth 1 -maxdepth 1 | wc -l; }

launch "$work/unbroken"
start "$work/unbroken"
wait_for_jobs
stopped "$work/unbroken" 'training is finished: iteration 24 of 24'
expect_text unbroken "$work/unbroken/checkpoints/progress.txt" 'Job ID: [0-9]'

# Every job ends after twelve iterations; each queues the next, until training is finished.
case_requeue() {
  local run=$work/requeue
  launch "$run" chain.requeue=true arguments.exit-interval=12
  start "$run"
  wait_until 30 is_pending
  wait_for_jobs
  stopped "$run" 'training is finished'
  expect 'requeue: jobs that trained' "$(job_count "$run")" 2
  same_as_unbroken "$run"
}

# The exit signal some time before the limit: saved in between, and gone on from there.
case_signal() {
  local run=$work/signal
  launch "$run" slurm.time=00:02:00 chain.signal_seconds=60 chain.requeue=true \
    arguments.train-iters=1000000 arguments.save-interval=1000000 arguments.log-interval=100 \
    arguments.lr-warmup-iters=4 arguments.lr-decay-iters=24
  start "$run"
  wait_until 150 has_saved "$run"
  wait_until 60 grep -rqs 'exiting program after receiving SIGUSR2' "$run/logs"
  local saved
  saved=$(cat "$run/checkpoints/latest_checkpointed_iteration.txt")
  [ $((saved % 1000000)) -ne 0 ] || fail "signal: saved at an interval, $saved"
  wait_until 60 grep -rq "training begins at iteration $saved" "$run/logs"
  touch "$run/triggers/exit"
  wait_for_jobs
  stopped "$run" 'exit trigger'
}

case_triggers() {
  local run=$work/triggers
  launch "$run" chain.requeue=true arguments.train-iters=1000000 arguments.save-interval=1000000 \
    arguments.lr-decay-iters=24
  mkdir -p "$run/triggers" && touch -d '1 hour ago' "$run/triggers/exit"
  start "$run"
  wait_until 60 grep -rqs 'older than this chain' "$run/logs"
  wait_until 60 grep -rqs 'iteration  ' "$run/logs"
  touch "$run/triggers/save"
  wait_until 60 has_saved "$run"
  wait_until 30 test ! -e "$run/triggers/save"
  touch "$run/triggers/exit"
  wait_for_jobs
  stopped "$run" 'the exit trigger was found'
  [ ! -e "$run/triggers/exit" ] || fail "triggers: exit is still there"
}

# A rank is killed after the first save: the next job goes on, and ends like the unbroken run.
case_crash() {
  local run=$work/crash
  launch "$run" chain.requeue=true arguments.train-iters=24
  # The first job's second rank kills itself once something is saved.
  # shellcheck disable=SC2016  # it is rank.sh's shell that looks into it
  sed -i 's|^exec "|if [ "$RANK" = 1 ] \&\& [ ! -e "$FOLDER/crashed" ]; then p=$$; (until [ -s "$SAVE_FOLDER/latest_checkpointed_iteration.txt" ]; do sleep 0.01; done; touch "$FOLDER/crashed"; kill -9 $p) \& fi\n&|' \
    "$run/launch/rank.sh"
  start "$run"
  wait_for_jobs
  [ -e "$run/crashed" ] || fail "crash: nothing was killed"
  stopped "$run" 'training is finished'
  same_as_unbroken "$run"
}

# Arguments that the trainer refuses end the chain at once, and cancel what waits.
case_guardrail() {
  local run=$work/guardrail
  launch "$run" chain.requeue=true
  sed -i 's/^  --train-iters$/  --train-iter/' "$run/launch/settings.sh"
  start "$run"
  wait_for_jobs
  stopped "$run" 'the configuration is wrong (exit code 2)'
  expect 'guardrail: jobs' "$(job_count "$run")" 1
}

case_failures() {
  local run=$work/failures
  launch "$run" chain.requeue=true program.ferry=/missing/ferry
  start "$run"
  wait_for_jobs
  stopped "$run" '3 jobs in a row ended without a new checkpoint'
  expect 'failures: jobs' "$(job_count "$run")" 3
  # A job by hand does not begin what was stopped.
  sbatch "$run/launch/job.sbatch" >/dev/null
  wait_for_jobs
  expect 'failures: jobs after a stop' "$(job_count "$run")" 3
}

# Blanks, quotes and what a shell would run, in the experiment's path.
case_hostile() {
  local run="$work/a b'c\"d \$(touch PWNED)%j"
  launch "$run" name=hostile
  start "$run"
  wait_for_jobs
  stopped "$run" 'training is finished'
  [ -n "$(ls "$run/logs")" ] || fail "hostile: no log"
  [ ! -e PWNED ] || fail "hostile: the shell looked into the path"
  same_as_unbroken "$run"
}

for one in "${cases[@]}"; do
  was=$bad
  bad=0
  "case_$one"
  [ "$bad" = 0 ] && echo "ok: $one"
  [ "$bad" = 0 ] || for log in "$work/$one"/logs/*; do tail -n 5 "$log"; done
  bad=$((was | bad))
done
exit "$bad"
