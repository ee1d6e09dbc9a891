"""SentencePiece models of every kind, trained here, and changed as their trainer would not."""
import os
import struct

ESCAPED_SPACE = "\u2581"
# What the kinds with a normaliser of their own do, in place of NFKC's 240 kB: fixtures have to be small.
FEW_RULES = [("\uff21", "A"), ("\uff11", "1"), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\r", " "), ("\xa0", " "), ("\ufb01", "fi"), ("\u2122", "TM"),
             ("A\u0300", "\xc0"), ("e\u0301", "\xe9"), ("e\u0301\u0302", "\xea"), ("\u200b", ""), ("\ufdfa", "a b  c"), ("\uff76\uff9e", "\u30ac")]
# name, kind of model, options of the trainer
MODELS = [
    ("spm-bpe", "bpe", {}),
    ("spm-bpe-bytes", "bpe", dict(byte_fallback=True, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False, user_defined_symbols=["<mask>", "  ", "\n"])),
    ("spm-bpe-whole", "bpe", dict(split_by_whitespace=False, normalization_rule_name="identity", user_defined_symbols=["<sep>"])),
    ("spm-bpe-unused", "bpe", dict(normalization_rule_name="identity")),
    ("spm-unigram", "unigram", {}),
    ("spm-unigram-bytes", "unigram", dict(byte_fallback=True, normalization_rule_name="nmt_nfkc_cf", user_defined_symbols=["<mask>", "http"])),
    ("spm-unigram-whole", "unigram", dict(split_by_whitespace=False, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False)),
    ("spm-unigram-unused", "unigram", dict(normalization_rule_name="identity")),
    ("spm-suffix", "unigram", dict(treat_whitespace_as_suffix=True, normalization_rule_name="nfkc")),
    ("spm-suffix-bpe", "bpe", dict(treat_whitespace_as_suffix=True, normalization_rule_name="identity", allow_whitespace_only_pieces=True, remove_extra_whitespaces=False)),
    ("spm-word", "word", {}),
    ("spm-char", "char", dict(user_defined_symbols=["<mask>", "the"])),
]


def varint(value):
    data = b""
    while value > 0x7F: data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def fields(message):
    """(number, wire type, value, whole bytes) of a protobuf message."""
    at = 0
    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80: return value
    while at < len(message):
        begin = at
        key = number()
        if key & 7 == 0: value = number()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or number()
            value, at = message[at:at + size], at + size
        yield key >> 3, key & 7, value, message[begin:at]


def with_unused(model, every):
    """Each such piece, of those that come of merges, is marked as not in use."""
    result, index = b"", 0
    for number, _, value, whole in fields(model):
        if number == 1:
            piece = {n: v for n, _, v, _ in fields(value)}
            if piece.get(3, 1) == 1 and len(piece[1].decode()) > 1:
                index += 1
                if index % every == 0:
                    message = b"\x0a" + varint(len(piece[1])) + piece[1] + b"\x15" + piece.get(2, struct.pack("<f", 0)) + b"\x18\x05"
                    whole = b"\x0a" + varint(len(message)) + message
        result += whole
    return result


def models(folder, training, size, small, is_selected):
    """Trains and yields (name, path of the .model). Small ones have few rules in place of NFKC."""
    import sentencepiece
    rules = os.path.join(folder, "rules.tsv")
    for name, kind, options in MODELS:
        if not is_selected(name): continue
        options = dict(options)
        if small and options.get("normalization_rule_name") != "identity":
            options["normalization_rule_tsv"] = rules
            options.pop("normalization_rule_name", None)
            with open(rules, "w") as out:
                for source, target in FEW_RULES:
                    out.write("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in (source, target)) + "\n")
        sentences = [line for text in training for line in text.split("\n") if line.strip() and "\0" not in line][:20000]
        path = os.path.join(folder, name)
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_prefix=path, model_type=kind, vocab_size=min(size, 4000),
                                                 character_coverage=0.995, hard_vocab_limit=False, num_threads=2, minloglevel=2, **options)
        os.remove(path + ".vocab")
        if name.endswith("-unused"):
            data = with_unused(open(path + ".model", "rb").read(), 5)
            open(path + ".model", "wb").write(data)
        if os.path.exists(rules): os.remove(rules)
        yield name, path + ".model"
