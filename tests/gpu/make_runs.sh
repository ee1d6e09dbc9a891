#!/bin/bash
# make_runs.sh FERRY RUN OUT: one training checkpoint at other layouts and in other formats, for losses.sh. No GPU.
#
# RUN is a run folder that Megatron-LM wrote, optimizer included. OUT/NAME is a run folder, OUT/NAME.args what Megatron-LM
# needs to load it besides --use-checkpoint-args, OUT/NAME.ranks how many ranks it is for: with whole multiples of
# them the rest is data-parallel, but where OUT/NAME.exact says that the optimizer's state is cut for that many.
set -eu
ferry=$1 run=$2 out=$3
mkdir -p "$out"
full=--dist-ckpt-optim-fully-reshardable legacy='--ckpt-format torch'

make() { # NAME SOURCE TP PP ARGUMENTS FERRY_OPTIONS...
    name=$1 source=$2 tp=$3 pp=$4
    echo $((tp * pp)) >"$out/$name.ranks"
    echo "--tensor-model-parallel-size $tp --pipeline-model-parallel-size $pp $5" >"$out/$name.args"
    shift 5
    "$ferry" reshard "$source" "$out/$name" --overwrite --tp "$tp" --pp "$pp" "$@" >/dev/null
    echo "$name"
}

make tp1_full "$run" 1 1 $full --optimizer fully_reshardable
make tp2_full "$run" 2 1 $full --optimizer fully_reshardable
make pp2_full "$run" 1 2 $full --optimizer fully_reshardable
make tp1dp2_dpr "$run" 1 1 "" --dp 2 --optimizer dp_reshardable
make tp2pp2_dpr "$run" 2 2 "" --dp 1 --optimizer dp_reshardable
make pp2_legacy "$run" 1 2 "$legacy" --to torch --optimizer legacy
make tp2_legacy "$run" 2 1 "$legacy" --to torch --optimizer legacy
make from_legacy "$out/pp2_legacy" 2 1 $full
echo 2 >"$out/tp1dp2_dpr.ranks"
touch "$out/tp1dp2_dpr.exact" "$out/tp2pp2_dpr.exact"
