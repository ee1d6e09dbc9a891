#!/bin/sh
# check_parts.sh FERRY WORK [MPIRUN]: parts of a corpus that several processes tokenise, merged, are the
# bytes that one process writes: as MPI starts them, as a Slurm array does, and as jobs for lists of files.
set -eu
ferry=$1 work=$2 mpirun=${3-}
examples=$(cd "$(dirname "$0")/../../../examples" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
rm -rf "$work" && mkdir -p "$work/raw/sub" && cd "$work"
for file in raw/a.jsonl raw/b.jsonl raw/sub/c.jsonl; do
    awk -v name="$file" 'BEGIN { for (i = 0; i < 3000; ++i) printf "{\"text\": \"%s, line %d %s\", \"title\": [\"%d\", \"t\"]}\n", name, i, substr("abcdefghijklmnopqrstuvwxyz", 1, i % 26), i }' >"$file"
done
gzip raw/b.jsonl
# one PREFIX LAUNCHER...: with $options
one() {
    prefix=$1
    shift
    # shellcheck disable=SC2086 # a list of words
    "$@" "$ferry" data tokenize --input raw/a.jsonl raw/b.jsonl.gz raw/sub/c.jsonl --json-keys text title --tokenizer-type bytes \
        --append-eod --json --output-prefix "$prefix" $options
}
options=
one whole env >/dev/null
same() {  # NAME FOLDER: its parts are the whole
    for key in text title; do
        "$ferry" data merge "$2"/*_"$key"_document.idx -o "$2/merged_$key" >/dev/null
        for suffix in bin idx; do cmp "$2/merged_$key.$suffix" "whole_${key}_document.$suffix"; done
    done
    echo "$1: the bytes of one process"
}

options='--part auto'
if [ -n "$mpirun" ]; then
    for n in 2 3; do
        mkdir "mpi$n"
        one "mpi$n/p" "$mpirun" -n $n >mpi.log 2>&1 || { cat mpi.log; exit 1; }
        [ "$(ls "mpi$n"/*_text_document.bin | wc -l)" = $n ]
        same "mpirun -n $n" "mpi$n"
    done
    # Without --part they would all write the same files.
    options=
    code=0
    one refused "$mpirun" -n 2 >mpi.log 2>&1 || code=$?
    [ $code = 2 ] && grep -q 'give --part auto' mpi.log && [ ! -e refused_text_document.idx ]
    options='--part auto'
fi

mkdir array
for id in 7 3 5; do  # in any order
    one array/p env SLURM_ARRAY_TASK_ID=$id SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_MAX=7 SLURM_ARRAY_TASK_STEP=2 SLURM_ARRAY_TASK_COUNT=3 >/dev/null
done
same 'Slurm array of 3' array

# A list of files for each job; one of them fails at first.
"$ferry" data dumps raw --output jobs --n-dumps 2 >/dev/null
export FERRY="$ferry"
job() {
    SLURM_ARRAY_TASK_ID=$1 SLURM_CPUS_PER_TASK=2 bash "$examples/tokenize_dumps.sbatch" jobs tokens --json-keys text --tokenizer-type bytes --append-eod >job.log 2>&1
}
broken=$(sed -n 1p jobs/dumps/paths_file_1.txt)
case $broken in
*.gz) gzip -d "raw/$broken" && broken=${broken%.gz} && again=gzip ;;
*) again=true ;;
esac
cp "raw/$broken" kept
echo 'not JSON' >>"raw/$broken"
$again "raw/$broken"
job 0
if job 1; then exit 1; fi
grep -q 'is not a JSON object\|line 3001' job.log
[ -e jobs/dumps/paths_file_1.txt ] && [ -e jobs/completed-dumps/paths_file_0.txt ] && [ "$(wc -l <jobs/results.csv)" = 1 ]
rm -rf "raw/$broken"* tokens/dump_1.unfinished
cp kept "raw/$broken"
$again "raw/$broken"
job 1
job 1
grep -q 'dump 1 is complete' job.log
[ ! -e jobs/dumps/paths_file_1.txt ] && [ "$(wc -l <jobs/results.csv)" = 2 ]
tokens=$(awk -F, '{ sum += $4 } END { print sum }' jobs/results.csv)
whole=$(wc -c <whole_text_document.bin)
[ $((tokens * 2)) = "$whole" ]
echo "lists of files: $tokens tokens in two jobs, one of which failed at first"
echo "all passed"
