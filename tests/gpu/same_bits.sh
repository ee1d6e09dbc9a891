#!/bin/sh
# same_bits.sh FERRY WORK [STEPS [ARGUMENTS]]: trains the same model twice on a GPU, in bf16, and once more interrupted in the middle; all state and all
# log figures have to be the same bits. WORK is an empty folder. ARGUMENTS, one word: more of ferry train's ("--fp8-format hybrid").
set -eu
ferry=$1
work=$2
steps=${3:-200}
arguments=${4:-}
train() { # NAME, MORE...
    name=$1
    shift
    "$ferry" train --device cuda --bf16 --mock-data --tokenizer-type NullTokenizer --vocab-size 8192 --num-layers 4 --hidden-size 512 --num-attention-heads 8 \
        --seq-length 512 --max-position-embeddings 512 --micro-batch-size 8 --global-batch-size 16 --lr 1e-3 --train-iters "$steps" --eval-iters 0 \
        --save "$work/$name" --save-interval "$((steps / 2))" --async-save --log-interval 1 $arguments "$@" >>"$work/$name.log" 2>"$work/$name.errors"
}
# The line of a process's second iteration averages over its first, too.
figures() { grep -o 'iteration  *[0-9]*/.*' "$work/$1.log" | sed "s/elapsed time per iteration (ms): [0-9.]* |//; $((steps / 2 + 2))d"; }
train first
train second
train third --exit-interval "$((steps / 2))"
train third --load "$work/third"
for name in first second third; do figures $name >"$work/$name.figures"; done
for name in second third; do
    cmp "$work/first.figures" "$work/$name.figures"
    "$ferry" diff "$work/first" "$work/$name" --quiet
    echo "$name: the same bits as first after $steps steps"
done
