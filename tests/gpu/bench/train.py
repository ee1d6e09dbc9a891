"""Times training steps of `ferry train` on one GPU against PyTorch's, compiled, and those of llm.c and LLM.Q, in one run, and prints the ratio of their speeds.

    train.py FERRY WORK [SHAPE[:BATCH[:LENGTH]] ...] [--steps 24] [--no-peer] [--llm-c PROGRAM] [--llmq PROGRAM] [--times] [--fp8] [--micro-batches N] [--more ARGUMENTS]

SHAPE: gpt2 (124M), gpt2-xl (1558M), llama-8b-8 (8 layers of Llama-3-8B's shape), llama-8b (all 32). A step is the forward and backward pass of BATCH sequences of LENGTH tokens,
clipping of the gradient's norm and AdamW, in bf16. ferry has fp32 copies of parameters and moments, as Megatron-LM has; PyTorch has fp32 parameters and autocast or,
where that does not fit, bf16 alone. For llama-8b ferry has gradients and moments in bf16 and of fp32 copies the lower 16 bits (--use-precision-aware-optimizer), 10
bytes a parameter; PyTorch is all in bf16, 8 bytes. Tokens a second are those of the median step of the last half. MFU counts 6 operations a parameter and token, and the
causal half of attention, against 989 TFLOP/s (the specification of an H100 or H200 in bf16). --times prints ferry's time by operation besides. --fp8 times ferry with
the linear layers of Llama's shape in FP8, too, under both recipes, and prints how much faster that is than bf16; it needs no PyTorch. --micro-batches: a step of ferry's is
that many times BATCH sequences, whose gradients are added up, as training runs have it.

--llm-c PROGRAM (`train_gpt2cu`) runs next to both for GPT-2's shapes, as its own scripts run them: bf16 parameters, fp32 copies and moments, nothing computed twice.
--llmq PROGRAM (`train`) does for Llama's, as its benchmarks run them: parameters, gradients and moments in bf16, 8 bytes a parameter, CUDA graphs; it prints whole
milliseconds, rounded down. PROGRAM is a text: what goes before the program and further arguments of it may stand there, too ('env LD_LIBRARY_PATH=... train
--lmhead-chunks 2'). Random tokens and weights; no validation, no files. --no-peer leaves PyTorch alone out. All have the same batch and shape, and the run ends where one prints
another number of parameters."""
import argparse
import array
import json
import os
import random
import re
import shlex
import subprocess
import sys

from ferry_steps import SMALL, median, train

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../bench/torch_steps.py')
SHAPES = {
    'gpt2': dict(llama=False, layers=12, hidden=768, heads=12, groups=12, ffn=3072, vocabulary=50304, length=1024, batch=64, llm_c=['-e', 'd12']),
    'gpt2-xl': dict(llama=False, layers=48, hidden=1600, heads=25, groups=25, ffn=6400, vocabulary=50304, length=1024, batch=16, llm_c=['-e', 'd48', '-ge', '1']),
    'llama-8b-8': dict(llama=True, layers=8, hidden=4096, heads=32, groups=8, ffn=14336, vocabulary=128256, length=4096, batch=2),
    'llama-8b': dict(llama=True, layers=32, hidden=4096, heads=32, groups=8, ffn=14336, vocabulary=128256, length=4096, batch=3, small=True),
}

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('shapes', nargs='*', default=['gpt2', 'gpt2:128', 'gpt2-xl', 'llama-8b-8:1', 'llama-8b-8'])
parser.add_argument('--steps', type=int, default=24)
parser.add_argument('--no-peer', action='store_true')
parser.add_argument('--llm-c')
parser.add_argument('--llmq')
parser.add_argument('--times', action='store_true')
parser.add_argument('--more', default='', help="ferry's further arguments, as one text")
parser.add_argument('--fp8', action='store_true')
parser.add_argument('--micro-batches', type=int, default=1)
a = parser.parse_args()
if a.micro_batches > 1 and not a.no_peer and not a.fp8:
    parser.error('--micro-batches is for ferry alone: --no-peer or --fp8')
os.makedirs(a.work, exist_ok=True)


