#!/bin/sh
# check_processes.sh FERRY FIXTURES WORK: ranks that are processes train to the bits that threads train
# to; an error of one of them, or its death, ends all.
set -eu
ferry=$1 fixtures=$2 work=$3
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMP_NUM_THREADS=1  # sums depend on it
rm -rf "$work" && mkdir -p "$work" && cd "$work"

common="--use-checkpoint-args --data-path $fixtures/data/corpus_a_text_document --data-cache-path $work/cache
    --split 99,1,0 --seq-length 64 --max-position-embeddings 128 --micro-batch-size 2 --global-batch-size 8
    --lr 1e-3 --min-lr 1e-4 --lr-decay-iters 100 --lr-warmup-iters 5 --lr-decay-style cosine --weight-decay 0.1
    --clip-grad 1.0 --adam-beta2 0.95 --tokenizer-type NullTokenizer --vocab-size 250
    --make-vocab-size-divisible-by 32 --eval-iters 2 --eval-interval 2 --log-interval 1 --attention-dropout 0 --hidden-dropout 0
    --seed 11 --transformer-impl local --qk-layernorm --norm-epsilon 1e-6 --rotary-base 1000000"
dense="--load $fixtures/megatron/f32_qwen3"
experts="--load $fixtures/megatron/f32_qwen3moe --moe-router-topk 2 --moe-router-load-balancing-type aux_loss
    --moe-aux-loss-coeff 1e-2 --dist-ckpt-optim-fully-reshardable"
short="--train-iters 30 --exit-interval 8 --save run --save-interval 4"

# lines LOG: those of iterations and evaluations, but for when they were printed and how long each took.
lines() { sed -n '/lm loss/{s/^ *\[[^]]*\]//;s/elapsed time[^|]*|//;p;}' "$1"; }

# same NAME RANKS ARGUMENTS...: threads and processes print and save the same. Paths in what is saved are
# relative: each runs in a folder of its own.
same() {
    name=$1 ranks=$2
    shift 2
    mkdir -p "$name/threads" "$name/processes"
    # shellcheck disable=SC2086 # lists of words
    (cd "$name/threads" && "$ferry" train $common $short "$@" >../threads.log 2>../threads.err) ||
        { cat "$name/threads.err"; exit 1; }
    # shellcheck disable=SC2086
    (cd "$name/processes" && timeout 120 mpirun -n "$ranks" "$ferry" train $common $short "$@" >../processes.log 2>../processes.err) ||
        { cat "$name/processes.err"; exit 1; }
    lines "$name/threads.log" >"$name/threads.lines"
    lines "$name/processes.log" >"$name/processes.lines"
    grep -q 'iteration  *8/' "$name/threads.lines" && grep -q 'validation' "$name/threads.lines"
    diff "$name/threads.lines" "$name/processes.lines"
    diff -r "$name/threads/run" "$name/processes/run"
    # What is printed once is printed by one rank.
    for once in 'before the start of training step' 'successfully saved checkpoint from iteration  *8 ' 'exiting program'; do
        [ "$(grep -c "$once" "$name/processes.log")" = 1 ] || { cat "$name/processes.log"; exit 1; }
    done
    [ "$(grep -c 'Setting num_layers to' "$name/processes.err")" = 1 ]
    echo "$name: the same lines and bytes by $ranks threads and processes"
}

# shellcheck disable=SC2086
{
    same tensor 2 $dense --tensor-model-parallel-size 2 --sequence-parallel
    same pipeline 2 $dense --pipeline-model-parallel-size 2
    same data 2 $dense --data-parallel-size 2 --use-distributed-optimizer
    same context 2 $dense --context-parallel-size 2
    same tensor-pipeline 4 $dense --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
    same interleaved 4 $dense --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 --data-parallel-size 2 \
        --use-distributed-optimizer
    same experts 4 $experts --pipeline-model-parallel-size 2 --expert-model-parallel-size 2 --data-parallel-size 2 \
        --use-distributed-optimizer
    same expert-tensor 4 $experts --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 \
        --data-parallel-size 2 --use-distributed-optimizer
    OMP_NUM_THREADS=2 same kernel-threads 2 $dense --tensor-model-parallel-size 2
    same asynchronous 2 $dense --tensor-model-parallel-size 2 --async-save
    same rank-folders 4 $dense --tensor-model-parallel-size 2 --data-parallel-size 2 --use-distributed-optimizer --ckpt-format torch
}

