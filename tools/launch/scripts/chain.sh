# shellcheck shell=bash disable=SC2153
# The chain of an experiment's jobs. Sourced after settings.sh, whose variables it uses, as it does
# JOB and JOB_FOLDER, START_SCRIPT, and the functions cancel_waiting and is_job_running.
#
# A chain is the row of jobs that train one experiment, each going on where the one before it ended.
# Its state is in $FOLDER/chain:
#   started    touched when a person starts the chain: triggers that are older are stale
#   stopped    why no further job shall train; removed when a person starts the chain again
#   failures   how many jobs in a row ended without a new checkpoint
#   running    the job that trains now, and the iteration that it began with

say() { printf '[%s] %s\n' "$(date '+%Y-%m-%d %H:%M:%S')" "$*"; }

# The last iteration that was saved; 0 before the first.
saved_iteration() {
  local text=0
  if [ -n "$SAVE_FOLDER" ] && [ -r "$SAVE_FOLDER/latest_checkpointed_iteration.txt" ]; then
    text=$(cat "$SAVE_FOLDER/latest_checkpointed_iteration.txt")
  fi
  case $text in
    '' | *[!0-9]*) echo 0 ;;
    *) echo "$((10#$text))" ;;
  esac
}

number_in() {
  local text=
  if [ -r "$1" ]; then text=$(cat "$1"); fi
  case $text in
    '' | *[!0-9]*) echo 0 ;;
    *) echo "$((10#$text))" ;;
  esac
}

# Writes a small file in one step: a full disk or a kill leaves the old one.
put() {
  local part
  part=$1.$(uname -n).$$
  { printf '%s\n' "$2" >"$part" && mv -f -- "$part" "$1"; } 2>/dev/null && return 0
  rm -f -- "$part"
  return 1
}

# Folders of the experiment. Fails, saying so, where nothing can be written.
prepare_folders() {
  local each
  for each in "$FOLDER/chain" "$FOLDER/logs" "$JOB_FOLDER" ${SAVE_FOLDER:+"$SAVE_FOLDER"} \
    ${TRIGGER_FOLDER:+"$TRIGGER_FOLDER"}; do
    if ! mkdir -p -- "$each"; then
      say "cannot create $each: is the disk full, or not yours to write?"
      return 1
    fi
  done
  if ! put "$FOLDER/chain/probe" "$JOB"; then
    say "cannot write to $FOLDER: is the disk full?"
    return 1
  fi
  rm -f -- "$FOLDER/chain/probe"
}

# A person starts the chain: what ended an earlier one is forgotten.
begin_chain() {
  mkdir -p -- "$FOLDER/chain" && rm -f -- "$FOLDER/chain/stopped" "$FOLDER/chain/failures" &&
    touch -- "$FOLDER/chain/started"
}

# No further job trains. WHY is for people, and for jobs that begin all the same.
stop_chain() {
  say "the chain ends: $1"
  put "$FOLDER/chain/stopped" "$1" || say "cannot write $FOLDER/chain/stopped"
  cancel_waiting
}

# Whether the chain was stopped; says why.
is_stopped() {
  [ -e "$FOLDER/chain/stopped" ] || return 1
  say "the chain was stopped: $(cat "$FOLDER/chain/stopped")"
  say "start it again with: bash $(printf %q "$LAUNCH_FOLDER")/$START_SCRIPT"
}

# One job of an experiment trains at a time. Fails where another one does.
take_place() {
  local other='' began=0
  if (set -C && printf '%s %s\n' "$JOB" "$(saved_iteration)" >"$FOLDER/chain/running") 2>/dev/null; then
    return 0
  fi
  read -r other began <"$FOLDER/chain/running" || true
  if [ -n "$other" ] && [ "$other" != "$JOB" ] && is_job_running "$other"; then
    say "job $other of this experiment is running: two that write to $FOLDER would spoil it. This one ends"
    return 1
  fi
  say "job ${other:-unknown} ended without a word (killed, or its node failed)"
  case $began in '' | *[!0-9]*) began=0 ;; esac
  count_job "$began"
  put "$FOLDER/chain/running" "$JOB $(saved_iteration)"
}

leave_place() { rm -f -- "$FOLDER/chain/running"; }

# A job that began with iteration $1 has ended before training has.
count_job() {
  local failures=0
  if [ "$(saved_iteration)" -le "$1" ]; then
    failures=$(($(number_in "$FOLDER/chain/failures") + 1))
    say "no new checkpoint since iteration $1: $failures of $MOST_FAILURES jobs in a row"
  fi
  put "$FOLDER/chain/failures" "$failures" || stop_chain "$FOLDER cannot be written (is the disk full?)"
  if [ "$failures" -ge "$MOST_FAILURES" ]; then
    stop_chain "$failures jobs in a row ended without a new checkpoint; the last one is $JOB, its log is in $FOLDER/logs"
  fi
}

# Whether training ended for the exit trigger, which ferry train renames when it obeys it.
has_exit_trigger() {
  [ -n "$TRIGGER_FOLDER" ] && { [ -f "$TRIGGER_FOLDER/exit" ] || [ -f "$TRIGGER_FOLDER/exit.obeyed" ]; }
}

remove_exit_trigger() { rm -f -- "${TRIGGER_FOLDER:?}/exit" "$TRIGGER_FOLDER/exit.obeyed"; }

# Triggers that lay there before the chain was started are left over. One that came while the job
# waited is obeyed. Fails where training shall not begin.
look_at_triggers() {
  local trigger
  [ -n "$TRIGGER_FOLDER" ] || return 0
  rm -f -- "$TRIGGER_FOLDER/exit.obeyed" # of an earlier run, which has ended
  for trigger in save exit; do
    [ -f "$TRIGGER_FOLDER/$trigger" ] || continue
    if [ -e "$FOLDER/chain/started" ] && [ "$FOLDER/chain/started" -nt "$TRIGGER_FOLDER/$trigger" ]; then
      say "the trigger $TRIGGER_FOLDER/$trigger is older than this chain, and is removed"
      rm -f -- "${TRIGGER_FOLDER:?}/$trigger"
    elif [ "$trigger" = exit ]; then
      remove_exit_trigger
      stop_chain "the exit trigger came while job $JOB waited"
      return 1
    fi
  done
}

# What the end of the training program means. $1: its exit code, $2: the iteration that it began with.
# Codes of ferry train: 0 done or asked to end, 2 and 5 arguments that no further job can mend.
judge() {
  local now
  now=$(saved_iteration)
  if has_exit_trigger; then
    remove_exit_trigger
    stop_chain "the exit trigger was found; the last checkpoint is of iteration $now"
  elif [ "$1" = 0 ] && [ "$LAST_ITERATION" -gt 0 ] && [ "$now" -ge "$LAST_ITERATION" ]; then
    stop_chain "training is finished: iteration $now of $LAST_ITERATION is saved"
  elif [ "$1" = 0 ] && [ -z "$SAVE_FOLDER" ]; then
    stop_chain "the program ended, and nothing is saved that a further job could go on from"
  elif [ "$PROGRAM_KIND" = ferry ] && { [ "$1" = 2 ] || [ "$1" = 5 ]; }; then
    stop_chain "the configuration is wrong (exit code $1): the error stands in the log of job $JOB"
  else
    say "exit code $1; iteration $now is saved${LAST_ITERATION:+ of $LAST_ITERATION}"
    count_job "$2"
  fi
}
