"""check_generation.py FERRY: from text to a model that transformers generates with, through a kill.

The licences of the system become token files, two tensor-parallel ranks train a small Llama on them until they are killed (SIGKILL), two pipeline
stages go on from the last checkpoint, and the result goes to Hugging Face. Then transformers' loss on the validation samples, taken from the files
that ferry wrote, must be what ferry prints, and what it generates must be text that the tokenizer of the folder decodes."""
import glob, os, re, shutil, signal, subprocess, sys, tempfile, time
import numpy as np, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from check_training import licences, quietly

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
ITERATIONS, LENGTH, BATCH, EVALUATIONS = 200, 64, 8, 2
BOUND = 1e-5  # relative, of the loss


def train_words(work):
    return f'''--num-layers 4 --hidden-size 96 --ffn-hidden-size 256 --num-attention-heads 4 --group-query-attention --num-query-groups 2
        --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights
        --seq-length {LENGTH} --max-position-embeddings {LENGTH} --attention-dropout 0 --hidden-dropout 0
        --data-path {work}/text_text_document --data-cache-path {work}/cache --split 9,1,0
        --tokenizer-type HuggingFaceTokenizer --tokenizer-model {work}/tokenizer --make-vocab-size-divisible-by 1 --micro-batch-size {BATCH} --global-batch-size {BATCH}
        --train-iters {ITERATIONS} --eval-iters {EVALUATIONS} --eval-interval {ITERATIONS} --lr 4e-3 --min-lr 4e-4 --lr-decay-style cosine
        --lr-warmup-iters 10 --weight-decay 0.1 --clip-grad 1.0 --log-interval 1 --save {work}/run --save-interval 50'''.split()


def killed_and_resumed(ferry, work):
    words = [ferry, 'train', *train_words(work)]
    with subprocess.Popen([*words, '--tensor-model-parallel-size', '2'], stdout=subprocess.PIPE, text=True) as first:
        for line in first.stdout:
            if re.search(r'iteration +120/', line): first.send_signal(signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL, first.returncode
    log = quietly(*words, '--load', f'{work}/run', '--pipeline-model-parallel-size', '2')
    begin = int(re.search(r'loaded checkpoint .* at iteration (\d+)', log).group(1))
    assert begin in (50, 100), begin
    return begin, float(re.findall(r'validation loss at .*lm loss value: (\S+)', log)[0])


def validation_samples(work):
    """The samples of Megatron-LM's index files: runs of tokens over the documents in their order."""
    index = {name: np.load(glob.glob(f'{work}/cache/*-valid-{name}_index.npy')[0]) for name in ('document', 'sample', 'shuffle')}
    tokens = np.memmap(f'{work}/text_text_document.bin', np.uint16)
    lengths = document_lengths(f'{work}/text_text_document.idx')
    begins = np.concatenate([[0], np.cumsum(lengths)])
    documents = [tokens[begins[d]:begins[d + 1]] for d in index['document']]
    stream = np.concatenate(documents).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum([len(d) for d in documents])])
    for number in index['shuffle']:
        position, offset = index['sample'][number]
        yield torch.from_numpy(stream[starts[position] + offset:][:LENGTH + 1])


def document_lengths(path):
    """The lengths from an index file of version 1: header of 34 bytes, then an int32 a sequence, and each document is one sequence here."""
    with open(path, 'rb') as file:
        header = file.read(34)
        assert header[:9] == b'MMIDIDX\0\0' and header[17] == 8, header
        return np.frombuffer(file.read(4 * int.from_bytes(header[18:26], 'little')), np.int32)


def loss_of_transformers(model, work):
    ordered = validation_samples(work)
    with torch.no_grad():
        batch = torch.stack([next(ordered) for _ in range(BATCH * EVALUATIONS)])
        return torch.nn.functional.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1).float(), batch[:, 1:].flatten()).item()


def main(ferry):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    texts = licences()
    if not texts: return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        os.mkdir(f'{work}/tokenizer')
        shutil.copy(f'{ROOT}/tests/fixtures/tokenizers/hf-llama3.json', f'{work}/tokenizer/tokenizer.json')
        with open(f'{work}/tokenizer/tokenizer_config.json', 'w') as file:
            file.write('{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}')
        quietly(ferry, 'data', 'tokenize', '--input', *texts, '--input-format', 'text', '--output-prefix', f'{work}/text', '--append-eod',
            '--tokenizer-type', 'HuggingFaceTokenizer', '--tokenizer-model', f'{work}/tokenizer')
        begin, ours = killed_and_resumed(ferry, work)
        quietly(ferry, 'convert', f'{work}/run', f'{work}/hf', '--to', 'hf', '--tokenizer', f'{work}/tokenizer')
        model = AutoModelForCausalLM.from_pretrained(f'{work}/hf', dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(f'{work}/hf')
        theirs = loss_of_transformers(model, work)
        prompt = tokenizer('This program is free software', add_special_tokens=False, return_tensors='pt')
        ids = model.generate(**prompt, max_new_tokens=24, do_sample=False)
        text = tokenizer.decode(ids[0], skip_special_tokens=True)
    difference = abs(ours - theirs) / theirs
    print(f'killed, resumed from iteration {begin} on two pipeline stages; validation loss {ours:.6f}, by transformers {theirs:.6f}, '
          f'relative {difference:.1e} (bound {BOUND:g}); {time.monotonic() - began:.0f} s')
    print(f'generated: {text!r}')
    return int(difference > BOUND or '\ufffd' in text or len(text) < 40)


if __name__ == '__main__':
    sys.exit(main(os.path.realpath(sys.argv[1])))
