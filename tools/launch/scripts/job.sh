# shellcheck shell=bash
# What a job does around the training program. Sourced after chain.sh.

# The program's code, copied once, so that later jobs run what the first one ran.
back_up_code() {
  local copy="$FOLDER/code"
  [ "$BACK_UP_CODE" = true ] || return 0
  if [ ! -e "$copy" ]; then
    say "copying $CODE_FOLDER to $copy"
    rm -rf -- "$copy.part"
    if [ -d "$CODE_FOLDER/.git" ] && command -v git >/dev/null; then
      mkdir -p -- "$copy.part" &&
        git -C "$CODE_FOLDER" ls-files -z --cached --others --exclude-standard |
        tar -C "$CODE_FOLDER" --null --ignore-failed-read -T - -cf - | tar -C "$copy.part" -xf -
    else
      cp -a -- "$CODE_FOLDER" "$copy.part"
    fi || {
      say "$CODE_FOLDER cannot be copied to $copy"
      return 1
    }
    mv -- "$copy.part" "$copy" || return 1
  fi
  say "the code is $copy"
  export CODE_FOLDER="$copy"
}

# Names that look like secrets keep them.
print_environment() {
  local name
  while IFS= read -r name; do
    case $name in
      *KEY* | *TOKEN* | *SECRET* | *PASSWORD* | *CREDENTIAL*) printf '%s=(hidden)\n' "$name" ;;
      *) printf '%s=%q\n' "$name" "${!name-}" ;;
    esac
  done < <(compgen -e)
}

# What this job ran, with what and where.
record_environment() {
  local rule
  rule=$(printf '=%.0s' {1..100})
  {
    date
    printf '%s\ncommand:' "$rule"
    printf ' %q' "${PROGRAM[@]}" "${ARGUMENTS[@]}"
    printf '\n%s\nsettings:\n' "$rule"
    cat -- "$LAUNCH_FOLDER/settings.sh"
    printf '%s\ncontainer: %s %s\n' "$rule" "$CONTAINER_KIND" "$CONTAINER_IMAGE"
    if [ -n "$CONTAINER_IMAGE" ] && [ -f "$CONTAINER_IMAGE" ]; then ls -l -- "$CONTAINER_IMAGE"; fi
    printf '%s\nnodes: %s\n' "$rule" "${NODE_NAMES:-$(uname -n)}"
    printf '%s\ncode: %s\n' "$rule" "${CODE_FOLDER:-none}"
    if [ -n "$CODE_FOLDER" ] && [ -e "$CODE_FOLDER/.git" ]; then
      git -C "$CODE_FOLDER" rev-parse --verify HEAD
      git -C "$CODE_FOLDER" status --short | head -n 100
    fi
    printf '%s\nprogram: ' "$rule"
    command -v -- "$PROGRAM_FILE"
    if [ "$PROGRAM_KIND" = ferry ]; then
      "$PROGRAM_FILE" --version
    else
      "$PROGRAM_FILE" -m pip list
    fi
    printf '%s\nprocessor:\n' "$rule"
    uname -a
    grep -m 1 'model name' /proc/cpuinfo
    printf '%s\nGPUs:\n' "$rule"
    if command -v nvidia-smi >/dev/null; then nvidia-smi; else echo 'no nvidia-smi'; fi
    printf '%s\nenvironment:\n' "$rule"
    print_environment
  } >"$JOB_FOLDER/compute_environment.txt" 2>&1 || say "the environment cannot be recorded completely"
}

# Arguments that depend on the environment. Keys of services stay in it.
add_arguments_of_services() {
  [ -n "$WANDB_PROJECT" ] || return 0
  if [ -z "${WANDB_API_KEY:-}" ]; then
    say "WANDB_API_KEY is not set: nothing goes to Weights & Biases"
    export WANDB_MODE=disabled
    return 0
  fi
  if [ -d "$FOLDER/logging/wandb/latest-run" ] && command -v wandb >/dev/null; then
    wandb sync "$FOLDER/logging/wandb/latest-run" || say "the run before this one cannot be synced"
  fi
  export SERVICE_ARGUMENTS="wandb"
}

# Runs the ranks of this node, and sets CODE to what they ended with. TERM, INT and the exit signal
# are handed on, and remembered in IS_TOLD_TO_END.
run_ranks() {
  bash "$LAUNCH_FOLDER/ranks.sh" &
  RANKS=$!
  if $IS_TOLD_TO_END; then hand_on; fi
  # A signal ends the wait, but not the ranks.
  while true; do
    wait "$RANKS"
    CODE=$?
    kill -0 "$RANKS" 2>/dev/null || break
  done
  RANKS=
}

hand_on() {
  IS_TOLD_TO_END=true
  if [ -n "$RANKS" ]; then kill -s "$EXIT_SIGNAL" "$RANKS" 2>/dev/null; fi
}

# What run_ranks needs.
watch_signals() {
  export CODE=0
  RANKS='' IS_TOLD_TO_END=false
  trap hand_on TERM INT "$EXIT_SIGNAL"
}
