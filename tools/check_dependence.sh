#!/bin/sh
# Checks that the parts of the tree include each other one way only:
#   base -> base    io -> base, io    core -> base, core    engine -> base, io, core, engine
#   in engine: elements <- transfers <- items <- tiles
#   format, store -> all of these, format (store -> store too)
#   megatron -> all of these and checkpoint.h
#   summary.h -> nothing; whoever finds out what it describes includes it
#   in megatron: model <- state <- optimizer <- config <- torch_dist <- rank_folders <- fsdp <- nemo <- state_of.h, retarget.h
#   open.cpp, integrity, memory -> megatron, too; format, store and megatron do not call open_checkpoint()
#   convert -> ckpt    ops -> ckpt, convert    text -> ckpt/base, ckpt/io    kernels -> kernels    trainer -> ckpt, convert, kernels
#   estimate -> ckpt, convert, trainer    tools -> all of these    python -> ckpt, convert, ops, estimate
#   in trainer: communicator <- model <- parallel (also data) <- optimizer <- checkpoint (also arguments, schedule, log) <- loop <- language (language models)
#   and arguments -> itself; data -> ckpt alone; schedule -> arguments; log -> arguments, data, schedule
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
allow ckpt/engine/transfers 'ckpt/(base|io|core|engine/(elements|transfers))/[^"]*'
allow ckpt/engine/items     'ckpt/(base|io|core|engine/(elements|transfers|items))/[^"]*'
allow ckpt/format   'ckpt/(base|io|core|engine|format)/[^"]*|ckpt/summary\.h'
allow ckpt/store    'ckpt/(base|io|core|engine|format|store)/[^"]*'
allow ckpt/integrity 'ckpt/(base|io|core|engine|format|store|megatron|integrity)/[^"]*|ckpt/checkpoint\.h'
allow ckpt/megatron 'ckpt/(base|io|core|engine|format|store|megatron)/[^"]*|ckpt/(checkpoint|summary)\.h'
megatron='ckpt/(base|io|core|engine|format|store)/[^"]*|ckpt/(checkpoint|summary)\.h|ckpt/megatron'
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
allow trainer/schedule '(ckpt|convert|trainer/(arguments|schedule))/[^"]*'
allow trainer/log   '(ckpt|convert|trainer/(arguments|data|schedule|log))/[^"]*'
allow trainer/checkpoint '(ckpt|convert|kernels|trainer/(communicator|model|data|parallel|optimizer|arguments|schedule|log|checkpoint))/[^"]*'
allow trainer/loop  '(ckpt|convert|kernels|trainer/(communicator|model|data|parallel|optimizer|arguments|schedule|log|checkpoint|loop))/[^"]*'
allow estimate      '(ckpt|convert|trainer|estimate)/[^"]*|kernels/kernels\.h'
allow python        '(ckpt|convert|ops|estimate|python)/[^"]*|kernels/(host_products|kernels)\.h'
allow tools         '(ckpt|convert|ops|text|trainer|estimate|tools)/[^"]*'

callers=$(grep -rnE 'open_checkpoint\(' ckpt/base ckpt/io ckpt/core ckpt/engine ckpt/format ckpt/store ckpt/megatron --include='*.cpp' || true)
if [ -n "$callers" ]; then
    echo "$callers"
    echo "error: what open_checkpoint() calls may not call it" >&2
    found=1
fi

device=$(grep -rnE '#[[:space:]]*include[[:space:]]*<(cuda|cublas|nccl|mpi)' ckpt convert ops text kernels/*.h kernels/cpu trainer estimate tools | grep -vE '^(ckpt/group/mpi|trainer/communicator/(mpi|nccl))/' || true)
if [ -n "$device" ]; then
    echo "$device"
    echo "error: ckpt, convert, ops, text, kernels/cpu, trainer and tools must build without CUDA, NCCL and MPI" >&2
    found=1
fi
exit $found
