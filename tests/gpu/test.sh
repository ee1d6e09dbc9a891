#!/bin/bash
# test.sh BUILD: all tests of a build with CUDA that need a GPU, on the first one; those of ranks on several take as many as there are.
#
#   SHARDS=...            programs that share the trainer's tests; 6 by default, half a minute each on an H200
#   FERRY_TEST_CASES=...  random cases of a test
#
# Prints what fails and a line for each program; its exit status is that of the worst.
set -u
build=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
shards=${SHARDS:-6}

# run NAME PROGRAM [ARGUMENT...]
run() {
    name=$1
    shift
    "$@" >"$logs/$name" 2>&1
    code=$?
    grep -aE '^\[  FAILED  \]|Failure$|SKIPPED' "$logs/$name" | sort -u | head -20
    printf '%-20s exit %d, %s\n' "$name" "$code" "$(grep -aE '^\[  PASSED  \]|tests ran' "$logs/$name" | tail -1)"
    return $code
}

failed=0
run kernels "$build/tests/gpu/kernels_cuda_test" || failed=1
run attention "$build/tests/gpu/attention/attention_cuda_test" || failed=1
for ((shard = 0; shard < shards; ++shard)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard run "trainer.$shard" "$build/tests/gpu/trainer_cuda_test" &
done
for job in $(jobs -p); do
    wait "$job" || failed=1
done
"$here/communicator/check.sh" "$build" || failed=1
exit $failed