def check_parameters(c, who, number):
    """All of one shape have the same parameters, those of a padded vocabulary among them."""
    head = c['hidden'] // c['heads']
    matrices = c['hidden'] * head * 2 * (c['heads'] + c['groups']) + c['hidden'] * c['ffn'] * (3 if c['llama'] else 2)
    vectors = 2 * c['hidden'] if c['llama'] else head * (c['heads'] + 2 * c['groups']) + c['ffn'] + 6 * c['hidden']
    ends = 2 * c['vocabulary'] + 1 if c['llama'] else c['vocabulary'] + c['length'] + 2
    expected = c['layers'] * (matrices + vectors) + ends * c['hidden']
    if number != expected:
        sys.exit(f'{who} has {number} parameters, not {expected}')


def ferry(c, *more):
    model = ['--swiglu', '--disable-bias-linear', '--normalization', 'RMSNorm', '--position-embedding-type', 'rope', '--group-query-attention',
             '--num-query-groups', str(c['groups']), '--untie-embeddings-and-output-weights'] if c['llama'] else []
    words = [a.ferry, 'train', '--device', 'cuda', '--bf16', '--mock-data', '--tokenizer-type', 'NullTokenizer', '--vocab-size', str(c['vocabulary']),
             '--num-layers', str(c['layers']), '--hidden-size', str(c['hidden']), '--ffn-hidden-size', str(c['ffn']),
             '--num-attention-heads', str(c['heads']), '--seq-length', str(c['length']), '--max-position-embeddings', str(c['length']),
             '--micro-batch-size', str(c['batch']), '--global-batch-size', str(c['batch'] * a.micro_batches), '--lr', '1e-4', '--train-iters', str(a.steps),
             '--eval-iters', '0', '--log-interval', '1', '--attention-dropout', '0', '--hidden-dropout', '0']
    words += model + (SMALL if c.get('small') else []) + a.more.split() + list(more)
    seconds, text = train(a.work, words)
    check_parameters(c, 'ferry', int(re.search(r'^model: (\d+) parameters', text, re.M)[1]))
    peak = re.search(r'.*peak.*', text)
    plan = re.search(r'^ +0 +\d+ .* (\S+)$', text, re.M)
    return seconds, text, ', '.join(([peak[0].strip()] if peak else []) + ([f'planned {plan[1]} GiB'] if plan else []))


def peer(c):
    for kind in ['bf16'] if c.get('small') else ['autocast', 'bf16']:
        config = c | {'device': 'cuda', 'threads': 1, 'steps': a.steps, 'compile': True, 'type': kind}
        run = subprocess.run([sys.executable, PEER, json.dumps(config)], capture_output=True, text=True)
        if run.returncode == 0:
            result = json.loads(run.stdout.splitlines()[-1])
            check_parameters(c, 'PyTorch', result['parameters'])
            return median(result['times']), f"{kind}, peak {result['peak'] / 2**30:.1f} GiB"
    sys.exit(run.stderr)


def write_tokens(path, header, code, vocabulary, count):
    draw = random.Random(1)
    with open(path, 'wb') as file:
        file.write((header + b'\0' * 1024)[:1024])
        array.array(code, draw.choices(range(vocabulary), k=count)).tofile(file)


def llm_c(c):
    tokens = os.path.join(a.work, 'llm_c.bin')
    count = c['batch'] * c['length'] * (a.steps + 1) + 1
    write_tokens(tokens, array.array('i', [20240520, 1, count]).tobytes(), 'H', 50257, count)
    words = shlex.split(a.llm_c) + c['llm_c'] + ['-i', tokens, '-j', tokens, '-b', c['batch'], '-t', c['length'], '-d', c['batch'] * c['length'], '-x', a.steps]
    words += ['-r', 0, '-l', '1e-4', '-c', '0.1', '-v', a.steps, '-m', 0, '-s', 0]
    run = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    times = [float(ms) / 1000 for ms in re.findall(r'^step .* ([\d.]+) ms ', run.stdout, re.M)]
    if run.returncode or len(times) != a.steps:
        sys.exit(run.stdout + 'llm.c failed')
    check_parameters(c, 'llm.c', int(re.search(r'^num_parameters: (\d+)', run.stdout, re.M)[1]))
    memory = int(re.search(r'^device memory usage: (\d+) MiB', run.stdout, re.M)[1])
    return median(times), f'bf16, fp32 masters and moments, {memory / 1024:.1f} GiB'


