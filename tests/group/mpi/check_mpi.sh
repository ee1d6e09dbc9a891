#!/bin/sh
# check_mpi.sh FERRY FIXTURES WORK [SCARCE_MEMORY]: mpirun with several processes writes the bytes
# that one process writes; a process that fails or dies in the middle takes all with it and leaves no
# target. SCARCE_MEMORY is scarce_memory.cpp, to be preloaded.
set -eu
ferry=$1 fixtures=$2 work=$3 scarce_memory=${4-}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
rm -rf "$work" && mkdir -p "$work" && cd "$work"

# same NAME COMMAND...: the command writes to a folder `out`, by 1, 2 and 4 processes
same() {
    name=$1
    shift
    "$@" >/dev/null
    mv out "$name-1"
    for n in 2 4; do
        mpirun -n $n "$@" >"$name-$n.log" 2>&1 || { cat "$name-$n.log"; exit 1; }
        mv out "$name-$n"
        diff -r "$name-1" "$name-$n"
        # One of them speaks.
        [ "$(grep -c ' -> out' "$name-$n.log")" = 1 ]
    done
    echo "$name: the same bytes by 1, 2 and 4 processes"
}

run=$fixtures/llama_tp2dp2_dpr
same hf "$ferry" convert "$run" out --to hf
same shards "$ferry" convert "$run" out --to hf --max-shard-size 20kB
same gpt2 "$ferry" convert "$fixtures/hot_gpt2" out --to hf
same torch_dist "$ferry" reshard "$run" out --tp 1 --pp 2
same buckets "$ferry" reshard "$run" out --tp 2 --pp 2 --optimizer dp_reshardable
same rank-folders "$ferry" reshard "$fixtures/qwen3moe_te_ep2pp2_dpr" out --to torch --pp 2 --ep 2
same zstd "$ferry" reshard "$run" out --compress zstd
same from-zstd "$ferry" reshard zstd-1 out --to dcp
same imported "$ferry" convert hf-1 out --to torch_dist --tp 2

# The same error on all is reported once, for no rank.
if mpirun -n 2 "$ferry" convert nowhere out --to hf >error.log 2>&1; then exit 1; fi
[ "$(grep -c '^ferry: error: nowhere' error.log)" = 1 ]

# Processes that do not find each other refuse to do the same work each: a launcher of another MPI.
code=0
PMI_SIZE=2 "$ferry" convert "$run" out --to hf >alone.log 2>&1 || code=$?
[ $code = 5 ] && [ ! -e out ]
grep -q 'mpiexec started 2 processes, as PMI_SIZE says' alone.log
# A number of something else is none of the launcher's.
mpirun -n 2 env SLURM_STEP_NUM_TASKS=3 "$ferry" convert "$run" out --to hf >/dev/null
diff -r hf-1 out
rm -r out
echo "refused: processes that MPI does not know of"

# What only reads needs no other ranks: a process of one rank may start it. What removes or writes and is
# for one process says so.
mpirun -n 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 1 ] || timeout 60 "$0" inspect "$1"' "$ferry" "$run" >/dev/null
code=0
mpirun -n 2 "$ferry" prune "$run" --keep-last 1 --dry-run >prune.log 2>&1 || code=$?
[ $code != 0 ] && grep -q 'ferry prune is for one process' prune.log
echo "alone: what only looks, and what is for one process"

# only.sh RANK COMMANDS PROGRAM...: one rank does something else before.
cat >only.sh <<'X'
rank=$1 commands=$2
shift 2
[ "${OMPI_COMM_WORLD_RANK-${PMI_RANK-}}" != "$rank" ] || eval "$commands"
exec "$@"
X
# fails CODE TEXT COMMAND...: as one of four fails, all end soon, with this code; the error is reported once.
fails() {
    expected=$1 text=$2 code=0
    shift 2
    timeout 60 mpirun -n 4 sh only.sh "$@" >fails.log 2>&1 || code=$?
    [ $code = "$expected" ] && [ "$(grep -c '^ferry: error: ' fails.log)" = 1 ] && [ ! -e out ] &&
        grep -q "^ferry: error: $text" fails.log && return
    cat fails.log
    echo "exit code $code, not $expected: $*"
    exit 1
}
cp -r "$run" source
fails 3 'rank 2: source' 2 'cd /' "$ferry" convert source "$work/out" --to hf
fails 3 'rank 1: source' 1 'cd /' "$ferry" reshard source "$work/out" --tp 1
echo "failed: one rank does not see the source"

# A large model of holes: a tensor for each of four ranks.
mkdir large
for i in 0 1 2 3; do
    printf '%s"t%d":{"dtype":"F32","shape":[16,4194304],"data_offsets":[%d,%d]}' "$([ $i = 0 ] && echo '{' || echo ,)" \
        $i $((i * 268435456)) $(((i + 1) * 268435456))
done >header
printf '}' >>header
{ printf "\\$(printf %03o $(($(wc -c <header) % 256)))\\$(printf %03o $(($(wc -c <header) / 256)))\\0\\0\\0\\0\\0\\0"; cat header; } >large/model.safetensors
truncate -s $((8 + $(wc -c <header) + 1073741824)) large/model.safetensors
fails 8 'rank 3: cannot write' 3 "trap '' XFSZ; ulimit -f 500000" \
    "$ferry" convert large/model.safetensors out --to safetensors --memory 8MiB --threads 1
echo "failed: the last rank's part does not fit on the disk"

# A rank that is killed when the output has begun.
cat >rank.sh <<'X'
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && echo $$ >rank-1
exec "$@"
X
mpirun -n 2 sh rank.sh "$ferry" convert large/model.safetensors out --to safetensors --memory 8MiB --threads 1 >killed.log 2>&1 &
launcher=$!
tries=0
until ls -d .ferry-partial.* >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 2000 ] || { cat killed.log; exit 1; }
    sleep 0.01
done
kill -9 "$(cat rank-1)"
if wait $launcher; then exit 1; fi
[ ! -e out ]
grep -qi 'signal 9\|killed' killed.log
echo "killed: no target, and the launcher says so"
# The next run cleans up.
"$ferry" convert "$run" out --to hf >/dev/null
if ls -d .ferry-partial.* 2>/dev/null; then exit 1; fi

rm -r out

# Memory that one rank lacks, at some moments of its work.
if [ -n "$scarce_memory" ]; then
    export SCARCE_RANK=2 SCARCE_COUNT="$work/count" SCARCE_AT=0
    mpirun -n 4 env LD_PRELOAD="$scarce_memory" "$ferry" convert "$run" out --to hf >/dev/null
    rm -r out
    for part in 4 5 6 7 8 9; do  # before, it reads its arguments
        SCARCE_AT=$(($(cat count) * part / 10))
        fails 8 '.*out of memory' 0 true env LD_PRELOAD="$scarce_memory" "$ferry" convert "$run" out --to hf
    done
    echo "failed: one rank is out of memory"
fi
echo "all passed"
