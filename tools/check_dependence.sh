#!/bin/sh
# Checks that the parts of the tree include each other one way only:
#   base -> base    io -> base, io    core -> base, core    engine -> base, io, core, engine
#   in engine: elements <- transfers <- items <- tiles, and box_reader.h, by which transfers read the scales that they take
#   format, store -> all of these, format (store -> store too)
#   megatron -> all of these and checkpoint.h (data)
#   in megatron: model <- state <- optimizer <- config <- torch_dist <- rank_folders <- fsdp <- nemo <- state_of.h, retarget.h
#   open.h, integrity, memory -> megatron, too
#   convert -> ckpt    ops -> ckpt, convert    text -> ckpt/base, ckpt/io    kernels -> kernels    trainer -> ckpt, convert, kernels    tools -> all of these
#   in trainer: communicator <- model <- parallel (also data) <- optimizer <- checkpoint (also arguments, loop) <- rank (the loop) <- run (language models)
#   and arguments -> itself; data -> ckpt alone; loop -> arguments
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

allow ckpt/base     'ckpt/base/[^"]*'
allow ckpt/io       'ckpt/(base|io)/[^"]*'
allow ckpt/core     'ckpt/(base|core)/[^"]*'
allow ckpt/engine   'ckpt/(base|io|core|engine)/[^"]*'
allow ckpt/engine/elements  'ckpt/(base|io|core|engine/elements)/[^"]*'
allow ckpt/engine/transfers 'ckpt/(base|io|core|engine/(elements|transfers))/[^"]*|ckpt/engine/box_reader\.h'
allow ckpt/engine/items     'ckpt/(base|io|core|engine/(elements|transfers|items))/[^"]*'
allow ckpt/format   'ckpt/(base|io|core|engine|format)/[^"]*'
allow ckpt/store    'ckpt/(base|io|core|engine|format|store)/[^"]*'
allow ckpt/integrity 'ckpt/(base|io|core|engine|format|store|megatron|integrity)/[^"]*|ckpt/(checkpoint|open)\.h'
allow ckpt/megatron 'ckpt/(base|io|core|engine|format|store|megatron)/[^"]*|ckpt/checkpoint\.h'
megatron='ckpt/(base|io|core|engine|format|store)/[^"]*|ckpt/checkpoint\.h|ckpt/megatron'
allow ckpt/megatron/model        "$megatron/model/[^\"]*"
allow ckpt/megatron/state        "$megatron/(model|state)/[^\"]*"
allow ckpt/megatron/optimizer    "$megatron/(model|state|optimizer)/[^\"]*"
allow ckpt/megatron/config       "$megatron/(model|config)/[^\"]*"
allow ckpt/megatron/torch_dist   "$megatron/(model|state|optimizer|config|torch_dist)/[^\"]*"
allow ckpt/megatron/rank_folders "$megatron/(model|state|optimizer|rank_folders)/[^\"]*"
allow ckpt/megatron/fsdp         "$megatron/(model|state|optimizer|torch_dist|rank_folders|fsdp)/[^\"]*"
allow ckpt/megatron/nemo         "$megatron/(model|state|optimizer|config|torch_dist|nemo)/[^\"]*"
allow ckpt          'ckpt/[^"]*'
allow convert       '(ckpt|convert)/[^"]*'
allow ops           '(ckpt|convert|ops)/[^"]*'
allow text          '(ckpt/(base|io)|text)/[^"]*'
allow kernels       'kernels/[^"]*'
allow trainer       '(ckpt|convert|kernels|trainer)/[^"]*'
allow trainer/communicator '(ckpt|kernels|trainer/communicator)/[^"]*'
allow trainer/model '(ckpt|convert|kernels|trainer/(communicator|model))/[^"]*'
allow trainer/parallel '(ckpt|convert|kernels|trainer/(communicator|model|data|parallel))/[^"]*'
allow trainer/optimizer '(ckpt|convert|kernels|trainer/(communicator|model|parallel|optimizer))/[^"]*'
allow trainer/arguments '(ckpt|convert|trainer/arguments)/[^"]*'
allow trainer/data  '(ckpt|trainer/data)/[^"]*'
allow trainer/checkpoint '(ckpt|convert|kernels|trainer/(communicator|model|data|parallel|optimizer|arguments|loop|checkpoint))/[^"]*'
allow trainer/rank '(ckpt|convert|kernels|trainer/(communicator|model|data|parallel|optimizer|arguments|loop|checkpoint|rank))/[^"]*'
allow trainer/loop  '(ckpt|convert|trainer/(arguments|loop))/[^"]*'
allow tools         '(ckpt|convert|ops|text|trainer|tools)/[^"]*'

device=$(grep -rnE '#[[:space:]]*include[[:space:]]*<(cuda|cublas|nccl|mpi)' ckpt convert ops text kernels/*.h kernels/cpu trainer tools | grep -vE '^(ckpt/group/mpi|trainer/communicator/(mpi|nccl))/' || true)
if [ -n "$device" ]; then
    echo "$device"
    echo "error: ckpt, convert, ops, text, kernels/cpu, trainer and tools must build without CUDA, NCCL and MPI" >&2
    found=1
fi
exit $found
