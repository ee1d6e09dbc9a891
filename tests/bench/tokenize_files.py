"""How long `ferry data tokenize` and `data merge` take, compared with Megatron-LM's preprocess_data.py and cp.

    tokenize_files.py FERRY MEGATRON [MEGABYTES [FOLDER]]    MEGATRON: a Megatron-LM tree (its folders megatron and tools); -: without the peer

Whole processes, from start to files on disk, in turns, the best of three: JSON lines of this machine's documentation and sources (MEGABYTES of them, default 100; the peer's script takes most of the time), GPT-2's vocabulary
(FERRY_GPT2: a folder of encoder.json and vocab.bpe), one worker and two. Also the largest memory that ferry took, and the merge of ten parts, a gigabyte
and more together, compared with cp of as many bytes, each until they are on disk. FOLDER: where files are put, default that of temporary files. Prints a JSON object."""
import glob
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time


def texts(folder_list, megabytes):
    draw = random.Random(5)
    files = sorted(path for folder in folder_list for path in glob.glob(f'{folder}/**/*', recursive=True))
    draw.shuffle(files)
    left = megabytes * 1e6
    while left > 0:
        for path in files:
            if path.endswith('.gz') or not os.path.isfile(path):
                continue
            try:
                text = open(path, encoding='utf-8').read(100000)
            except (UnicodeDecodeError, OSError):
                continue
            while text and left > 0:
                cut = draw.randint(200, 6000)
                left -= len(text[:cut])
                yield text[:cut]
                text = text[cut:]
            if left <= 0:
                return


def peer_tokenizer(vocabulary, folder):
    """GPT-2's vocabulary as a folder that transformers opens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.BPE.from_file(*vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token='<|endoftext|>', split_special_tokens=True).save_pretrained(folder)
    return folder


def timed(command, env=None):
    """Seconds, and the largest memory of the process in bytes."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f'{" ".join(command)}\n{errors.decode()}')
    return time.monotonic() - begin, usage.ru_maxrss * 1024


def main():
    ferry = os.path.abspath(sys.argv[1])
    megatron = None if sys.argv[2] == '-' else os.path.abspath(sys.argv[2])
    megabytes = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    gpt2 = os.environ.get('FERRY_GPT2', os.path.join(os.path.dirname(__file__), '../../../shared/peers/gpt2_bpe'))
    report = {'cores': os.cpu_count()}
    with tempfile.TemporaryDirectory(dir=sys.argv[4] if len(sys.argv) > 4 else None) as work:
        lines = f'{work}/in.jsonl'
        with open(lines, 'w') as out:
            for text in texts(['/usr/share/doc', '/usr/include', '/usr/lib/python3'], megabytes):
                out.write(json.dumps({'text': text}, ensure_ascii=False) + '\n')
        report['megabytes'] = os.path.getsize(lines) / 1e6
        vocabulary = [f'{work}/vocab.json', f'{work}/merges.txt']
        shutil.copy(f'{gpt2}/encoder.json', vocabulary[0])
        shutil.copy(f'{gpt2}/vocab.bpe', vocabulary[1])
        flags = ['--input', lines, '--append-eod']
        our_flags = ['--tokenizer-type', 'GPT2BPETokenizer', '--vocab-file', vocabulary[0], '--merge-file', vocabulary[1]]
        # preprocess_data.py's own GPT2BPETokenizer asks the network for files, whatever is given; this is the same vocabulary.
        their_flags = [] if not megatron else ['--tokenizer-type', 'HuggingFaceTokenizer', '--tokenizer-model', peer_tokenizer(vocabulary, f'{work}/gpt2')]
        # All that today's Megatron-LM wants of Python 3.12.
        with open(f'{work}/sitecustomize.py', 'w') as out:
            out.write('import typing\nif not hasattr(typing, "override"):\n    typing.override = lambda f: f\n')
        peer_env = {**os.environ, 'PYTHONPATH': f'{work}:{megatron or ""}', 'TOKENIZERS_PARALLELISM': 'false', 'HF_HUB_OFFLINE': '1'}
        best = {}
        for _ in range(3):
            for workers in ('1', '2'):
                ours = [ferry, 'data', 'tokenize', '--output-prefix', f'{work}/ours', '--overwrite', '--workers', workers, *flags, *our_flags]
                theirs = megatron and [sys.executable, f'{megatron}/tools/preprocess_data.py', '--output-prefix', f'{work}/theirs', '--workers', workers, *flags, *their_flags]
                for name, command, env in (('ferry', ours, None), ('preprocess_data.py', theirs, peer_env)):
                    if not command:
                        continue
                    seconds, memory = timed(command, env)
                    key = f'{name}, {workers} workers'
                    best[key] = min(best.get(key, seconds), seconds)
                    if name == 'ferry':
                        report['ferry peak bytes'] = max(report.get('ferry peak bytes', 0), memory)
        for suffix in ('bin', 'idx') if megatron else ():
            same = open(f'{work}/ours_text_document.{suffix}', 'rb').read() == open(f'{work}/theirs_text_document.{suffix}', 'rb').read()
            report[f'same .{suffix}'] = same
        report['seconds'] = best
        for workers in ('1', '2') if megatron else ():
            report[f'times as fast, {workers} workers'] = best[f'preprocess_data.py, {workers} workers'] / best[f'ferry, {workers} workers']
        report['two workers over one'] = best['ferry, 1 workers'] / best['ferry, 2 workers']
        merge(ferry, work, report)
    print(json.dumps(report, indent=2))


def merge(ferry, work, report):
    """Parts of which each is what was tokenised, as often as makes a tenth of a gigabyte."""
    again = max(1, -(-120_000_000 // os.path.getsize(f'{work}/ours_text_document.bin')))
    timed([ferry, 'data', 'merge', *[f'{work}/ours_text_document'] * again, '-o', f'{work}/part'])
    piece = open(f'{work}/part.bin', 'rb').read()
    parts = []
    for k in range(10):
        parts.append(f'{work}/p{k}')
        for suffix in ('bin', 'idx'):
            shutil.copy(f'{work}/part.{suffix}', f'{parts[-1]}.{suffix}')
    with open(f'{work}/all', 'wb') as out:
        for _ in parts:
            out.write(piece)
        os.fsync(out.fileno())
    merged, copied = [], []
    for _ in range(5):
        merged.append(timed([ferry, 'data', 'merge', *parts, '-o', f'{work}/m'])[0])
        copied.append(timed(['sh', '-c', f'cp {work}/all {work}/c && sync {work}/c'])[0])
        for name in ('m.bin', 'm.idx', 'c'):  # what removing takes is counted for neither
            os.remove(f'{work}/{name}')
    report['merge'] = {'megabytes': len(piece) * 10 / 1e6, 'ferry seconds': min(merged), 'cp and sync seconds': min(copied),
                       'rate over that of cp': min(copied) / min(merged)}


if __name__ == '__main__':
    main()
