"""check_training.py FERRY: ferry train learns as PyTorch does, from the same weights and on the same samples.

A small Llama is trained on the bytes of /usr/share/common-licenses by ferry, and by transformers' own model and torch's AdamW with the same recipe
(warm-up, cosine decay, clipping). The weights are those that ferry begins with: the first iteration's learning rate is 0, so that they are what a
run of one iteration saves. The samples are those of the index files in ferry's data cache, which are Megatron-LM's. So seeds do not matter: the
losses of the first iterations agree in six digits, later ones drift apart as rounding does, and the last ten's mean may differ by 1 %."""
import glob, math, os, re, subprocess, sys, tempfile
import numpy as np, torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

ITERATIONS, WARMUP, BATCH, LENGTH, RATE, LEAST_RATE = 60, 10, 8, 128, 4e-3, 4e-4
RUN = f'''--num-layers 4 --hidden-size 128 --ffn-hidden-size 352 --num-attention-heads 4 --group-query-attention --num-query-groups 2
    --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights
    --seq-length {LENGTH} --max-position-embeddings {LENGTH} --attention-dropout 0 --hidden-dropout 0
    --split 1,0,0 --tokenizer-type NullTokenizer --vocab-size 257 --make-vocab-size-divisible-by 1 --eval-iters 0
    --micro-batch-size {BATCH} --global-batch-size {BATCH} --train-iters {ITERATIONS} --lr {RATE} --min-lr {LEAST_RATE}
    --lr-decay-style cosine --lr-warmup-iters {WARMUP} --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --log-interval 1'''.split()


def quietly(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def licences():
    """Texts of the system to train on; none, and why, where it has too few."""
    texts = [f for f in sorted(glob.glob('/usr/share/common-licenses/*')) if not os.path.islink(f)]
    if sum(map(os.path.getsize, texts)) < 150_000:
        print('skipped: /usr/share/common-licenses has too little text')
        return []
    return texts


def train_with_ferry(ferry, documents, work):
    quietly(ferry, 'data', 'bytes', f'{work}/text', '--append-eod', *documents)
    data = ['--data-path', f'{work}/text', '--data-cache-path', f'{work}/cache']
    quietly(ferry, 'train', *RUN, *data, '--save', f'{work}/begin', '--save-interval', '1', '--exit-interval', '1')
    quietly(ferry, 'convert', f'{work}/begin', f'{work}/hf', '--to', 'hf')
    log = quietly(ferry, 'train', *RUN, *data)
    losses = [float(loss) for loss in re.findall(r'lm loss: (\S+)', log)]
    losses[1] = 2 * losses[1] - losses[0]  # the second line is of the first two iterations, as Megatron-LM's is
    return losses


def samples(documents, cache):
    index = {name: np.load(glob.glob(f'{cache}/*-train-{name}_index.npy')[0]) for name in ('document', 'sample', 'shuffle')}
    texts = [np.frombuffer(open(f, 'rb').read() + b'\0', np.uint8).astype(np.int64) for f in documents]
    for text in texts: text[-1] = 256
    stream = np.concatenate([texts[d] for d in index['document']])
    starts = np.cumsum([0] + [len(texts[d]) for d in index['document']])
    for number in index['shuffle']:
        position, offset = index['sample'][number]
        begin = starts[position] + offset
        yield torch.from_numpy(stream[begin:begin + LENGTH + 1])


def rate(step):
    if step <= WARMUP: return RATE * step / WARMUP
    part = (step - WARMUP) / (ITERATIONS - WARMUP)
    return LEAST_RATE + (RATE - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * part))


def train_with_torch(folder, ordered):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    groups = [{'params': [p for p in model.parameters() if p.dim() > 1], 'weight_decay': 0.1},
              {'params': [p for p in model.parameters() if p.dim() == 1], 'weight_decay': 0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(ITERATIONS):
        for group in optimizer.param_groups: group['lr'] = rate(step)
        batch = torch.stack([next(ordered) for _ in range(BATCH)])
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def main(ferry):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    documents = licences()
    if not documents: return 0
    with tempfile.TemporaryDirectory() as work:
        ours = train_with_ferry(ferry, documents, work)
        theirs = train_with_torch(f'{work}/hf', samples(documents, f'{work}/cache'))
    assert len(ours) == len(theirs) == ITERATIONS, len(ours)
    differences = [abs(a / b - 1) for a, b in zip(ours, theirs)]
    last = [sum(losses[-10:]) / 10 for losses in (ours, theirs)]
    print(f'loss of ferry {ours[0]:.4f} -> {last[0]:.4f}, of PyTorch {theirs[0]:.4f} -> {last[1]:.4f} ({last[0] / last[1] - 1:+.3%}); '
          f'largest difference of the first five {max(differences[:5]):.1e}, of all {max(differences):.1e}')
    if max(differences[:5]) < 1e-5 and abs(last[0] / last[1] - 1) < 0.01 and last[0] < 4: return 0
    print('FAILED: they do not learn alike')
    return 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