def llmq(c):
    model = os.path.join(a.work, 'llmq')
    os.makedirs(model, exist_ok=True)
    with open(os.path.join(model, 'config.json'), 'w') as file:
        json.dump({'architectures': ['LlamaForCausalLM'], 'bos_token_id': 1, 'eos_token_id': 2, 'hidden_size': c['hidden'], 'intermediate_size': c['ffn'],
                   'vocab_size': c['vocabulary'], 'num_attention_heads': c['heads'], 'num_key_value_heads': c['groups'], 'num_hidden_layers': c['layers'],
                   'max_position_embeddings': c['length'], 'rope_theta': 10000.0, 'rms_norm_eps': 1e-5, 'tie_word_embeddings': False}, file)
    tokens = os.path.join(model, 'tokens.bin')
    count = c['batch'] * c['length'] * (a.steps + 2) + 1
    write_tokens(tokens, b'BIN.TOK\n' + array.array('i', [2, 4, count, c['vocabulary']]).tobytes(), 'i', c['vocabulary'], count)
    words = shlex.split(a.llmq) + ['--model', model, '--from-scratch', '--model-dtype=bf16', '--matmul-dtype=bf16', '--opt-m-dtype=bf16', '--opt-v-dtype=bf16',
                                   '--gpus=1', '--use-cuda-graphs', '--batch-size', c['batch'], '--seq-length', c['length'], '--grad-accumulation=1',
                                   '--learning-rate=1e-4', '--steps', a.steps + 1, '--train-file', tokens, '--eval-file', tokens, '--eval-every-n-steps=0',
                                   '--ckpt-interval=0', '--log-gpu-util=0', '--log-file', os.path.join(model, 'log.json'), '--out-dir', os.path.join(model, 'out'),
                                   '--checkpoint-dir', os.path.join(model, 'checkpoints')]
    text, times = '', []
    with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        for line in run.stdout:
            text += line
            step = re.match(r'\[T\] step .*time: *(\d+) ms', line)
            times += [int(step[1]) / 1000] if step else []
            if len(times) == a.steps:
                run.kill()  # before it evaluates the model and writes it
                break
    if len(times) != a.steps:
        sys.exit(text + 'LLM.Q failed')
    return median(times), 'all bf16'


def mfu(c, tokens):
    head = c['hidden'] // c['heads']
    layer = c['hidden'] * head * 2 * (c['heads'] + c['groups']) + c['hidden'] * c['ffn'] * (3 if c['llama'] else 2)
    parameters = c['layers'] * layer + c['hidden'] * c['vocabulary']
    return tokens * (6 * parameters + 6 * c['layers'] * c['hidden'] * c['length']) / 989e12


for shape in a.shapes:
    name, *sizes = shape.split(':')
    config = SHAPES[name] | dict(zip(('batch', 'length'), map(int, sizes)))
    tokens = config['batch'] * config['length'] * a.micro_batches
    seconds, text, peak = ferry(config)
    own = tokens / seconds
    print(f"{name} B {config['batch']} T {config['length']} ferry: {own:.0f} tokens/s, {1000 * seconds:.1f} ms, MFU {100 * mfu(config, own):.1f} %. {peak}", flush=True)
    if a.fp8:
        for recipe in ['tensorwise', 'delayed']:
            words = ['--fp8-format', 'hybrid', '--fp8-recipe', recipe]
            narrow, text, peak = ferry(config, *words)
            print(f"{name} B {config['batch']} T {config['length']} ferry, FP8 {recipe}: {tokens / narrow:.0f} tokens/s, {1000 * narrow:.1f} ms, {seconds / narrow:.3f}x bf16. {peak}",
                  flush=True)
            if a.times:
                print(ferry(config, '--timing-log-level', '2', *words)[1], flush=True)
    peers = [('PyTorch', peer)] if not a.no_peer else []
    peers += [('llm.c', llm_c)] if a.llm_c and 'llm_c' in config else []
    peers += [('LLM.Q', llmq)] if a.llmq and config['llama'] else []
    for who, measure in peers if not a.fp8 else []:
        seconds, what = measure(config)
        print(f"{name} B {config['batch']} T {config['length']} {who}: {tokens / seconds:.0f} tokens/s, {1000 * seconds:.1f} ms ({what}); ferry {own * seconds / tokens:.3f}x", flush=True)
    if a.times:
        print(ferry(config, '--timing-log-level', '2')[1], flush=True)
