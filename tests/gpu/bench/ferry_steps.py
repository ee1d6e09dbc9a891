"""How long steps of `ferry train` take: what the benches of training on GPUs share."""
import json
import os
import re
import subprocess
import sys

# Gradients and moments in bf16 and of fp32 copies the lower 16 bits: 10 bytes a parameter.
SMALL = ['--use-distributed-optimizer', '--use-precision-aware-optimizer', '--main-grads-dtype', 'bf16', '--exp-avg-dtype', 'bf16', '--exp-avg-sq-dtype', 'bf16']


def shape(sequence, vocabulary, words, device='cuda'):
    """ferry train's arguments for a model in bf16 on random tokens."""
    return (f'--device {device} --bf16 --mock-data --tokenizer-type NullTokenizer --normalization RMSNorm --swiglu --disable-bias-linear --position-embedding-type rope '
            '--untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 --group-query-attention --lr 1e-4 --eval-iters 0 --log-interval 1 '
            f'--vocab-size {vocabulary} --seq-length {sequence} --max-position-embeddings {sequence} {words}').split()


def llama_8b(layers, sequence=4096):
    return shape(sequence, 128256, f'--num-layers {layers} --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-query-groups 8')


def qwen3_30b_a3b(layers, sequence=4096):
    return shape(sequence, 151936, f'--num-layers {layers} --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 --num-query-groups 4 --kv-channels 128 '
                 '--moe-ffn-hidden-size 768 --num-experts 128 --moe-router-topk 8 --moe-router-load-balancing-type none --moe-grouped-gemm --qk-layernorm --rotary-base 1000000')


def operations(text):
    """Milliseconds that each operation takes of the last step of what ferry train printed with --timing-log-level 2."""
    seen = {}
    for ms, name in re.findall(r'^ +([\d.]+) ms, +\d+ times: (.*)$', text, re.M):
        if name in seen:
            seen = {}  # the next step's begin
        seen[name] = float(ms)
    return seen


def median(times):
    """The median of the last half of all steps."""
    last = sorted(times[len(times) // 2:])
    return last[len(last) // 2]


def train(work, words):
    """Seconds of the median step of the last half, and what was printed."""
    metrics = os.path.join(work, 'metrics.json')
    if os.path.exists(metrics):
        os.remove(metrics)
    run = subprocess.run([*words, '--metrics-json', metrics], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        sys.exit(run.stdout + 'ferry train failed')
    with open(metrics) as lines:
        return median([json.loads(line)['milliseconds'] / 1000 for line in lines]), run.stdout
