#!/bin/bash
# Starts the chain: submits its first job, which submits the next where the configuration says so.
set -uo pipefail
LAUNCH_FOLDER=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/settings.sh"
if ! command -v sbatch >/dev/null; then
  echo "there is no sbatch here: start this script where Slurm's commands are" >&2
  exit 69
fi
export JOB=none JOB_FOLDER="$FOLDER/debug"
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/chain.sh"
prepare_folders || exit 74
begin_chain || exit 74
exec sbatch "$LAUNCH_FOLDER/job.sbatch"
