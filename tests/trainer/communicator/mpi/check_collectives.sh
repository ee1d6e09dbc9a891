#!/bin/sh
# check_collectives.sh PROGRAM: collectives of processes, with transfers in one piece, in some and in
# many, none of which ends with an element. PROGRAM is mpi_ranks.cpp with collectives_test.cpp.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
for piece_bytes in 1073741824 100003 4099; do
    timeout 60 mpirun -n 5 "$1" --gtest_brief=1 $piece_bytes || {
        echo "failed: pieces of $piece_bytes bytes" >&2
        exit 1
    }
done
