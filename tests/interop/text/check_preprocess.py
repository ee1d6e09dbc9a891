"""Holds `ferry data tokenize` against Megatron-LM's tools/preprocess_data.py: the bytes of .bin and .idx.

    check_preprocess.py FERRY [MEGATRON [TEXTS [DOCUMENTS]]]    MEGATRON: a Megatron-LM tree (its folders megatron and tools)

Without a tree, or with -, what that script does with a line is done here by transformers and by the IndexedDatasetBuilder of the package megatron-core, which writes the files. Runs both on JSON lines of this machine's documentation (or of the folder TEXTS) and of edge cases, at several numbers of workers and partitions, with one key and several,
plain and compressed, and compares what they write. GPT-2's vocabulary and merges (FERRY_GPT2: a folder of encoder.json and vocab.bpe), which preprocess_data.py takes as a tokenizer.json.
Prints a line each; exit 1 on a difference."""
import glob
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../checkpoints'))
from checkpoints import Report

WORDS = ['the ', 'Wörter', ' 日本語', '🙂', '\n\n', '\t', '"quoted"', '\\', '  ', "it's", ' 12345', '<|endoftext|>', 'é', '\u200d', '\u0000', '.', 'ﬁ', '\r\n', 'x' * 70]


def documents(texts, count):
    """Files of text cut at random, and made-up ones."""
    draw = random.Random(17)
    files = sorted(glob.glob(f'{texts}/**/*', recursive=True))
    draw.shuffle(files)
    found = []
    for path in files:
        if len(found) >= count:
            break
        try:
            text = open(path, encoding='utf-8').read(40000) if os.path.isfile(path) and not path.endswith('.gz') else ''
        except (UnicodeDecodeError, OSError):
            continue
        while text:
            cut = draw.randint(1, 4000)
            found.append(text[:cut])
            text = text[cut:]
    for _ in range(500):
        found.append(''.join(draw.choice(WORDS) for _ in range(draw.randint(0, 40))))
    draw.shuffle(found)
    return found


def write_lines(path, texts):
    """Objects with two keys, of strings and lists of strings; escaped and not."""
    draw = random.Random(3)
    with open(path, 'w', encoding='utf-8') as out:
        for number, text in enumerate(texts):
            value = text if draw.random() < 0.8 else [text[i:i + 50] for i in range(0, len(text), 50)] + ['']
            line = {'id': number, 'text': value, 'meta': {'n': [1.5, None, {'text': 'no'}]}, 'title': text[:20]}
            out.write(json.dumps(line, ensure_ascii=draw.random() < 0.5) + '\n')


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f'{" ".join(command)}\n{done.stdout}\n{done.stderr}')
    return done


def read(path):
    with open(path, 'rb') as f:
        return f.read()


class Check:
    def __init__(self, ferry, megatron, work):
        self.ferry, self.megatron, self.work, self.report = ferry, megatron, work, Report()

    def peer(self, prefix, *flags):
        if not self.megatron:
            return self.peer_by_core(prefix, flags)
        script = os.path.join(self.megatron, 'tools', 'preprocess_data.py')
        run([sys.executable, script, '--output-prefix', os.path.join(self.work, prefix), *flags],
            env={**os.environ, 'PYTHONPATH': f'{self.work}:{self.megatron}', 'TOKENIZERS_PARALLELISM': 'false', 'HF_HUB_OFFLINE': '1'})

    def peer_by_core(self, prefix, flags):
        """What preprocess_data.py does: ids of each text, an end-of-document token after the last, documents in order, or dealt to partitions that follow each other."""
        import numpy
        from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
        from transformers import AutoTokenizer
        option = lambda name, otherwise=None: flags[flags.index(name) + 1] if name in flags else otherwise
        keys = flags[flags.index('--json-keys') + 1:flags.index('--json-keys') + 3] if '--json-keys' in flags else ['text']
        tokenizer = AutoTokenizer.from_pretrained(option('--tokenizer-model'))
        with open(option('--input'), encoding='utf-8') as lines:
            documents = [json.loads(line) for line in lines]
        count = int(option('--partitions', '1'))
        documents = [document for k in range(count) for document in documents[k::count]]
        for key in keys:
            builder = IndexedDatasetBuilder(os.path.join(self.work, f'{prefix}_{key}_document.bin'), dtype=DType.optimal_dtype(len(tokenizer)))
            for document in documents:
                texts = document[key] if isinstance(document[key], list) else [document[key]]
                sentences = [ids for ids in (tokenizer(text, add_special_tokens=False)['input_ids'] for text in texts) if ids]
                if sentences and '--append-eod' in flags:
                    sentences[-1].append(tokenizer.eos_token_id)
                builder.add_document(numpy.array([one for ids in sentences for one in ids], dtype=numpy.int64), [len(ids) for ids in sentences])
            builder.finalize(os.path.join(self.work, f'{prefix}_{key}_document.idx'))

    def ours(self, prefix, *flags):
        run([self.ferry, 'data', 'tokenize', '--output-prefix', os.path.join(self.work, prefix), '--overwrite', *flags])

    def same(self, what, keys, ours='ours', peer='peer'):
        wrong = []
        for key in keys:
            for suffix in ('bin', 'idx'):
                a, b = (read(os.path.join(self.work, f'{name}_{key}_document.{suffix}')) for name in (ours, peer))
                if a != b:
                    wrong.append(f'{key}.{suffix}: {len(a)} bytes here, {len(b)} there')
        self.report.add(what, wrong)


