#!/bin/sh
# run.sh FERRY: holds the ferry program against the peers' own Python: PyTorch reads the same bytes,
# also of all that ferry resharded or took to Hugging Face and back, transformers computes Megatron's
# logits and Megatron Core those of transformers. Works on tests/fixtures, and on
# ../shared/peers/megatron (more of the same) where that exists. README.md says what the folders hold.
# Each check says how it is called by itself, on any folder of runs. As many run at a time as there are
# processors, since most of them use one; what each prints appears when it ends, and after the first that
# fails no other begins.
#
#   run.sh --prepare   makes the virtual environment alone, for which no ferry is needed
#
#   FERRY_PYTHON=...   a Python that has torch, transformers, safetensors, numpy, xxhash, zstandard and
#                      perhaps megatron-core, tensorboard, wandb, tokenizers, tiktoken, sentencepiece and regex; by default a virtual environment
#                      in build/ is made (some 2 GB on the first run)
set -eu
[ "$1" = --prepare ] || ferry=$(realpath "$1")
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
[ "$1" != --prepare ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'trap - INT TERM; kill 0' INT TERM  # those in the background ignore the first
# A pipe holds one word for each check that may begin, and another the word of the one that may print.
mkfifo "$work/free" "$work/print"
exec 3<>"$work/free" 4<>"$work/print"
for _ in $(seq "$(nproc)"); do echo >&3; done
echo >&4
# Threads that wait for others leave the processor to those that run.
export OMP_WAIT_POLICY=passive
started=0

# ended CODE: prints how long $what took and what it printed, and lets another one begin
ended() {
    read -r _ <&4
    echo "-- $(($(date +%s) - began)) s: $what" >&5
    cat "$log" >&5
    [ "$1" = 0 ] || echo "failed with exit code $1: $what" | tee -a "$work/failed" >&5
    echo >&4
    echo >&3
}

# alongside COMMAND...: runs it next to others, as soon as fewer run than there are processors
alongside() {
    read -r _ <&3
    [ ! -e "$work/failed" ] || finish
    started=$((started + 1))
    log=$work/log.$started
    (
        what=$*
        began=$(date +%s)
        trap 'ended $?' EXIT
        export FERRY_TEST_PORT=$((29600 + started))  # where processes of PyTorch meet
        "$@"
    ) 5>&1 >"$log" 2>&1 &
}

# finish: waits for those that run, and ends with what failed, if any did
finish() {
    wait
    [ ! -e "$work/failed" ] || { cat "$work/failed" >&2; exit 1; }
}

# check SCRIPT [ARGUMENT...]: a script of tests/interop, next to others
check() {
    script=$1
    shift
    alongside "$FERRY_PYTHON" "tests/interop/$script" "$@"
}

fixtures=tests/fixtures/megatron
peers=$fixtures
[ -d ../shared/peers/megatron ] && peers="$peers ../shared/peers/megatron"
for folder in $peers; do
    check checkpoints/check_bytes.py "$ferry" "$folder"
done
# shellcheck disable=SC2086 # a list of folders
check_logits() { check checkpoints/check_logits.py "$ferry" tests/fixtures/core $peers; }
tests=$(dirname "$ferry")/../tests
if [ ! -x "$tests/run_operation" ]; then
    check_logits
    finish
    echo "a build without tests, as the demo's: what needs their programs was left out"
    exit 0
fi
check checkpoints/check_twins.py "$ferry" $fixtures
[ ! -d ../shared/peers/megatron ] || check checkpoints/check_twins.py "$ferry" ../shared/peers/megatron g_glm45_mtp g_nemotron3
# A model alone, one optimizer that is not distributed, and experts; without names all runs of a folder are resharded, which takes minutes.
check checkpoints/check_reshard.py "$ferry" $fixtures hot_llama llama_legacy_tp2_nodo qwen3moe_te_ep2pp2_dpr
check checkpoints/check_state.py "$ferry" $fixtures
check checkpoints/check_masters.py "$ferry" $fixtures
check trainer/check_precision.py "$ferry"
check checkpoints/check_fsdp.py "$ferry" tests/fixtures/fsdp
[ ! -d ../shared/peers/megatron ] || check checkpoints/check_fsdp.py "$ferry" ../shared/peers/megatron
# With FERRY_MEGATRON, a tree of Megatron-LM, and emerging-optimizers its own optimizers load them, too.
check checkpoints/check_muon.py "$ferry" tests/fixtures/muon \
    ${FERRY_MEGATRON:+$("$FERRY_PYTHON" -c 'import emerging_optimizers' 2>/dev/null && echo "$FERRY_MEGATRON")}
check checkpoints/check_language_parts.py "$ferry"
check checkpoints/check_export.py "$ferry" tests/fixtures/core $fixtures
check checkpoints/check_import.py "$ferry"
# Without --every it is all families, which takes minutes.
check checkpoints/check_members.py "$ferry" --every 6
# With FERRY_MEGATRON_CPU, a folder in which Megatron-LM itself runs on a CPU, that loads GLM-4.5 and continues its runs.
[ -z "${FERRY_MEGATRON_CPU:-}" ] || [ ! -d ../shared/peers/megatron ] || check checkpoints/check_megatron.py "$ferry" "$FERRY_MEGATRON_CPU" ../shared/peers/megatron
# With FERRY_BRIDGE besides, Megatron Bridge's package, its modules load the families that have layers of their own there.
[ -z "${FERRY_MEGATRON_CPU:-}" ] || [ -z "${FERRY_BRIDGE:-}" ] || check checkpoints/check_bridge.py "$ferry" "$FERRY_MEGATRON_CPU" "$FERRY_BRIDGE"
check checkpoints/check_rewrite.py "$ferry"
check checkpoints/check_quantised.py "$ferry"
# Without --every it is all types of transformers, which takes some minutes.
check checkpoints/check_types.py "$ferry" --every 10
# Without --every it is all types, which takes a minute.
check checkpoints/check_folders.py "$ferry" --every 4
check checkpoints/check_foreign.py "$ferry"
[ ! -d ../shared/peers/wild ] || check checkpoints/check_wild.py "$ferry" ../shared/peers/wild
check checkpoints/check_source_memory.py "$ferry"
check trainer/check_kernels.py "$tests/run_operation"
check trainer/check_training.py "$ferry"
check trainer/check_torchrun.py "$ferry"
# Without --kinds it is every kind, without the rest larger vocabularies and more texts, which takes minutes.
check text/check_tokenizers.py "$tests/print_ids" --texts 700000 --strings 1500 --size 1500 \
    --kinds 'gpt2,tiktoken-*,hf-llama3,hf-o200k,hf-deepseek,hf-kimi,hf-classes,hf-words,hf-added,hf-llama2,hf-unigram,spm-bpe,spm-bpe-unused,spm-unigram,spm-unigram-bytes,spm-suffix'
check trainer/check_wandb.py "$ferry" tests/fixtures/megatron_logs/*.log
check trainer/check_generation.py "$ferry"
check trainer/check_mnist.py "$ferry" "$(dirname "$ferry")/../examples/mnist/mnist"
# What the example saves from memory, built as a project of someone else's.
example_saves() {
    cmake --install "$(dirname "$ferry")/.." --prefix "$work/prefix" >/dev/null
    cmake -S examples/async_save -B "$work/build" -D CMAKE_BUILD_TYPE=Release -D CMAKE_PREFIX_PATH="$work/prefix"
    cmake --build "$work/build"
    "$FERRY_PYTHON" tests/interop/checkpoints/check_memory.py "$work/build/async_save"
}
alongside example_saves
# What the ranks of a run save, each from its own memory, is what reshard makes of it, and PyTorch reads both.
ranks_save() {
    mkdir "$work/saved"
    for form in fully_reshardable dp_reshardable legacy; do
        "$tests/save_run" $fixtures/llama_dp4_dpr_buckets "$work/saved/llama_$form" $form 2 1 1 2
        "$tests/save_run" $fixtures/qwen3moe_te_ep2pp2_dpr "$work/saved/qwen3moe_$form" $form 1 2 2 2
        "$ferry" diff $fixtures/llama_dp4_dpr_buckets "$work/saved/llama_$form" --quiet
        "$ferry" diff $fixtures/qwen3moe_te_ep2pp2_dpr "$work/saved/qwen3moe_$form" --quiet
    done
    "$FERRY_PYTHON" tests/interop/checkpoints/check_bytes.py "$ferry" "$work/saved"
}
alongside ranks_save
events() {
    "$tests/write_events" "$work/events"
    "$FERRY_PYTHON" tests/interop/trainer/check_events.py "$work/events"
}
alongside events
has_megatron=0
! "$FERRY_PYTHON" -c 'import megatron.core' 2>/dev/null || has_megatron=1
# Sample orders, caches and samples, of random settings of data.
data_cases() {
    "$FERRY_PYTHON" tests/interop/text/make_data_cases.py "$work/cases.jsonl" 60 1000
    FERRY_DATA_CASES=$work/cases.jsonl "$tests/trainer_test" --gtest_filter='MegatronCases.SameFilesAndSamples'
}
[ $has_megatron = 0 ] || alongside data_cases
# Token files of texts: the bytes that Megatron-LM's classes write (with FERRY_MEGATRON, a tree of it, its preprocess_data.py itself).
if [ -n "${FERRY_MEGATRON:-}" ] || [ $has_megatron = 1 ]; then
    check text/check_preprocess.py "$ferry" "${FERRY_MEGATRON:--}" /usr/share/doc 3000
else
    echo "skipped: check_preprocess.py, without megatron-core"
fi
# The trainer computes Megatron-LM's logits and goes on from its runs as it does itself.
if [ -d ../shared/peers/megatron ]; then
    check trainer/check_trainer_logits.py "$tests/write_logits" ../shared/peers/megatron
    check trainer/check_continuations.py "$ferry" ../shared/peers/megatron
fi
check_logits
finish
