#!/bin/bash
# run.sh MODELS: loads what make_models.py wrote into Megatron-LM and holds its logits against those of transformers.
#
#   MEGATRON=...       a checkout of Megatron-LM
#   MEGATRON_ARGS=...  arguments for it besides; by default those for Transformer Engine in fp32
#   CASES=... LAYOUTS=...  which of them; all by default
#   BAR=...            largest difference over the mean |logit|; 8e-6 by default
#   JOBS=...           how many at once; 4 by default
# Layouts of more ranks than there are GPUs are left out. Logs: MODELS/CASE/LAYOUT.log
set -u
here=$(cd "$(dirname "$0")" && pwd)
models=$(realpath "$1")
cd "${MEGATRON:?is the folder of a Megatron-LM checkout}" || exit 1
export PYTHONPATH=$PWD CUDA_DEVICE_MAX_CONNECTIONS=1 OMP_NUM_THREADS=1
gpus=$(nvidia-smi -L | wc -l)

check() { # CASE LAYOUT
    run=$models/$1/$2
    flags=$(cat "$run.args")
    # With tensor ranks, experts on ranks of their own work on parts of the sequence.
    [ "$2" = tp2ep2 ] && flags="$flags --sequence-parallel"
    # shellcheck disable=SC2086 # lists of arguments
    timeout 240 python3 -m torch.distributed.run --standalone --nproc_per_node "$(cat "$run.ranks")" \
        "$here/megatron_logits.py" "$models/$1/logits.npz" "${BAR:-8e-6}" --load "$run" $flags \
        --micro-batch-size 2 --global-batch-size 4 --train-iters 1 --lr 1e-4 --mock-data --vocab-size 250 \
        ${MEGATRON_ARGS---attention-backend unfused --no-rope-fusion} > "$run.log" 2>&1
    code=$?
    line=$(grep -ao 'DISTANCE .*' "$run.log" | tail -1)
    printf '%-28s %-10s %s\n' "$1" "$2" "${line:-FAILED ($code): see $run.log}"
    return $code
}
export -f check
export here models

for case in ${CASES:-$(ls "$models")}; do
    for ranks in "$models/$case"/*.ranks; do
        layout=$(basename "$ranks" .ranks)
        case " ${LAYOUTS:-$layout} " in *" $layout "*) ;; *) continue ;; esac
        [ "$(cat "$ranks")" -le "$gpus" ] && echo "$case $layout"
    done
done | xargs -P "${JOBS:-4}" -n 2 bash -c 'check "$@"' _
