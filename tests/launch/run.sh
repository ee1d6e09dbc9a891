#!/bin/bash
# run.sh FERRY: ferry launch against real programs: shellcheck reads its scripts, Slurm schedules its
# jobs, pods of its manifests train on this machine, manifests are held against the published schemas.
# What cannot be tested here is reported, and is not a failure.
# shellcheck disable=SC2317  # functions are called by their names
set -uo pipefail
ferry=$(realpath "${1:?usage: run.sh FERRY}")
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 1
bad=0
attempt() {
  echo "== $1"
  shift
  "$@"
  case $? in
    0 | 77) ;;
    *) bad=1 ;;
  esac
}
written=$(mktemp -d)
trap 'rm -rf "$written"' EXIT
read_scripts() {
  if ! command -v shellcheck >/dev/null; then
    echo "not tested: shellcheck is missing"
    return 77
  fi
  shellcheck tools/launch/scripts/*.sh tests/launch/*.sh || return 1
  local preset
  for preset in $("$ferry" launch presets | awk '{ print $1 }'); do
    "$ferry" launch slurm --preset "$preset" --set "folder=$written/$preset" >/dev/null 2>&1 || return 1
    # What is sourced is read above.
    shellcheck --exclude=SC1091 "$written/$preset"/launch/* || return 1
  done
  echo "scripts of all presets are clean"
}
check_manifests() {
  if ! python3 -c 'import yaml' 2>/dev/null; then
    echo "not tested: PyYAML is missing (python3-yaml)"
    return 77
  fi
  local jobset=https://github.com/kubernetes-sigs/jobset operator=https://github.com/kubeflow/training-operator
  if ! git clone -q --depth 1 "$jobset" "$written/jobset" 2>/dev/null ||
    ! git clone -q --depth 1 --branch v1.8.1 "$operator" "$written/operator" 2>/dev/null; then
    echo "not tested: schemas cannot be fetched here"
    return 77
  fi
  python3 tests/launch/check_manifests.py "$ferry" "$written/operator" "$written/jobset"
}
attempt 'scripts' read_scripts
attempt 'manifests' check_manifests
attempt 'pods' tests/launch/pods.sh "$ferry"
attempt 'Slurm' tests/launch/slurm.sh "$ferry"
exit "$bad"
