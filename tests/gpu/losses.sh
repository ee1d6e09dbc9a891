#!/bin/bash
# losses.sh RUNS DATA LOG: Megatron-LM continues from what make_runs.sh wrote, and its losses are held against LOG.
#
# RUNS is make_runs.sh's OUT, DATA the prefix of the data that the run was trained with (PREFIX.bin, PREFIX.idx), LOG what Megatron-LM printed when it
# continued from the original itself.
#
#   MEGATRON=...       a checkout of Megatron-LM
#   MEGATRON_ARGS=...  arguments for it besides; by default none
#   TRAIN_ARGS=...     arguments of the run that its checkpoint does not give; by default those of tests/fixtures/megatron
#   BAR=...            largest difference of a loss; by default 2.5e-5, what Megatron-LM's own continuations at two layouts differ by
# Runs of more ranks than there are GPUs are left out. Logs: RUNS/NAME.log
set -u
runs=$(realpath "$1") data=$(realpath "$2.bin") log=$(realpath "$3")
data=${data%.bin}
cd "${MEGATRON:?is the folder of a Megatron-LM checkout}" || exit 1
export PYTHONPATH=$PWD CUDA_DEVICE_MAX_CONNECTIONS=1 OMP_NUM_THREADS=1
gpus=$(nvidia-smi -L | wc -l)
default_args="--seq-length 64 --micro-batch-size 2 --global-batch-size 8 --lr 1e-3 --min-lr 1e-4 --lr-decay-iters 100 --lr-warmup-iters 5
  --lr-decay-style cosine --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --tokenizer-type NullTokenizer --vocab-size 250
  --make-vocab-size-divisible-by 32 --split 99,1,0 --train-iters 30 --bf16 --use-distributed-optimizer"

# losses LOG: lines "ITERATION LOSS"
losses() { sed -nE 's/.*iteration +([0-9]+)\/.*lm loss: ([^ ]+).*/\1 \2/p' "$1"; }

last=$(losses "$log" | tail -1 | cut -d' ' -f1)
failed=0
for ranks in "$runs"/*.ranks; do
    run=${ranks%.ranks}
    count=$(cat "$ranks")
    [ "$count" -le "$gpus" ] || continue
    [ -e "$run.exact" ] || count=$((gpus / count * count))
    # shellcheck disable=SC2086,SC2046 # lists of arguments
    timeout 280 python3 -m torch.distributed.run --standalone --nproc_per_node "$count" pretrain_gpt.py \
        --load "$run" --use-checkpoint-args $(cat "$run.args") ${TRAIN_ARGS-$default_args} ${MEGATRON_ARGS-} \
        --data-path "$data" --data-cache-path "$run.cache" --exit-interval "$last" --log-interval 1 --eval-iters 0 --eval-interval 1000 >"$run.log" 2>&1
    code=$?
    losses "$run.log" | awk -v bar="${BAR:-2.5e-5}" -v name="$(basename "$run") on $count" -v code=$code -v log_file="$run.log" '
        FNR == NR { expected[$1] = $2; ++count; next }
        $1 in expected { ++seen; d = $2 - expected[$1]; if (d < 0) d = -d; if (d > worst) worst = d }
        END {
            good = seen == count && worst <= bar
            printf "%-24s %s\n", name, seen == count ? sprintf("%d losses, worst difference %.1e %s", seen, worst, good ? "ok" : "FAILED") \
                                                     : sprintf("FAILED (%d): see %s", code, log_file)
            exit !good
        }' <(losses "$log") - || failed=1
done
exit $failed
