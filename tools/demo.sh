#!/bin/sh
# demo.sh: builds ferry on a bare Debian 12, Debian 13 or Ubuntu 24.04 and shows what it does with
# checkpoints that Megatron-LM wrote (tests/fixtures/megatron), and how text becomes a model: token ids,
# a training that is killed and goes on at another layout, a folder for transformers. The program is
# built for a quick look, only its kernels a little optimised; the preset "release" builds the fast one.
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh
# shellcheck disable=SC2086 # a list of words
install_missing $build_packages

cmake --preset demo >/dev/null
cmake --build --preset demo

PATH=$PWD/build/demo/bin:$PATH
fixtures=$PWD/tests/fixtures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/runs"
cp -r "$fixtures/megatron/hot_llama" "$work/runs/llama"
cp -r "$fixtures/megatron/qwen3moe_te_ep2pp2_dpr" "$work/runs/qwen3-moe"
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
say "A checkpoint that was cut short is refused, and no partial output remains."
truncate -s 100000 runs/llama/iter_0000005/__0_0.distcp
show "ferry convert runs/llama broken-hf --to hf || echo \"(exit code \$?)\""
show "ls"

say "Training data: the text of the system's licences, as ids of a tokenizer of Llama 3's kind."
mkdir tokenizer
cp "$fixtures/tokenizers/hf-llama3.json" tokenizer/tokenizer.json
echo '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}' >tokenizer/tokenizer_config.json
show "ferry data tokenize --input \$(find /usr/share/common-licenses -type f | sort) --input-format text --append-eod \\
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer --output-prefix licences"
show "ferry data inspect licences_text_document"

say "A Llama of 1 million parameters learns them on two tensor-parallel ranks, and is killed on the way."
cat >llama.txt <<'END'
--num-layers 4 --hidden-size 128 --ffn-hidden-size 352 --num-attention-heads 4 --group-query-attention --num-query-groups 2
--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights
--seq-length 128 --max-position-embeddings 128 --attention-dropout 0 --hidden-dropout 0
--data-path licences_text_document --split 1,0,0 --tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer --eval-iters 0
--micro-batch-size 4 --global-batch-size 8 --train-iters 120 --lr 4e-3 --min-lr 4e-4 --lr-decay-style cosine --lr-warmup-iters 10
--weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --seed 1 --log-interval 20 --save-interval 30
END
show "cat llama.txt"
losses() { sed -n 's/.* iteration *\([0-9]*\)\/ *\([0-9]*\) .*lm loss: \([^ ]*\) .*/iteration \1 of \2   loss \3/p; s/ *successfully loaded checkpoint from .* at iteration/goes on from iteration/p' "$1"; }
printf '\n$ ferry train @llama.txt --save runs/tiny --tensor-model-parallel-size 2 & kill -KILL $!\n'
ferry train @llama.txt --save runs/tiny --tensor-model-parallel-size 2 >first.log &
until grep -q 'iteration *80/' first.log || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
kill -KILL $! 2>/dev/null || true
wait $! 2>/dev/null || true
losses first.log
say "The same command with --load goes on from what is whole on disk, here as two pipeline stages."
printf '\n$ ferry train @llama.txt --load runs/tiny --save runs/tiny --pipeline-model-parallel-size 2\n'
ferry train @llama.txt --load runs/tiny --save runs/tiny --pipeline-model-parallel-size 2 >second.log
losses second.log
show "ferry convert runs/tiny tiny-hf --to hf --tokenizer tokenizer"
show "ferry verify runs/tiny"
show "ferry verify tiny-hf"

say "transformers generates with it, where it is installed."
cat >generate.py <<'END'
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained('tiny-hf'), AutoModelForCausalLM.from_pretrained('tiny-hf')
words = tokenizer('This program is free software', add_special_tokens=False, return_tensors='pt')
print(tokenizer.decode(model.generate(**words, max_new_tokens=40, do_sample=False)[0], skip_special_tokens=True))
END
python=${FERRY_PYTHON:-python3}
if "$python" -c 'import torch, transformers' 2>/dev/null; then
    show "$python generate.py 2>/dev/null"
else
    show "cat generate.py"
fi
