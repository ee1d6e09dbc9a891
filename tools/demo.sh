#!/bin/sh
# demo.sh: builds ferry on a bare Debian 12, Debian 13 or Ubuntu 24.04 and shows what it does with a
# checkpoint that Megatron-LM wrote (tests/fixtures/megatron/hot_llama: two tensor-parallel ranks).
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh
# shellcheck disable=SC2086 # a list of words
install_missing $build_packages

cmake --preset release -D FERRY_TESTS=OFF -B build/demo >/dev/null
cmake --build build/demo --target ferry_tool
ferry=build/demo/bin/ferry
run=tests/fixtures/megatron/hot_llama
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

show() {
    echo
    echo "\$ $(echo "$*" | sed "s|$out/||g; s|build/demo/bin/||; s|tests/fixtures/megatron/||g")"
    "$@"
}

echo
echo "A checkpoint of Megatron-LM, saved by two ranks:"
show $ferry inspect $run
echo
echo "The same model for transformers:"
show $ferry convert $run "$out/llama-hf" --to hf
show cat "$out/llama-hf/config.json"
show $ferry inspect "$out/llama-hf" --stats '*layers.0.*'
echo
echo "A file that was cut short is refused, and nothing is written:"
cp -r $run "$out/cut"
truncate -s 100000 "$out/cut/iter_0000005/__0_0.distcp"
show $ferry convert "$out/cut" "$out/cut-hf" --to hf || echo "(exit code $?)"
