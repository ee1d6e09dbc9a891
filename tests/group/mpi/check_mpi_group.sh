#!/bin/sh
# check_mpi_group.sh PROGRAM: the operations of a group whose ranks are processes, and how they end
# where one of them fails. PROGRAM is mpi_ranks.cpp.
set -eu
program=$1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

failed() {
    cat "$log"
    echo "failed: $*" >&2
    exit 1
}

# passes N CASE...: exits with 0.
passes() {
    timeout 120 mpirun -n "$@" >"$log" 2>&1 || failed "$@"
    echo "passed: $*"
}

# ends N 'CASE...' TEXT...: ends soon, with exit code 6, and a rank says each text.
ends() {
    n=$1 name=$2
    shift 2
    begin=$(date +%s) code=0
    timeout 60 mpirun -n "$n" "$program" $name >"$log" 2>&1 || code=$?
    [ $code = 6 ] || failed "$name on $n: exit $code"
    [ $(($(date +%s) - begin)) -le 10 ] || failed "$name on $n: it took too long"
    for text; do
        grep -q "$text" "$log" || failed "$name on $n: nobody says: $text"
    done
    echo "ended: $name on $n"
}

for n in 1 2 3 4; do passes $n "$program" random $n; done
passes 7 "$program" random 70
passes 2 "$program" communicator
passes 4 "$program" threads
passes 2 "$program" cheap
passes 2 "$program" fast
for n in 2 3 4; do
    ends $n throw 'rank 0 ends: corrupt: rank 1: one.file is broken' 'rank 1 ends: corrupt: one.file is broken'
    ends $n memory 'rank 0 ends: exhausted: rank .: out of memory' 'ends: bad_alloc'
    ends $n pending 'rank 1 ends: io: rank 0: no disk'
    ends $n overlap 'rank 1 ends: cancelled: rank 0: enough' 'rank 0 ends: cancelled: rank 0: enough'
done
for n in 3 4; do ends $n elsewhere 'rank 0 ends: mismatch: rank .: error of a part'; done
ends 4 throw 'rank 3 ends: corrupt: rank 1: one.file is broken' 'rank 2 ends: corrupt: rank 1: one.file is broken'
ends 3 busy 'rank 0: no disk'  # of others a launcher may lose what they say

# reported TEXT: once, by nobody else.
reported() { [ "$(grep -c '^reported' "$log")" = 1 ] && grep -q "^$1\$" "$log" || failed "$1"; }
ends 4 processes && reported 'reported: rank 1: no disk'
ends 4 'processes 2' && reported 'reported: rank 1: no disk'
ends 4 'processes 0' && reported 'reported by rank 1: no disk'

code=0
timeout 20 mpirun -n 3 "$program" kill >"$log" 2>&1 || code=$?
[ $code != 0 ] && [ $code != 124 ] || failed "kill: exit $code"
grep -qi 'signal 9\|killed' "$log" || failed "kill: the launcher does not say so"

mpirun -n 2 "$program" refusals >"$log" 2>&1 || failed refusals
for text in 'before: unsupported: MPI is not initialised: make the group between' \
    'any: unsupported: MPI was initialised with MPI_THREAD_FUNNELED, .* needs MPI_THREAD_MULTIPLE' \
    'one: none' 'null: invalid: MPI_COMM_NULL has no ranks' 'after: unsupported: MPI is already finalised'; do
    [ "$(grep -c "$text" "$log")" = 2 ] || failed "refusals: $text"
done
echo "all passed"
