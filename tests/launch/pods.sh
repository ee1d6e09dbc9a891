#!/bin/bash
# The pods of a manifest, played on this machine: tests/launch/pods.sh FERRY
# Two processes with the environment that a PyTorchJob's operator gives to its Master and Worker (and
# that a JobSet and a Job have in their manifests) run what the ConfigMap has, and train together.
# What they save is compared with an unbroken run of one process, bit for bit.
set -uo pipefail
ferry=$(realpath "${1:?usage: pods.sh FERRY}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
fail() {
  echo "FAILED: $*"
  bad=1
}
common=(--preset one-machine --set arguments.tensor-model-parallel-size=2 arguments.train-iters=12
  arguments.log-interval=2 arguments.save-interval=6 environment.OMP_NUM_THREADS=1
  container.image=none "program.ferry=$ferry" ranks.nodes=2)
# A port that no connection out of this machine takes: pods of a cluster have an address each, those here share one.
port=$((20000 + $$ % 12000))

# FOLDER WORDS...: the manifest's files, to FOLDER/launch.
unpack() {
  local folder=$1
  shift
  "$ferry" launch kubernetes "${common[@]}" "folder=$folder" "ranks.master_port=$port" "$@" \
    >"$work/manifest.yaml" 2>"$work/notes" || fail "$(cat "$work/notes")"
  mkdir -p "$folder/launch"
  python3 - "$work/manifest.yaml" "$folder/launch" <<'END'
import pathlib, sys, yaml
for document in yaml.safe_load_all(open(sys.argv[1])):
    if document["kind"] == "ConfigMap":
        for name, text in document["data"].items():
            pathlib.Path(sys.argv[2], name).write_text(text)
END
}
# FOLDER POD VARIABLES...
pod() {
  local folder=$1 number=$2
  shift 2
  env -i PATH="$PATH" MASTER_ADDR=localhost MASTER_PORT="$port" "$@" bash "$folder/launch/pod.sh" \
    >>"$work/pod-$number.txt" 2>&1
}
both() { # FOLDER KIND
  local first
  case $2 in
    pytorchjob)
      pod "$1" 0 RANK=0 WORLD_SIZE=2 PET_NODE_RANK=0 PET_NNODES=2 &
      first=$!
      pod "$1" 1 RANK=1 WORLD_SIZE=2 PET_NODE_RANK=1 PET_NNODES=2
      ;;
    *)
      pod "$1" 0 JOB_COMPLETION_INDEX=0 &
      first=$!
      pod "$1" 1 JOB_COMPLETION_INDEX=1
      ;;
  esac
  second_code=$?
  wait "$first"
  first_code=$?
}

"$ferry" launch local "${common[@]}" ranks.nodes=1 "folder=$work/unbroken" >/dev/null 2>&1 || fail "launch local"
bash "$work/unbroken/launch/run.sh" >"$work/unbroken.txt" 2>&1 || fail "$(tail -n 3 "$work/unbroken.txt")"
for kind in pytorchjob jobset; do
  run=$work/$kind
  # Asked to end halfway, both pods ask to be started again; then they finish.
  unpack "$run" "kubernetes.kind=$kind" arguments.exit-interval=6
  both "$run" "$kind"
  [ "$first_code $second_code" = '85 85' ] || fail "$kind: halfway pods end with $first_code $second_code"
  both "$run" "$kind"
  [ "$first_code $second_code" = '0 0' ] || fail "$kind: pods end with $first_code $second_code"
  "$ferry" diff "$work/unbroken/checkpoints" "$run/checkpoints" --quiet >/dev/null || fail "$kind: the state differs"
  [ "$bad" = 0 ] && echo "ok: $kind"
done
# A pod that is drained saves, and asks to be started again.
unpack "$work/drained" arguments.train-iters=1000000 arguments.save-interval=1000000 arguments.lr-decay-iters=24 \
  arguments.log-interval=100
pod "$work/drained" 0 RANK=0 PET_NODE_RANK=0 &
pod "$work/drained" 1 RANK=1 PET_NODE_RANK=1 &
worker=$!
for ((i = 0; i < 600; ++i)); do
  grep -q 'iteration  *100/' "$work"/pod-?.txt && break
  sleep 0.1
done
pkill -TERM -P "$worker" bash
wait "$worker"
code=$?
wait
[ "$code" = 85 ] || fail "drained: exit code $code"
[ -s "$work/drained/checkpoints/latest_checkpointed_iteration.txt" ] || fail "drained: nothing is saved"
if [ "$bad" = 0 ]; then echo "ok: drained"; else tail -n 5 "$work"/pod-*.txt; fi
exit "$bad"