def main():
    ferry = os.path.abspath(sys.argv[1])
    megatron = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] != '-' else None
    texts = sys.argv[3] if len(sys.argv) > 3 else '/usr/share/doc'
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 20000
    here = os.path.dirname(os.path.abspath(__file__))
    gpt2 = os.environ.get('FERRY_GPT2', os.path.join(here, '../../../../shared/peers/gpt2_bpe'))
    if not os.path.isdir(gpt2):
        gpt2 = os.path.join(here, '../../fixtures/tokenizers/gpt2')  # a part of the vocabulary
    with tempfile.TemporaryDirectory() as work:
        check = Check(ferry, megatron, work)
        # All that today's Megatron-LM wants of Python 3.12.
        with open(f'{work}/sitecustomize.py', 'w') as out:
            out.write('import typing\nif not hasattr(typing, "override"):\n    typing.override = lambda f: f\n')
        lines = os.path.join(work, 'in.jsonl')
        write_lines(lines, documents(texts, count))
        size = os.path.getsize(lines) / 1e6
        for name, theirs, ours in tokenizers(gpt2, work):
            both = ['--input', lines, '--append-eod', '--json-keys', 'text', 'title']
            check.peer('peer', *both, *theirs, '--workers', '2')
            for workers in ('1', '2', '5'):
                check.ours('ours', *both, *ours, '--workers', workers)
                check.same(f'{name}: {size:.1f} MB, {workers} workers', ('text', 'title'))
            with gzip.open(f'{lines}.gz', 'wb', compresslevel=1) as out:
                out.write(read(lines))
            check.ours('ours', '--input', f'{lines}.gz', *both[2:], *ours)
            check.same(f'{name}: compressed', ('text', 'title'))
            for k in range(3):
                check.ours('part', *both, *ours, '--part', f'{k}/3')
            for key in ('text', 'title'):
                parts = [os.path.join(work, f'part_0000{k}-of-00003_{key}_document') for k in range(3)]
                run([ferry, 'data', 'merge', *parts, '-o', os.path.join(work, f'whole_{key}_document'), '--overwrite'])
            check.same(f'{name}: three parts, merged', ('text', 'title'), 'whole')
            plain = ['--input', lines, '--partitions', '2']
            check.peer('dealt', *plain, *theirs, '--workers', '2')
            check.ours('ours', *plain, *ours)
            check.same(f'{name}: two partitions', ('text',), peer='dealt')
        if not megatron:
            print('its files are written by megatron-core and its loop is played here: preprocess_data.py itself needs a tree of Megatron-LM')
        check.report.end()


def tokenizers(gpt2, work):
    """Name, flags of preprocess_data.py, flags of ferry."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    vocabulary, merges = f'{gpt2}/encoder.json', f'{gpt2}/vocab.bpe'
    tokenizer = Tokenizer(models.BPE.from_file(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder = os.path.join(work, 'gpt2')
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token='<|endoftext|>', split_special_tokens=True).save_pretrained(folder)
    # Its own GPT2BPETokenizer asks the network for files, whatever is given.
    return [('GPT-2', ['--tokenizer-type', 'HuggingFaceTokenizer', '--tokenizer-model', folder],
             ['--tokenizer-type', 'GPT2BPETokenizer', '--vocab-file', vocabulary, '--merge-file', merges])]


if __name__ == '__main__':
    main()
