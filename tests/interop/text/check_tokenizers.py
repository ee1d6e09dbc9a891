#!/usr/bin/env python3
"""Compares our ids with those of the programs that tokenizers come from, on this machine's texts and on strings of all kinds.

check_tokenizers.py PRINT_IDS [--kinds gpt2,...] [--texts BYTES] [--strings COUNT] [--size TOKENS] [--seed N] [--part K/N] [--folders FOLDER ...]
FOLDERS have more texts. Texts are read and compared in parts, so that there may be as many as there are on the machine.
--part K/N compares a share of the texts and strings, with vocabularies of its own: all shares, from 0 on, are BYTES and COUNT in all, on as many cores.
PRINT_IDS is build/*/tests/print_ids. Needs numpy and those of tokenizers, tiktoken, sentencepiece and regex that are there: kinds whose
program is missing are left out, and it says so. GPT-2's files are read from --gpt2 FOLDER (encoder.json, vocab.bpe); without it those in
tests/fixtures serve, which are a part of them.
"""
import argparse
import itertools
import os
import struct
import subprocess
import sys
import tempfile

import numpy
import tokenizer_kinds
import tokenizer_texts


def our_ids(program, options, documents):
    data = b"".join(struct.pack("<Q", len(document)) + document for document in documents)
    answer = subprocess.run([program, *options], input=data, stdout=subprocess.PIPE, check=True).stdout
    ids, at = [], 0
    while at < len(answer):
        count, = struct.unpack_from("<Q", answer, at)
        ids.append(numpy.frombuffer(answer, numpy.int32, count, at + 8))
        at += 8 + 4 * count
    assert len(ids) == len(documents), (len(ids), len(documents))
    return ids


def compare(kind, program, documents):
    """How many documents differ; prints the first."""
    ours = our_ids(program, kind.options, documents)
    texts = [document.decode("utf-8", errors="replace") for document in documents]
    theirs = kind.encode(documents if kind.takes_bytes else texts)
    wrong = 0
    for text, our, their in zip(texts, ours, theirs):
        if numpy.array_equal(our, numpy.asarray(their, numpy.int32)): continue
        wrong += 1
        if wrong > 3: continue
        at = next((i for i, (a, b) in enumerate(zip(our, their)) if a != b), min(len(our), len(their)))
        print(f"  {kind.name}: {ascii(text[:200])}: from token {at} on ours {our[at:at + 8].tolist()}, theirs {list(their[at:at + 8])}")
    return wrong


def parts(documents):
    """Lists of documents, some 16 MB each."""
    part, size = [], 0
    for document in documents:
        part.append(document)
        size += len(document)
        if size > 16_000_000:
            yield part
            part, size = [], 0
    if part: yield part


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--texts", type=int, default=20_000_000)
    parser.add_argument("--strings", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", type=lambda part: tuple(map(int, part.split("/"))), default=(0, 1))
    parser.add_argument("--folders", nargs="*", default=[])
    parser.add_argument("--size", type=int, default=tokenizer_kinds.SIZE)
    tree = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
    parser.add_argument("--gpt2", default=os.path.join(tree, "../shared/peers/gpt2_bpe"))
    arguments = parser.parse_args()
    if not os.path.exists(arguments.gpt2): arguments.gpt2 = os.path.join(tree, "tests/fixtures/tokenizers/gpt2")
    tokenizer_kinds.SIZE = arguments.size
    share, shares = arguments.part
    paths = tokenizer_texts.paths(arguments.folders, arguments.seed)[share::shares]
    seed, texts, strings = arguments.seed * shares + share, arguments.texts // shares, arguments.strings // shares
    sources = {
        "texts": lambda: (text.encode() for text in tokenizer_texts.files(paths, texts)),
        "strings": lambda: (text.encode() for text in tokenizer_texts.fuzzed(strings, seed)),
        "malformed": lambda: tokenizer_texts.malformed(strings // 10, seed),
    }
    training = list(itertools.islice(tokenizer_texts.files(paths, texts), 400))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in tokenizer_kinds.kinds(folder, arguments.gpt2, training, [k for k in arguments.kinds.split(",") if k]):
            results = []
            for name, documents in sources.items():
                wrong = count = size = 0
                for part in parts(documents()):
                    wrong += compare(kind, arguments.program, part)
                    count, size = count + len(part), size + sum(map(len, part))
                results.append(f"{wrong} of {count} {name} ({size / 1e6:.1f} MB)")
                failed += wrong > 0
            print(f"{kind.name}: {', '.join(results)} differ", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
