#!/bin/sh
# check.sh BUILD: communicators on the GPUs of this machine, with the programs of BUILD/tests: threads
# and processes, one for each GPU, through each other's memory and through sockets, and what happens
# when a rank ends.
# NCCL's library has to be found (LD_LIBRARY_PATH).
set -u
tests=$1/tests/gpu/communicator
export NCCL_NVLS_ENABLE=0 # multicast needs a host's leave
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
problem() {
    echo "failed: $1" >&2
    failed=1
}

gpus=$(nvidia-smi -L | wc -l)
last=$((gpus - 1))

processes() { # [kill]: a rank for each GPU, their outputs into $work/out.*, the first one's status into $first
    rm -rf "$work"/ranks "$work"/out.* && mkdir "$work/ranks"
    others=
    for rank in $(seq 1 $last); do
        timeout 60 "$tests/nccl_process" "$work/ranks" "$rank" "$gpus" "$@" >"$work/out.$rank" 2>&1 &
        others="$others $!"
    done
    timeout 60 "$tests/nccl_process" "$work/ranks" 0 "$gpus" "$@" >"$work/out.0" 2>&1
    first=$?
    all_well=$first
    for other in $others; do wait "$other" || all_well=1; done
    cat "$work"/out.*
}

timeout 120 "$tests/communicator_cuda_test" --gtest_brief=1 || problem "ranks that are threads"
if [ "$gpus" -lt 2 ]; then exit $failed; fi
NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 timeout 120 "$tests/communicator_cuda_test" --gtest_brief=1 \
    --gtest_filter='*2RanksOn2*:*4RanksOn4*' || problem "threads, through sockets"
processes
[ $all_well -eq 0 ] || problem "ranks that are processes"
begin=$(date +%s)
processes kill
[ $first -eq 1 ] && grep -q "rank $last has ended" "$work/out.0" || problem "a rank that is killed"
[ $(($(date +%s) - begin)) -lt 30 ] || problem "a rank that is killed, in time"
begin=$(date +%s)
export NCCL_SOCKET_IFNAME==none
processes
[ $first -eq 1 ] && grep -q NCCL_SOCKET_IFNAME "$work/out.0" || problem "no network"
[ $(($(date +%s) - begin)) -lt 30 ] || problem "no network, in time"
exit $failed
