#!/bin/bash
# make_runs.sh FERRY RUN OUT [SAVE_RUN]: one training checkpoint at other layouts and in other formats, for losses.sh. No GPU.
#
# With the test program save_run also what ranks make of it that each save what they hold of it in memory.
# RUN is a run folder that Megatron-LM wrote, optimizer included. OUT/NAME is a run folder, OUT/NAME.args what Megatron-LM
# needs to load it besides --use-checkpoint-args, OUT/NAME.ranks how many ranks it is for: with whole multiples of
# them the rest is data-parallel, but where OUT/NAME.exact says that the optimizer's state is cut for that many.
set -eu
ferry=$1 run=$2 out=$3 save_run=${4-}
mkdir -p "$out"
full=--dist-ckpt-optim-fully-reshardable legacy='--ckpt-format torch'

describe() { # NAME TP PP ARGUMENTS
    echo $(($2 * $3)) >"$out/$1.ranks"
    echo "--tensor-model-parallel-size $2 --pipeline-model-parallel-size $3 $4" >"$out/$1.args"
    echo "$1"
}

make() { # NAME SOURCE TP PP ARGUMENTS FERRY_OPTIONS...
    name=$1 source=$2 tp=$3 pp=$4
    describe "$name" "$tp" "$pp" "$5"
    shift 5
    "$ferry" reshard "$source" "$out/$name" --overwrite --tp "$tp" --pp "$pp" "$@" >/dev/null
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
[ -n "$save_run" ] || exit 0

save() { # NAME FORM TP PP DP LOAD_TP LOAD_PP ARGUMENTS
    rm -rf "${out:?}/$1"
    "$save_run" "$run" "$out/$1" "$2" "$3" "$4" 1 "$5" >/dev/null
    describe "$1" "$6" "$7" "$8"
}

save saved_full_tp2dp2_at_tp1 fully_reshardable 2 1 2 1 1 $full
save saved_full_tp2dp2_at_tp2 fully_reshardable 2 1 2 2 1 $full
save saved_full_tp2pp2_at_pp2 fully_reshardable 2 2 1 1 2 $full
save saved_dpr_dp2 dp_reshardable 1 1 2 1 1 ""
save saved_dpr_tp2 dp_reshardable 2 1 1 2 1 ""
save saved_dpr_pp2 dp_reshardable 1 2 1 1 2 ""
echo 2 >"$out/saved_dpr_dp2.ranks"
touch "$out/saved_dpr_dp2.exact" "$out/saved_dpr_tp2.exact" "$out/saved_dpr_pp2.exact"
