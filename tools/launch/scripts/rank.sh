#!/bin/bash
# One rank: sets what the program wants to know of its place, and becomes the program.
# RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set, or follow from Slurm's.
set -uo pipefail
LAUNCH_FOLDER=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$LAUNCH_FOLDER/settings.sh"

export RANK=${RANK:-$SLURM_PROCID} LOCAL_RANK=${LOCAL_RANK:-$SLURM_LOCALID}
export WORLD_SIZE=${WORLD_SIZE:-$SLURM_NTASKS}
NODE=$(uname -n)
command=("${PROGRAM[@]}" "${ARGUMENTS[@]}")
if [ -n "${CODE_FOLDER:-}" ] && [ "$PROGRAM_KIND" = megatron ]; then
  export PYTHONPATH="$CODE_FOLDER${PYTHONPATH:+:$PYTHONPATH}"
  command=("${PROGRAM[@]}" "$CODE_FOLDER/$PROGRAM_SCRIPT" "${ARGUMENTS[@]}")
fi
if [ "${SERVICE_ARGUMENTS:-}" = wandb ]; then
  command+=(--wandb-project "$WANDB_PROJECT" --wandb-exp-name "$NAME-${JOB:-0}" --wandb-save-dir "$FOLDER/logging")
fi
if [ "$NCCL_LOGS" = true ]; then
  export NCCL_DEBUG=INFO
  export NCCL_DEBUG_FILE="$JOB_FOLDER/nccl-node-$NODE-local-rank-$LOCAL_RANK-rank-$RANK.txt"
fi
if [ "$NSYS" = true ]; then
  command=(nsys profile -s none '--trace=nvtx,cudnn,cublas,cuda' --force-overwrite true
    --capture-range=cudaProfilerApi --capture-range-end=stop
    --output="$JOB_FOLDER/nsys-node-$NODE-rank-$RANK.nsys-rep" "${command[@]}" --profile)
fi
if [ "$CONTAINER_KIND" = apptainer ]; then
  command=(apptainer exec "${CONTAINER_OPTIONS[@]}" "$CONTAINER_IMAGE" "${command[@]}")
fi
# Memory over time, once a node, for as long as this process lives.
if [ "$MEMORY_LOGS" = true ] && [ "$LOCAL_RANK" = 0 ]; then
  program=$$
  while kill -0 "$program" 2>/dev/null; do
    printf '%s node %s ' "$(date '+%Y-%m-%d %H:%M:%S')" "$NODE"
    awk '/^MemAvailable/ { printf "available %d MiB\n", $2 / 1024 }' /proc/meminfo
    if command -v nvidia-smi >/dev/null; then
      nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv,noheader
    fi
    sleep "$MEMORY_LOG_SECONDS"
  done >"$JOB_FOLDER/memory-node-$NODE.txt" 2>&1 &
fi
exec "${command[@]}"
