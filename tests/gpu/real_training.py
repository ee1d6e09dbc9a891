"""Trains GPT-2 124M on real text with ferry and with PyTorch, compiled, from the same weights, on the same batches in the same order, and compares.

    real_training.py FERRY WORK TEXT [TEXT ...] [--tokens 27000000] [--epochs 2] [--vocabulary FOLDER] [--device cuda] [--fp8]

TEXT: folders with text (.py, .md, .rst, .txt, .h), of which so many tokens are taken, or files. They are tokenised as GPT-2 does (FOLDER has its encoder.json and vocab.bpe).
The weights are those that ferry begins with: the first step of the warm-up has the learning rate 0, so that they are what a run of one step saves.
Both train in bf16 with fp32 copies of parameters and fp32 moments, 64 sequences of 1024 tokens a step. Printed are tokens/s of both (medians), and how far the means of
the losses of 20 steps are from each other; within 1 % is asked for. WORK/report.html has the curves. PyTorch trains twice: as its users do, with autocast, where embeddings,
norms and what layers add up are in fp32; and with a model in bf16 whose optimizer has fp32 copies, which is Megatron-LM's recipe and ferry's. The bar is for the latter.
With --fp8 ferry's own runs with linear layers in FP8, scaled by tensor and delayed, stand in PyTorch's place."""
import argparse
import glob
import json
import math
import os
import subprocess
import sys

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('text', nargs='+')
parser.add_argument('--tokens', type=int, default=27_000_000)
parser.add_argument('--epochs', type=int, default=2)
parser.add_argument('--vocabulary', default=os.path.join(here, '../fixtures/tokenizers/gpt2'))
parser.add_argument('--device', default='cuda')
parser.add_argument('--batch', type=int, default=64)
parser.add_argument('--length', type=int, default=1024)
parser.add_argument('--layers', type=int, default=12)
parser.add_argument('--fp8', action='store_true')
a = parser.parse_args()
RATE, LEAST_RATE, HIDDEN, HEADS, VOCABULARY = 3e-4, 3e-5, 768, 12, 50304
os.makedirs(a.work, exist_ok=True)


def path(name):
    return os.path.join(a.work, name)


def quietly(*words):
    run = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        sys.exit(f'{run.stdout[-3000:]}\n{" ".join(map(str, words[:3]))} ended with {run.returncode}')
    return run.stdout


def texts():
    """Paths of files that are text, and neither empty nor tables."""
    for text in a.text:
        found = [text] if os.path.isfile(text) else (os.path.join(folder, name) for folder, _, names in os.walk(text) for name in sorted(names)
                                                     if name.endswith(('.py', '.md', '.rst', '.txt', '.h')))
        for file in found:
            if os.path.isfile(file) and 500 < os.path.getsize(file) < 500_000:
                try:
                    with open(file, encoding='utf-8') as f:
                        f.read()
                except UnicodeDecodeError:
                    continue
                yield file


def tokenise():
    """Writes the documents' tokens and returns how many documents and tokens there are."""
    chosen, size = [], 0
    for file in texts():
        if size > 4 * a.tokens:
            break
        chosen.append(file)
        size += os.path.getsize(file)
    while True:
        with open(path('files'), 'w') as f:
            f.write('\n'.join(chosen) + '\n')
        quietly(a.ferry, 'data', 'tokenize', '--input-list', path('files'), '--input-format', 'text', '--output-prefix', path('text'), '--append-eod', '--overwrite',
                '--tokenizer-type', 'GPT2BPETokenizer', '--vocab-file', f'{a.vocabulary}/encoder.json', '--merge-file', f'{a.vocabulary}/vocab.bpe')
        count = os.path.getsize(prefix + '.bin') // 2
        if count < 1.1 * a.tokens:
            return len(chosen), count
        chosen = chosen[:int(1.02 * len(chosen) * a.tokens / count)]


def samples():
    """The samples in the order of ferry's index files, which are Megatron-LM's: [steps * batch][length + 1] tokens."""
    with open(prefix + '.idx', 'rb') as f:
        f.seek(9 + 8 + 1)
        count = int(np.frombuffer(f.read(8), np.int64)[0])
        f.seek(8, 1)
        lengths = np.frombuffer(f.read(4 * count), np.int32).astype(np.int64)
    tokens = np.memmap(prefix + '.bin', np.uint16, 'r')
    begins = np.concatenate([[0], np.cumsum(lengths)])
    index = {name: np.load(glob.glob(path(f'cache/*-train-{name}_index.npy'))[0]) for name in ('document', 'sample', 'shuffle')}
    stream = np.concatenate([tokens[begins[d]:begins[d + 1]] for d in index['document']])
    starts = np.concatenate([[0], np.cumsum(lengths[index['document']])])
    order = index['shuffle'][:steps * a.batch]
    result = np.empty((len(order), a.length + 1), np.uint16)
    for row, number in enumerate(order):
        position, offset = index['sample'][number]
        begin = starts[position] + offset
        result[row] = stream[begin:begin + a.length + 1]
    np.save(path('samples.npy'), result)


def rate(step):
    if step <= warmup:
        return RATE * step / warmup
    part = (step - warmup) / (steps - warmup)
    return LEAST_RATE + (RATE - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * part))


