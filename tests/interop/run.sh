#!/bin/sh
# run.sh FERRY: holds the ferry program against the peers' own Python: PyTorch reads the same bytes,
# also of all that ferry resharded or took to Hugging Face and back, transformers computes Megatron's
# logits and Megatron Core those of transformers. Works on tests/fixtures, and on
# ../shared/peers/megatron (more of the same) where that exists. README.md says what the folders hold.
# Each check says how it is called by itself, on any folder of runs.
#
#   FERRY_PYTHON=...   a Python that has torch, transformers, safetensors, numpy, xxhash, zstandard and
#                      perhaps megatron-core, tensorboard, wandb, tokenizers, tiktoken, sentencepiece and regex; by default a virtual environment
#                      in build/ is made (some 2 GB on the first run)
set -eu
ferry=$(realpath "$1")
cd "$(dirname "$0")/../.."

make_environment() {
    python3 -m venv "$1" || return 1
    pip="$1/bin/pip install -q --disable-pip-version-check"
    # PyTorch runs on the CPU without its own CUDA packages where the machine has a CUDA toolkit.
    if [ -d /usr/local/cuda/lib64 ]; then
        $pip --no-deps torch==2.11.0 nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-cufile || return 1
    else
        $pip torch==2.11.0 || return 1
    fi
    $pip numpy typing_extensions sympy networkx jinja2 fsspec filelock transformers==5.23.0 \
        safetensors xxhash zstandard 'setuptools<81' || return 1
    $pip tensorboard || echo "without TensorBoard"
    $pip wandb==0.31.0 || echo "without Weights & Biases"
    for package in tokenizers==0.23.3 tiktoken==0.14.0 sentencepiece==0.2.3 regex==2026.11.15; do
        $pip "$package" || echo "without $package"
    done
    $pip --no-deps --only-binary :all: megatron-core==0.16.1 || echo "without Megatron Core"
    # What compressed-tensors and ModelOpt need for weights alone, which is less than they ask for.
    $pip --no-deps compressed-tensors==0.20.0 nvidia-modelopt==0.47.0 loguru psutil omegaconf antlr4-python3-runtime==4.9.3 pulp \
        nvidia-ml-py ninja && $pip pydantic scipy rich tqdm packaging PyYAML || echo "without compressed-tensors and ModelOpt"
    touch "$1/complete-5"
}

if [ -z "${FERRY_PYTHON:-}" ]; then
    environment=build/interop-python
    if [ ! -e "$environment/complete-5" ] && ! make_environment "$environment"; then
        echo "skipped: no virtual environment with PyTorch and transformers can be made here (python3-venv, network)"
        exit 0
    fi
    FERRY_PYTHON=$environment/bin/python
fi

fixtures=tests/fixtures/megatron
peers=$fixtures
[ -d ../shared/peers/megatron ] && peers="$peers ../shared/peers/megatron"
for folder in $peers; do
    "$FERRY_PYTHON" tests/interop/checkpoints/check_bytes.py "$ferry" "$folder"
done
# shellcheck disable=SC2086 # a list of folders
check_logits() { "$FERRY_PYTHON" tests/interop/checkpoints/check_logits.py "$ferry" tests/fixtures/core $peers; }
tests=$(dirname "$ferry")/../tests
if [ ! -x "$tests/run_operation" ]; then
    check_logits
    echo "a build without tests, as the demo's: what needs their programs was left out"
    exit 0
fi
"$FERRY_PYTHON" tests/interop/checkpoints/check_twins.py "$ferry" $fixtures
[ ! -d ../shared/peers/megatron ] || "$FERRY_PYTHON" tests/interop/checkpoints/check_twins.py "$ferry" ../shared/peers/megatron g_glm45_mtp
# A model alone, one optimizer that is not distributed, and experts; without names all runs of a folder are resharded, which takes minutes.
"$FERRY_PYTHON" tests/interop/checkpoints/check_reshard.py "$ferry" $fixtures hot_llama llama_legacy_tp2_nodo qwen3moe_te_ep2pp2_dpr
"$FERRY_PYTHON" tests/interop/checkpoints/check_state.py "$ferry" $fixtures
"$FERRY_PYTHON" tests/interop/checkpoints/check_masters.py "$ferry" $fixtures
"$FERRY_PYTHON" tests/interop/trainer/check_precision.py "$ferry"
"$FERRY_PYTHON" tests/interop/checkpoints/check_fsdp.py "$ferry" tests/fixtures/fsdp
[ ! -d ../shared/peers/megatron ] || "$FERRY_PYTHON" tests/interop/checkpoints/check_fsdp.py "$ferry" ../shared/peers/megatron
# With FERRY_MEGATRON, a tree of Megatron-LM, and emerging-optimizers its own optimizers load them, too.
"$FERRY_PYTHON" tests/interop/checkpoints/check_muon.py "$ferry" tests/fixtures/muon \
    ${FERRY_MEGATRON:+$("$FERRY_PYTHON" -c 'import emerging_optimizers' 2>/dev/null && echo "$FERRY_MEGATRON")}