# only.sh RANK COMMANDS PROGRAM...: one rank does something else before; each prints its number.
cat >only.sh <<'X'
rank=$1 commands=$2
shift 2
echo $$ >"pid-$OMPI_COMM_WORLD_RANK"
[ "$OMPI_COMM_WORLD_RANK" != "$rank" ] || eval "$commands"
exec "$@"
X
endless="--train-iters 100000 --override-opt-param-scheduler"
four="$dense --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"

# ends LEAST_CODE MOST_CODE: the job that runs in the background ends within a minute.
ends() {
    ( sleep 60; kill -9 "$launcher" ) >/dev/null 2>&1 & # holds nothing open that others wait for
    watchdog=$!
    code=0
    wait "$launcher" || code=$?
    kill "$watchdog" 2>/dev/null || true
    [ "$code" -ge "$1" ] && [ "$code" -le "$2" ] && return
    cat job.log job.err
    echo "exit code $code" >&2
    exit 1
}

# starts RANK COMMANDS ARGUMENTS...: trains in the background; returns after some iterations
starts() {
    : >job.log
    # shellcheck disable=SC2086
    mpirun -n 4 sh only.sh "$1" "$2" "$ferry" train $common $four $endless $3 >job.log 2>job.err &
    launcher=$!
}
until_iteration() {
    tries=0
    until grep -q "iteration  *$1/" job.log; do
        tries=$((tries + 1))
        [ $tries -lt 1500 ] || { cat job.log job.err; exit 1; }
        sleep 0.01
    done
}

# One that is killed.
starts -1 true ''
until_iteration 9
kill -9 "$(cat pid-1)"
ends 1 255
grep -qi 'signal 9\|killed' job.err
echo "killed: all end"

# One whose lines nobody takes after some, the last, which prints those of iterations: it goes on.
mkfifo lines
starts 3 "trap '' PIPE; head -n 4 lines >some-lines & exec >lines" '--exit-interval 12'
ends 0 0
grep -q 'iteration  *6/' some-lines
grep -q 'exiting program at iteration 12' job.log
echo "unheard: the run goes on"

# One that cannot go on: in a save, to where it does not see what the others see.
starts 2 'mkdir elsewhere && cd elsewhere' '--save saved --save-interval 7'
ends 3 3
[ "$(grep -c '^ferry: error: ' job.err)" = 1 ]
grep -q '^ferry: error: rank 2: ' job.err
[ ! -e saved/latest_checkpointed_iteration.txt ]
# A tokenizer that one does not see.
mkdir tokenizer
echo '{"model": {"vocab": {"a": 0, "b": 1}}}' >tokenizer/tokenizer.json
echo '{"eos_token": "a", "pad_token": "b"}' >tokenizer/tokenizer_config.json
starts 2 'cd elsewhere' '--no-use-tokenizer-model-from-checkpoint-args --tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer'
ends 1 10
[ "$(grep -c '^ferry: error: ' job.err)" = 1 ]
grep -q '^ferry: error: .*process 2 finds 250 tokens, of which -1 ends documents and -1 pads' job.err
# And what all find wrong alike.
starts -1 true '--micro-batch-size 3'
ends 2 2
[ "$(grep -c '^ferry: error: ' job.err)" = 1 ]
echo "failed: one rank's error ends all, and is reported once"

# A signal that one of them gets is everyone's end, at the same iteration.
starts -1 true '--exit-signal-handler --save signalled --save-interval 1000000'
until_iteration 7
kill -TERM "$(cat pid-2)"
ends 0 0
grep -q 'exiting program after receiving SIGTERM' job.log
[ -s signalled/latest_checkpointed_iteration.txt ]
echo "signalled: all save and end"

# Launchers that MPI knows nothing of.
refused() {
    expected=$1 text=$2 code=0
    shift 2
    env "$@" "$ferry" train $common $four >refused.log 2>&1 || code=$?
    [ $code = "$expected" ] && grep -q "$text" refused.log || { cat refused.log; exit 1; }
}
refused 2 'LOCAL_WORLD_SIZE=4, but not MASTER_ADDR, MASTER_PORT' RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=4
refused 5 'srun started 4 processes, as SLURM_STEP_NUM_TASKS says' SLURM_STEP_NUM_TASKS=4
echo "refused: processes that MPI does not know of"

# Under MPI and by an address, ranks with other arguments than the first one's.
code=0
timeout 60 mpirun -n 1 "$ferry" train $common $four --train-iters 8 : -n 3 "$ferry" train $common $four --train-iters 7 >unlike.log 2>&1 || code=$?
[ $code = 6 ] && grep -q 'rank 1 has --train-iters 7, and rank 0 --train-iters 8' unlike.log || { cat unlike.log; exit 1; }
echo "unlike: ranks with other arguments are refused"
echo "all passed"