def median(values):
    return sorted(values)[len(values) // 2]


prefix = path('text_text_document')
documents, count = tokenise()
steps = a.epochs * count // (a.batch * a.length)
# A shorter warm-up, or a higher rate, makes losses jump, and roundings then part the curves of any two programs.
warmup = max(1, steps // 4)
print(f'{documents} documents of {", ".join(a.text)}, {count} tokens; {steps} steps of {a.batch * a.length} tokens, {steps * a.batch * a.length / count:.2f} epochs', flush=True)
words = (f'--num-layers {a.layers} --hidden-size {HIDDEN} --num-attention-heads {HEADS} --seq-length {a.length} --max-position-embeddings {a.length} --attention-dropout 0 '
         f'--hidden-dropout 0 --split 1,0,0 --tokenizer-type NullTokenizer --vocab-size {VOCABULARY} --make-vocab-size-divisible-by 1 --eval-iters 0 '
         f'--micro-batch-size {a.batch} --global-batch-size {a.batch} --train-iters {steps} --lr {RATE} --min-lr {LEAST_RATE} --lr-decay-style cosine '
         f'--lr-warmup-iters {warmup} --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --log-interval 1 --bf16 --device {a.device} '
         f'--data-path {prefix} --data-cache-path {path("cache")}').split()


def train(name, *more):
    """Trains with ferry and returns the losses of its steps and their median seconds."""
    if os.path.exists(path(f'{name}.jsonl')):
        os.remove(path(f'{name}.jsonl'))
    quietly(a.ferry, 'train', *words, '--metrics-json', path(f'{name}.jsonl'), *more)
    with open(path(f'{name}.jsonl')) as f:
        lines = [json.loads(line) for line in f]
    return [line['lm loss'] for line in lines], median([line['milliseconds'] / 1000 for line in lines])


def begin_alike():
    """Writes the weights that ferry begins with, and its samples."""
    quietly(a.ferry, 'train', *words, '--save', path('begin'), '--save-interval', 1, '--exit-interval', 1)
    quietly(a.ferry, 'convert', path('begin'), path('hf'), '--to', 'hf', '--dtype', 'float32', '--overwrite')
    samples()


def train_with_pytorch(name, type):
    """Trains with autocast or in bf16, and returns the losses and the median seconds of steps."""
    config = dict(llama=False, layers=a.layers, hidden=HIDDEN, heads=HEADS, groups=HEADS, ffn=4 * HIDDEN, vocabulary=VOCABULARY, length=a.length, batch=a.batch,
                  device=a.device, threads=os.cpu_count(), steps=steps, compile=a.device == 'cuda', type=type, weights=path('hf'),
                  samples=path('samples.npy'), rates=[rate(i) for i in range(steps)], weight_decay=0.1)
    peer = json.loads(quietly(sys.executable, os.path.join(here, '../bench/torch_steps.py'), json.dumps(config)).splitlines()[-1])
    with open(path(f'{name}.jsonl'), 'w') as f:
        for i, loss in enumerate(peer['losses']):
            f.write(json.dumps({'iteration': i + 1, 'consumed samples': (i + 1) * a.batch, 'lm loss': loss, 'learning rate': rate(i),
                                'milliseconds': 1000 * peer['times'][i]}) + '\n')
    return peer['losses'], median(peer['times'])


def compare(name, theirs, their_seconds):
    """Prints how far apart the curves are and returns whether they are within 1 %."""
    size = min(20, steps)
    windows = [(sum(own[i:i + size]) / size, sum(theirs[i:i + size]) / size) for i in range(0, len(own) - size + 1, size)]
    worst = max(abs(one / other - 1) for one, other in windows)
    for i in sorted({0, 1, 2, len(windows) // 4, len(windows) // 2, len(windows) - 1} & set(range(len(windows)))):
        print(f'steps {i * size + 1} to {(i + 1) * size}: ferry {windows[i][0]:.4f}, {name} {windows[i][1]:.4f}')
    tokens = a.batch * a.length
    print(f'first loss {own[0]:.5f}, {theirs[0]:.5f}; means of {size} steps differ by {worst:.3%} at most, the last by {windows[-1][0] / windows[-1][1] - 1:+.3%}')
    print(f'ferry {tokens / own_seconds:.0f} tokens/s, {name} {tokens / their_seconds:.0f}: {their_seconds / own_seconds:.3f}x', flush=True)
    return worst < 0.01 and len(own) == len(theirs) == steps


own, own_seconds = train('ferry')
if a.fp8:
    peers = {f'FP8 {recipe}': train(f'FP8 {recipe}', '--fp8-format', 'hybrid', '--fp8-recipe', recipe) for recipe in ('tensorwise', 'delayed')}
else:
    begin_alike()
    peers = {'PyTorch': train_with_pytorch('PyTorch', 'autocast'), 'PyTorch-bf16': train_with_pytorch('PyTorch-bf16', 'bf16')}
quietly(a.ferry, 'report', '--training', *(path(f'{name}.jsonl') for name in ('ferry', *peers)), '-o', path('report.html'), '--overwrite')
within = {name: compare(name, *peer) for name, peer in peers.items()}
within.pop('PyTorch', None)
sys.exit(0 if all(within.values()) else 1)
