#!/bin/sh
# Checks that the parts of the tree include each other one way only:
#   io -> core/error.h, core/checked.h    core -> core, io    format, store -> core, io
#   megatron -> all of these and checkpoint.h    convert -> ckpt    tools -> ckpt, convert
# and that nothing outside the device code includes CUDA, NCCL or MPI.
set -eu
cd "$(dirname "$0")/.."
found=0

# allow FOLDER PATTERN: project headers that files of FOLDER include must match the extended regular expression.
allow() {
    [ -d "$1" ] || return 0
    bad=$(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$1" --include='*.h' --include='*.cpp' |
        grep -vE "\"($2)\"" || true)
    if [ -n "$bad" ]; then
        echo "$bad"
        echo "error: $1 may include only $2" >&2
        found=1
    fi
}

allow ckpt/io       'ckpt/io/[^"]*|ckpt/core/(error|checked)\.h'
allow ckpt/core     'ckpt/(core|io)/[^"]*'
allow ckpt/format   'ckpt/(core|io|format)/[^"]*'
allow ckpt/store    'ckpt/(core|io|format|store)/[^"]*'
allow ckpt/megatron 'ckpt/(core|io|format|store|megatron)/[^"]*|ckpt/checkpoint\.h'
allow ckpt          'ckpt/[^"]*'
allow convert       '(ckpt|convert)/[^"]*'
allow tools         '(ckpt|convert|tools)/[^"]*'

device=$(grep -rnE '#[[:space:]]*include[[:space:]]*<(cuda|cublas|nccl|mpi)' ckpt convert tools || true)
if [ -n "$device" ]; then
    echo "$device"
    echo "error: ckpt, convert and tools must build without CUDA, NCCL and MPI" >&2
    found=1
fi
exit $found
