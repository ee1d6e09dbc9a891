#!/bin/sh
# demo.sh: builds ferry on a bare Debian 12, Debian 13 or Ubuntu 24.04 and shows what it does with
# checkpoints that Megatron-LM wrote (tests/fixtures/megatron), and with a small model that it trains
# in less than a minute. The program is built for a quick look,
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

say "Training: the text of the system's licences, a token a byte, and a Llama of 0.8 million parameters."
cat >llama.txt <<'END'
--num-layers 4 --hidden-size 128 --ffn-hidden-size 352 --num-attention-heads 4 --group-query-attention --num-query-groups 2
--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights
--seq-length 128 --max-position-embeddings 128 --attention-dropout 0 --hidden-dropout 0
--data-path licences --split 1,0,0 --tokenizer-type NullTokenizer --vocab-size 257 --eval-iters 0
--micro-batch-size 8 --global-batch-size 8 --train-iters 240 --lr 4e-3 --min-lr 4e-4 --lr-decay-style cosine --lr-warmup-iters 20
--weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --seed 1 --log-interval 40 --save-interval 240 --exit-signal-handler
END
show "ferry data bytes licences --append-eod \$(find /usr/share/common-licenses -type f | sort)"
show "cat llama.txt"
say "It is told to stop in the middle (SIGTERM), saves, and goes on as two tensor-parallel ranks."
losses() { sed -n 's/.* iteration *\([0-9]*\)\/ *\([0-9]*\) .*lm loss: \([^ ]*\) .*/iteration \1 of \2   loss \3/p; /exiting/p' "$1"; }
printf '\n$ ferry train @llama.txt --save runs/tiny & kill -TERM $!\n'
ferry train @llama.txt --save runs/tiny >first.log &
until grep -q 'iteration *120/' first.log || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
kill -TERM $! 2>/dev/null || true
wait $!
losses first.log
printf '\n$ ferry train @llama.txt --load runs/tiny --save runs/tiny --tensor-model-parallel-size 2\n'
ferry train @llama.txt --load runs/tiny --save runs/tiny --tensor-model-parallel-size 2 >second.log
losses second.log
show "ferry convert runs/tiny tiny-hf --to hf"
show "ferry verify runs/tiny"
show "ferry verify tiny-hf"
