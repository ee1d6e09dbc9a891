#!/usr/bin/env python3
"""Writes class_ranges.h: what the patterns of tokenizers ask of characters, as runs.

pip install --target u16 unicodedata2==16.0.0; pip install --target u18 unicodedata2==18.0.0
PYTHONPATH=u16 make_class_ranges.py dump u16.txt; PYTHONPATH=u18 make_class_ranges.py dump u18.txt
make_class_ranges.py join u16.txt u18.txt > class_ranges.h
"""
import sys

SPACES = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
          0x205F, 0x3000}


def flags(category, point):
    value = 0
    if category[0] == "L": value |= 1
    if category[0] == "N": value |= 2
    if point in SPACES: value |= 4
    if category[0] == "M": value |= 8
    if category in ("Lu", "Lt", "Lm", "Lo") or category[0] == "M": value |= 16
    if category in ("Ll", "Lm", "Lo") or category[0] == "M": value |= 32
    if category[0] == "S": value |= 64
    if category[0] == "P": value |= 128
    return value


def runs(values, skip=None):
    out, before = [], skip[0] if skip else 0
    start = 0
    while start < len(values):
        end = start
        while end < len(values) and values[end] == values[start]:
            end += 1
        out.append((start, end, values[start]))
        start = end
    return out


def lines(numbers):
    line = "   "
    for number in numbers:
        word = f" 0x{number:x},"
        if len(line) + len(word) > 100:
            print(line)
            line = "   "
        line += word
    print(line)


if sys.argv[1] == "dump":
    import unicodedata2
    with open(sys.argv[2], "w") as out:
        print(unicodedata2.unidata_version, file=out)
        for point in range(0x110000):
            print(flags(unicodedata2.category(chr(point)), point), file=out)
else:
    tables = []
    for name in sys.argv[2:4]:
        version, *values = open(name).read().split()
        tables.append((version, [int(value) for value in values]))
    (old, before), (new, after) = tables
    print(f"""// Written by make_class_ranges.py from the character databases of Unicode {old} and {new}.
#pragma once

#include <cstdint>

namespace ferry::unicode {{

// Runs of equal classes: the first character << 8 | its classes (CharacterClass).
inline constexpr uint32_t kClassRanges[] = {{""")
    lines(start << 8 | value for start, end, value in runs(before))
    print(f"""}};

// Where Unicode {new} has other classes than {old}: the first character << 8 | classes, how many.
inline constexpr uint32_t kNewerClassRanges[] = {{""")
    numbers = []
    for start, end, value in runs([a if a != b else -1 for a, b in zip(after, before)]):
        if value >= 0: numbers += [start << 8 | value, end - start]
    lines(numbers)
    print("};\n\n}  // namespace ferry::unicode")
