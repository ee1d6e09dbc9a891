#!/bin/sh
# demo.sh: builds ferry on a bare Debian 12, Debian 13 or Ubuntu 24.04 and shows what it does with
# checkpoints that Megatron-LM wrote (tests/fixtures/megatron). The program is built for a quick look,
# half optimised; the preset "release" builds the fast one.
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh
# shellcheck disable=SC2086 # a list of words
install_missing $build_packages

cmake --preset demo >/dev/null
cmake --build --preset demo

PATH=$PWD/build/demo/bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/runs"
cp -r tests/fixtures/megatron/hot_llama "$work/runs/llama"
cp -r tests/fixtures/megatron/qwen3moe_te_ep2pp2_dpr "$work/runs/qwen3-moe"
cd "$work"

say() { printf '\n# %s\n' "$1"; }
show() {
    printf '\n$ %s\n' "$1"
    sh -c "$1"
}

say "A model that Megatron-LM trained on two tensor-parallel ranks."
show "ferry inspect runs/llama"
say "The same model for transformers: no Python, no GPU, fixed memory."
show "ferry convert runs/llama llama-hf --to hf"
show "ls -l llama-hf"
show "cat llama-hf/config.json"
show "ferry inspect llama-hf --stats '*layers.0.*'"
say "A mixture of experts on four ranks, its optimizer in flat buffers that name no parameter."
show "ferry inspect runs/qwen3-moe --tensors 'optimizer.state.exp_avg.*'"
show "ferry convert runs/qwen3-moe qwen3-moe-hf --to hf --max-shard-size 100kB"
say "A checkpoint that was cut short is refused, and nothing is left behind."
truncate -s 100000 runs/llama/iter_0000005/__0_0.distcp
show "ferry convert runs/llama broken-hf --to hf || echo \"(exit code \$?)\""
show "ls"
