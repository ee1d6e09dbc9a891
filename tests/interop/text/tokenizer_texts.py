"""Texts for tokenizers to agree about: files of this machine and strings of all kinds."""
import glob
import gzip
import itertools
import os
import random

PIECES = ["'s", "'S", "'ll", "'LL", "'Ll", "'ve", "'re", "'d", "'t", "'m", "'\u017f", "''", "n't", "I'm", " ", "  ", "   ", "\n",
          "\n\n", "\r\n", "\r", "\t", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u2000", "\u200b", "\u200d", "\u2028", "\u2029",
          "\u202f", "\u205f", "\u3000", "\ufeff", "\u180e", "\u2581", "\u2581\u2581", "1", "12", "123", "1234567", "\u0663", "\u00bd", "\u2167", "\u00b2",
          "a", "A", "Hello", "hello", "HELLO", "HelloWorld", "iPhone", "\u01c5", "\u02b0", "\u00aa", "\u00df", "\u0130", "\u0131",
          "e\u0301", "\u0301", "\u0301\u0302", "\u0915\u094d\u0937", "\u0e33", "\u200d\u200d", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
          "\U0001f1e9\U0001f1ea", "\U0001f642", "\u65e5\u672c\u8a9e", "\u3053\u3093", "\u30ab\u30fc", "\uff76\uff9e", "\uff21\uff11", "\ud55c\uad6d\uc5b4",
          "\u1112\u1161\u11ab", "\u0627\u0644\u0633\u0644\u0627\u0645", "\ufdfa", "\ufb01", "\u2122", "\u212b", "\u1e9b\u0323", "\u0344", "\U0001d400", "\u00e9", "na\u00efve",
          "!", "...", "/", "//", "\\", "-", "--", "_", "$", "+=", "(", ")", "\u00bf", "\u2014", "\u300c", "\u20ac", "\u00a9", "\x00", "\x7f", "\ufffd", "\uffff",
          "<|endoftext|>", "<s>", "</s>", "<unk>", "<0x41>", "the", " the", " and", "ing", "def f(x):\n    return x\n", "\U00010400", "\U0001e900",
          "\U00020000", "\U000e0041", "\U0010ffff", "\U0003d000", "\u088f", "\ua7ce", "\U00016ea0"]


TREE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))


def paths(folders=(), seed=1):
    """Files of documentation, manual pages and sources, and those in `folders`, in an order that the seed gives."""
    names = []
    for pattern in ("/usr/share/doc/**/*", "/usr/share/man/**/*.gz", "/usr/include/**/*.h", "/usr/lib/python3/**/*.py",
                    "/usr/share/perl/**/*.p[lm]", "/usr/share/i18n/locales/*", "/usr/share/locale/**/*.mo", "/usr/share/common-licenses/*",
                    f"{TREE}/**/*.cpp", f"{TREE}/**/*.md", "/usr/share/vim/**/*"):
        names += [name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]
    for folder in folders:
        names += [os.path.join(place, name) for place, _, inside in os.walk(folder) for name in inside if os.path.isfile(os.path.join(place, name))]
    names.sort()
    random.Random(seed).shuffle(names)
    return names


def files(names, limit_bytes):
    """Texts of files, each cut after 200,000 bytes."""
    total = 0
    for name in names:
        try:
            data = gzip.open(name).read() if name.endswith(".gz") else open(name, "rb").read()
        except (OSError, EOFError, gzip.BadGzipFile):
            continue
        data = data[:200_000]
        if not data:
            continue
        total += len(data)
        yield data.decode("utf-8", errors="replace")
        if total > limit_bytes:
            return


def random_character(generator):
    kind = generator.randrange(8)
    if kind == 0: return chr(generator.randrange(0x20, 0x7F))
    if kind == 1: return chr(generator.randrange(0x100))
    if kind == 2: return chr(generator.randrange(0x3000))
    if kind == 3: return chr(generator.randrange(0x300, 0x370))
    if kind == 4: return generator.choice(" \t\n\r\x0b\x0c\x85\xa0\u2003\u3000")
    if kind == 5: return chr(generator.randrange(0x1F000, 0x20000))
    point = generator.randrange(0x110000) if kind == 6 else generator.randrange(0x3000, 0xFFFF)
    return "?" if 0xD800 <= point < 0xE000 else chr(point)


def fuzzed(count, seed=1):
    """Strings of up to 23 pieces, more of few: half of those above, characters, and repeated pieces. Each ten thousand choose from characters of their own."""
    generator = random.Random(seed)
    for first in range(0, count, 10_000):
        pieces = generator.choices(PIECES, k=2500) + [random_character(generator) for _ in range(2000)]
        pieces += [generator.choice(PIECES) * generator.choice((2, 3, 4, 5, 8, 9, 16, 17, 40)) for _ in range(500)]
        lengths = generator.choices(range(1, 24), weights=[1 / length for length in range(1, 24)], k=min(10_000, count - first))
        chosen = iter(generator.choices(pieces, k=sum(lengths)))
        for length in lengths:
            yield "".join(itertools.islice(chosen, length))


def malformed(count, seed=1):
    """Bytes that are not UTF-8."""
    generator = random.Random(seed)
    for text in fuzzed(count, seed + 1):
        data = bytearray(text.encode())
        for _ in range(generator.randrange(1, 6)):
            at = generator.randrange(len(data) + 1)
            if data and generator.randrange(2): del data[at:at + 1]
            else: data[at:at] = bytes([generator.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE3, 0xED, 0xA0, 0xF0, 0x9F, 0xF4, 0x90, 0xFF])])
        yield bytes(data)
