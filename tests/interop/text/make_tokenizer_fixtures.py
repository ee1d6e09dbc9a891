#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers: small tokenizers of every kind and the peers' ids of some strings.

make_tokenizer_fixtures.py OUTPUT --gpt2 FOLDER (of GPT-2's own encoder.json and vocab.bpe, of which 1000 merges are kept, and all that
can come up in GOLDEN, so that these have the ids that the whole vocabulary gives them)
"""
import argparse
import itertools
import json
import os
import shutil

import tokenizer_kinds
import tokenizer_texts


# Whose ids tests/text/golden_ids_test.cpp has, as published programs give them with the whole vocabulary.
GOLDEN = ["Hello world", "  two  spaces\n\n\ttab's it'LL 12345 na\u00efve \u00dcn\u00ef \u65e5\u672c\u8a9e \U0001f642", "<|endoftext|>"]


def cut_gpt2(gpt2, folder, merges_kept):
    """The first merges of GPT-2 and those that GOLDEN needs, and the ids of what they can make, which stay what they are."""
    characters = tokenizer_kinds.byte_characters()
    golden = ["".join(characters[byte] for byte in text.encode()) for text in GOLDEN]
    lines = open(os.path.join(gpt2, "vocab.bpe"), encoding="utf-8").read().split("\n")[:-1]
    needed = lambda line: any("".join(line.split()) in text for text in golden)
    lines = lines[:merges_kept + 1] + [line for line in lines[merges_kept + 1:] if needed(line)]
    vocab = json.load(open(os.path.join(gpt2, "encoder.json")))
    kept = {"".join(line.split()) for line in lines[1:]} | set(tokenizer_kinds.byte_characters().values()) | {"<|endoftext|>"}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "encoder.json"), "w") as out:
        json.dump({token: id for token, id in vocab.items() if token in kept}, out)
    with open(os.path.join(folder, "vocab.bpe"), "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--gpt2", required=True)
    parser.add_argument("--kinds", default="")
    arguments = parser.parse_args()
    cut = os.path.join(arguments.output, "gpt2")
    cut_gpt2(arguments.gpt2, cut, 1000)
    strings = ["", *GOLDEN, "a" * 50, " " * 9 + "\n" * 3, *tokenizer_texts.PIECES, *tokenizer_texts.fuzzed(40, 7)]
    strings = [text.encode() for text in strings]
    training = list(itertools.islice(tokenizer_texts.files(tokenizer_texts.paths(seed=5), 3_000_000), 400))
    tokenizer_kinds.SIZE, tokenizer_kinds.SMALL = 700, True
    for kind in tokenizer_kinds.kinds(arguments.output, cut, training, [k for k in arguments.kinds.split(",") if k]):
        texts = [text.decode() for text in strings]
        ids = kind.encode(strings if kind.takes_bytes else texts)
        options = [os.path.relpath(o, arguments.output) if o.startswith(arguments.output) else o for o in kind.options]
        with open(os.path.join(arguments.output, kind.name + ".ids.json"), "w") as out:
            cases = ",\n".join(json.dumps([text, list(map(int, their))], separators=(",", ":")) for text, their in zip(texts, ids))
            out.write(f'{{"options":{json.dumps(options)},"cases":[\n{cases}\n]}}\n')


if __name__ == "__main__":
    main()
