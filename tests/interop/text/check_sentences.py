"""Holds the sentences of `ferry data tokenize --split-sentences --punkt` against those of NLTK's Punkt.

    check_sentences.py FERRY [TEXTS [CASES]]    TEXTS: a folder of documentation, by default /usr/share/perl

Trains Punkt on the texts, and divides CASES made-up texts (default 20,000), and the texts themselves, by both: with the white space behind sentences left out, and kept, as
preprocess_data.py --keep-newlines has it. Prints a line each; exit 1 on a difference."""
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../checkpoints'))
from checkpoints import Report
from make_sentence_fixtures import made_up, splitters, train, write_parameters


def sequences(prefix):
    """Documents of byte tokens as lists of strings."""
    with open(f'{prefix}.bin', 'rb') as f:
        tokens = f.read()[::2]
    with open(f'{prefix}.idx', 'rb') as f:
        index = f.read()
    count, boundaries = struct.unpack('<QQ', index[18:34])
    lengths = struct.unpack(f'<{count}i', index[34:34 + 4 * count])
    ends = struct.unpack(f'<{boundaries}q', index[34 + 12 * count:34 + 12 * count + 8 * boundaries])
    sentences, at = [], 0
    for length in lengths:
        sentences.append(tokens[at:at + length].decode())
        at += length
    return [sentences[a:b] for a, b in zip(ends, ends[1:])]


def main():
    ferry = os.path.abspath(sys.argv[1])
    folder = sys.argv[2] if len(sys.argv) > 2 else '/usr/share/perl'
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 20000
    draw = random.Random(11)
    parameters = train(folder, 3_000_000)
    texts = [made_up(draw) for _ in range(count)]
    for path in sorted(glob.glob(f'{folder}/**/*.pod', recursive=True)) + sorted(glob.glob('/usr/share/doc/**/copyright', recursive=True))[:200]:
        texts.append(open(path, encoding='utf-8', errors='ignore').read()[:300_000])
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        write_parameters(parameters, f'{work}/punkt')
        with open(f'{work}/in.jsonl', 'w') as out:
            for text in texts:
                out.write(json.dumps({'text': text}) + '\n')
        for name, splitter, flags in zip(('left out', 'kept'), splitters(parameters), ([], ['--keep-newlines'])):
            subprocess.run([ferry, 'data', 'tokenize', '--input', f'{work}/in.jsonl', '--tokenizer-type', 'bytes', '--split-sentences', '--punkt', f'{work}/punkt', '--output-prefix',
                            f'{work}/o', '--overwrite', *flags], check=True, capture_output=True)
            ours = sequences(f'{work}/o_text_sentence')
            wrong, found = [], 0
            for text, mine in zip(texts, ours, strict=True):
                theirs = [one for one in splitter.tokenize(text) if one]
                found += len(theirs)
                if mine != theirs:
                    wrong.append(f'{text[:200]!r}: {mine[:10]} here, {theirs[:10]} there')
            report.add(f'{len(texts)} texts, {found} sentences, white space behind them {name}', wrong)
    report.end()


if __name__ == '__main__':
    main()
