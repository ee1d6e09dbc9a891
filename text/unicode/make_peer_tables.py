#!/usr/bin/env python3
"""Writes peer_tables.h: where Hugging Face's tokenizers know other characters than utf8proc and class_ranges.h do.

Needs tokenizers (0.23.3 was asked) and unicodedata2 16.0.0 in the path: make_peer_tables.py > peer_tables.h
"""
import ctypes

import unicodedata2
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]


def ranges(points):
    out = []
    for point in sorted(points):
        if out and out[-1][1] + 1 == point: out[-1][1] = point
        else: out.append([point, point])
    return out


def show(name, comment, rows):
    print(f"\n// {comment}\ninline constexpr {'PeerRange' if len(rows[0]) == 2 else 'PeerLower'} {name}[] = {{")
    line = "   "
    for row in rows:
        word = " {" + ", ".join(hex(value) for value in row) + "},"
        if len(line) + len(word) > 100:
            print(line)
            line = "   "
        line += word
    print(line + "\n};")


nfkd = normalizers.NFKD()
inert = []
for point in POINTS:
    character = chr(point)
    combining = unicodedata2.combining(character)
    parts = unicodedata2.decomposition(character).split()
    if parts and nfkd.normalize_str(character) == character:
        inert.append(point)
        # What it would be composed of, by a library that knows it: the first of two starts no other pair.
        if len(parts) == 2 and parts[0][0] != "<": inert.append(int(parts[0], 16))
    elif combining and not parts:
        # A mark of another class, before or after which it must go.
        low, high = "\u0334", "\u0345"  # classes 1 and 240
        if not (nfkd.normalize_str("a" + high + character) == "a" + character + high or combining == 240) or \
           not (nfkd.normalize_str("a" + character + low) == "a" + low + character or combining == 1): inert.append(point)
lower = normalizers.Lowercase()
utf8proc = ctypes.CDLL("libutf8proc.so.2")
changed = []
for point in POINTS:
    theirs = lower.normalize_str(chr(point))
    if point != 0x130 and theirs != chr(utf8proc.utf8proc_tolower(point)): changed.append([point, ord(theirs)])
pairs = []
for point, to in changed:
    if pairs and pairs[-1][1] + 1 == point and point + pairs[-1][2] == to: pairs[-1][1] = point
    else: pairs.append([point, point, to - point])
punctuation = pre_tokenizers.Punctuation("removed")
kept = set("".join(text for text, _ in punctuation.pre_tokenize_str("".join(map(chr, POINTS)))))
unlike = [ord(c) for c in kept if unicodedata2.category(c)[0] == "P"]
other = [p for p in POINTS if unicodedata2.category(chr(p))[0] != "P" and p > 127 and chr(p) not in kept]
tokenizer = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
tokenizer.add_tokens([AddedToken("a", single_word=True, normalized=False)])
stands_alone = tokenizer.token_to_id("a")
words = {p for p in POINTS if stands_alone not in tokenizer.encode("a" + chr(p)).ids}
words ^= {p for p in POINTS if unicodedata2.category(chr(p))[0] in "LNM"}
print("""// Written by make_peer_tables.py from what tokenizers 0.23.3 does.
#pragma once

namespace ferry::unicode {

struct PeerRange {
  char32_t first, last;
};
struct PeerLower {
  char32_t first, last;
  int distance;  // of the lower case
};""")
show("kNotNormalized", "Characters that its normal forms do not decompose, compose or reorder.", ranges(set(inert)))
show("kLowerCases", "Lower cases that a library may not know.", pairs)
show("kOtherPunctuation", "Punctuation that it does not recognize, and other characters that it treats as punctuation.", ranges(unlike + other))
show("kOtherWords", "Word characters that are not letters, numbers or marks, and numbers that are not word characters.", ranges(words))
print("\n}  // namespace ferry::unicode")