"$FERRY_PYTHON" tests/interop/checkpoints/check_language_parts.py "$ferry"
"$FERRY_PYTHON" tests/interop/checkpoints/check_export.py "$ferry" tests/fixtures/core $fixtures
"$FERRY_PYTHON" tests/interop/checkpoints/check_import.py "$ferry"
# With FERRY_MEGATRON_CPU, a folder in which Megatron-LM itself runs on a CPU, that loads GLM-4.5 and continues its runs.
[ -z "${FERRY_MEGATRON_CPU:-}" ] || [ ! -d ../shared/peers/megatron ] || "$FERRY_PYTHON" tests/interop/checkpoints/check_megatron.py "$ferry" "$FERRY_MEGATRON_CPU" ../shared/peers/megatron
# With FERRY_BRIDGE besides, Megatron Bridge's package, its modules load the families that have layers of their own there.
[ -z "${FERRY_MEGATRON_CPU:-}" ] || [ -z "${FERRY_BRIDGE:-}" ] || "$FERRY_PYTHON" tests/interop/checkpoints/check_bridge.py "$ferry" "$FERRY_MEGATRON_CPU" "$FERRY_BRIDGE"
"$FERRY_PYTHON" tests/interop/checkpoints/check_rewrite.py "$ferry"
"$FERRY_PYTHON" tests/interop/checkpoints/check_quantised.py "$ferry"
# Without --every it is all types of transformers, which takes some minutes.
"$FERRY_PYTHON" tests/interop/checkpoints/check_types.py "$ferry" --every 10
# Without --every it is all types, which takes a minute.
"$FERRY_PYTHON" tests/interop/checkpoints/check_folders.py "$ferry" --every 4
"$FERRY_PYTHON" tests/interop/checkpoints/check_foreign.py "$ferry"
[ ! -d ../shared/peers/wild ] || "$FERRY_PYTHON" tests/interop/checkpoints/check_wild.py "$ferry" ../shared/peers/wild
"$FERRY_PYTHON" tests/interop/checkpoints/check_source_memory.py "$ferry"
"$FERRY_PYTHON" tests/interop/trainer/check_kernels.py "$tests/run_operation"
"$FERRY_PYTHON" tests/interop/trainer/check_training.py "$ferry"
"$FERRY_PYTHON" tests/interop/trainer/check_torchrun.py "$ferry"
# Without --kinds it is every kind, without the rest larger vocabularies and more texts, which takes minutes.
"$FERRY_PYTHON" tests/interop/text/check_tokenizers.py "$tests/print_ids" --texts 700000 --strings 1500 --size 1500 \
    --kinds 'gpt2,tiktoken-*,hf-llama3,hf-o200k,hf-deepseek,hf-kimi,hf-classes,hf-words,hf-added,hf-llama2,hf-unigram,spm-bpe,spm-bpe-unused,spm-unigram,spm-unigram-bytes,spm-suffix'
"$FERRY_PYTHON" tests/interop/trainer/check_wandb.py "$ferry" tests/fixtures/megatron_logs/*.log
"$FERRY_PYTHON" tests/interop/trainer/check_generation.py "$ferry"
"$FERRY_PYTHON" tests/interop/trainer/check_mnist.py "$ferry" "$(dirname "$ferry")/../examples/mnist/mnist"
# What the example saves from memory, built as a project of someone else's.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    cmake --install "$(dirname "$ferry")/.." --prefix "$work/prefix"
    cmake -S examples/async_save -B "$work/build" -D CMAKE_BUILD_TYPE=Release -D CMAKE_PREFIX_PATH="$work/prefix"
    cmake --build "$work/build"
} >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$FERRY_PYTHON" tests/interop/checkpoints/check_memory.py "$work/build/async_save"
# What the ranks of a run save, each from its own memory, is what reshard makes of it, and PyTorch reads both.
mkdir "$work/saved"
for form in fully_reshardable dp_reshardable legacy; do
    "$tests/save_run" $fixtures/llama_dp4_dpr_buckets "$work/saved/llama_$form" $form 2 1 1 2
    "$tests/save_run" $fixtures/qwen3moe_te_ep2pp2_dpr "$work/saved/qwen3moe_$form" $form 1 2 2 2
done
for run in llama_dp4_dpr_buckets:llama qwen3moe_te_ep2pp2_dpr:qwen3moe; do
    for form in fully_reshardable dp_reshardable legacy; do
        "$ferry" diff "$fixtures/${run%:*}" "$work/saved/${run#*:}_$form" --quiet
    done
done
"$FERRY_PYTHON" tests/interop/checkpoints/check_bytes.py "$ferry" "$work/saved"
"$tests/write_events" "$work/events"
"$FERRY_PYTHON" tests/interop/trainer/check_events.py "$work/events"
# Sample orders, caches and samples, of random settings of data.
if "$FERRY_PYTHON" -c 'import megatron.core' 2>"$work/log"; then
    "$FERRY_PYTHON" tests/interop/text/make_data_cases.py "$work/cases.jsonl" 60 1000 2>"$work/log" || { cat "$work/log"; exit 1; }
    FERRY_DATA_CASES=$work/cases.jsonl "$tests/trainer_test" --gtest_filter='MegatronCases.SameFilesAndSamples'
fi
# Token files of texts: the bytes that Megatron-LM's classes write (with FERRY_MEGATRON, a tree of it, its preprocess_data.py itself).
if [ -n "${FERRY_MEGATRON:-}" ] || "$FERRY_PYTHON" -c 'import megatron.core' 2>"$work/log"; then
    "$FERRY_PYTHON" tests/interop/text/check_preprocess.py "$ferry" "${FERRY_MEGATRON:--}" /usr/share/doc 3000
else
    echo "skipped: check_preprocess.py, without megatron-core"
fi
# The trainer computes Megatron-LM's logits and goes on from its runs as it does itself.
if [ -d ../shared/peers/megatron ]; then
    "$FERRY_PYTHON" tests/interop/trainer/check_trainer_logits.py "$tests/write_logits" ../shared/peers/megatron
    "$FERRY_PYTHON" tests/interop/trainer/check_continuations.py "$ferry" ../shared/peers/megatron
fi
check_logits
