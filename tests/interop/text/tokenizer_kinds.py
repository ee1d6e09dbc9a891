"""Tokenizers of every kind, as the peers' programs make and read them. Small vocabularies are trained with the peers' trainers."""
import base64
import importlib
import json
import os
import unicodedata
from dataclasses import dataclass, field
from typing import Callable

import sentencepiece_kinds


def optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"without {name}: its tokenizers are left out", flush=True)


regex, tiktoken, sentencepiece = optional("regex"), optional("tiktoken"), optional("sentencepiece")
tokenizers = optional("tokenizers")
if tokenizers: from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SUFFIX}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
# Those that are not written by hand: through PCRE2. One that no published tokenizer has, Kimi K2's, and what the peers' programs
# mean otherwise than PCRE2 does.
OTHER = r"[A-Z]?[a-z]+|\d{2}|\p{Greek}+|[^\sA-Za-z0-9]+|\s"
NO_HAN = r"&&[^\p{Han}]]"
KIMI = "|".join([r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER[:-1]}{NO_HAN}*{LOWER[:-1]}{NO_HAN}+{SUFFIX}",
                 rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER[:-1]}{NO_HAN}+{LOWER[:-1]}{NO_HAN}*{SUFFIX}",
                 r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CLASSES = r"^\h{2,}+|[\p{L}&&[^a-e\p{Greek}]]+|\b[\w&&[^\d]]{1,2}+|[\d[:punct:]-]+$|[\S&&\W]|\s"


@dataclass
class Kind:
    name: str
    options: list
    encode: Callable
    takes_bytes: bool = False


def of_few_characters(texts, most):
    """The texts whose characters are `most` at the most, with those of the ones before: a unigram vocabulary has a token for each character."""
    characters, some = set(), []
    for text in texts:
        with_it = characters | set(unicodedata.normalize("NFKC", text))
        if len(with_it) > most: continue
        characters = with_it
        some.append(text)
    return some


def byte_characters():
    characters, extra = {}, 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte: characters[byte] = chr(byte)
        else: characters[byte], extra = chr(256 + extra), extra + 1
    return characters


class Gpt2:
    """GPT-2's algorithm as Megatron-LM has it: all pairs of the lowest rank are merged, then the next."""

    def __init__(self, vocab, merges):
        self.vocab = json.load(open(vocab))
        lines = open(merges, encoding="utf-8").read().split("\n")[1:-1]
        self.ranks = {tuple(line.split()): rank for rank, line in enumerate(lines)}
        self.characters, self.pattern, self.known = byte_characters(), regex.compile(GPT2), {}

    def piece(self, piece):
        if piece in self.known: return self.known[piece]
        word = [self.characters[byte] for byte in piece.encode()]
        while len(word) > 1:
            best = min(zip(word, word[1:]), key=lambda pair: self.ranks.get(pair, 1 << 40))
            if best not in self.ranks: break
            merged, at = [], 0
            while at < len(word):
                both = at + 1 < len(word) and (word[at], word[at + 1]) == best
                merged.append(word[at] + word[at + 1] if both else word[at])
                at += 2 if both else 1
            word = merged
        self.known[piece] = [self.vocab.get(token, 0) for token in word]
        return self.known[piece]

    def __call__(self, texts):
        return [[id for piece in self.pattern.findall(text) for id in self.piece(piece)] for text in texts]


def hugging_face(path):
    tokenizer = Tokenizer.from_file(path)
    # Without offsets, which nobody compares, where the release can leave them out.
    encode_batch = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    def encode(texts):
        return [encoding.ids for start in range(0, len(texts), 1000) for encoding in encode_batch(texts[start:start + 1000])]
    return encode


def tiktoken_encode(encoding):
    return lambda texts: [encoding.encode_ordinary(text) for text in texts]


def names():
    """The names of all kinds whose program is there."""
    found = []
    list(kinds("", "", [], found.append))  # which wants none of them
    return found


def kinds(folder, gpt2, training, selected):
    """Those whose name is in `selected` (a last * stands for anything), all where it is empty, or those that it says, where it is a function."""
    path = lambda name: os.path.join(folder, name)
    def is_selected(name):
        if callable(selected): return selected(name)
        return not selected or any(name == w or w[-1] == "*" and name.startswith(w[:-1]) for w in selected)

    vocab, merges = os.path.join(gpt2, "encoder.json"), os.path.join(gpt2, "vocab.bpe")
    if is_selected("gpt2") and regex and os.path.exists(vocab):
        yield Kind("gpt2", ["GPT2BPETokenizer", "-", vocab, merges], Gpt2(vocab, merges))
    if sentencepiece:
        for name, file in sentencepiece_kinds.models(folder, training, SIZE, SMALL, is_selected):
            processor = sentencepiece.SentencePieceProcessor(model_file=file)
            yield Kind(name, ["SentencePieceTokenizer", file], lambda texts, processor=processor: [processor.encode(text) for text in texts])
    if not tokenizers: return
    if is_selected("gpt2-hf") and os.path.exists(vocab):
        tokenizer = Tokenizer(models.BPE.from_file(vocab, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|endoftext|>"])
        tokenizer.save(path("gpt2.json"))
        yield Kind("gpt2-hf", ["HuggingFaceTokenizer", path("gpt2.json")], hugging_face(path("gpt2.json")))

    for name, pattern in (("gpt2", R50K), ("cl100k", CL100K), ("llama3", LLAMA3), ("o200k", O200K), (OTHER, OTHER), (KIMI, KIMI), (CLASSES, CLASSES)) if tiktoken else ():
        label = "tiktoken-" + {OTHER: "other", KIMI: "kimi", CLASSES: "classes"}.get(name, name)
        if not is_selected(label): continue
        ranks = trained_ranks(pattern, training)
        file = path(label + ".tiktoken")
        with open(file, "wb") as out:
            for token, rank in ranks.items(): out.write(base64.b64encode(token) + b" %d\n" % rank)
        encoding = tiktoken.Encoding(label, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        yield Kind(label, ["TikTokenizer", file, "-", "-", name], tiktoken_encode(encoding))


    isolated = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")
    def spm_like(tokenizer):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = [AddedToken("<s>", special=True), AddedToken("</s>", special=True)]
    added = [AddedToken("<mask>", lstrip=True), AddedToken("the", single_word=True), AddedToken("Hello", normalized=True), AddedToken("</s>", rstrip=True, special=True)]

    def save(name, tokenizer):
        tokenizer.save(path(name + ".json"))
        return Kind(name, ["HuggingFaceTokenizer", path(name + ".json")], hugging_face(path(name + ".json")))

    for name, splits in (("hf-llama3", [LLAMA3]), ("hf-qwen2", [QWEN2]), ("hf-o200k", [O200K]), ("hf-tekken", [TEKKEN]), ("hf-deepseek", DEEPSEEK), ("hf-other", [OTHER]),
                         ("hf-kimi", [KIMI]), ("hf-classes", [CLASSES]), ("hf-r50k", [R50K]), ("hf-cl100k", [CL100K])):
        if not is_selected(name): continue
        tokenizer = byte_level_bpe(pre_tokenizers.Sequence([isolated(split) for split in splits]), training, SIZE, ignore_merges=name == "hf-llama3")
        if name == "hf-qwen2": tokenizer.normalizer = normalizers.NFC()
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(special)
        if name == "hf-llama3":
            tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))])
        yield save(name, tokenizer)
    if is_selected("hf-words"):
        tokenizer = byte_level_bpe(pre_tokenizers.Whitespace(), training, SIZE)
        yield save("hf-words", tokenizer)
    if is_selected("hf-added"):
        tokenizer = byte_level_bpe(isolated(GPT2), training, SIZE)
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
        tokenizer.add_tokens(added)
        yield save("hf-added", tokenizer)
    for name, fallback, fuse in (("hf-llama2", True, True), ("hf-unknown", False, True), ("hf-unfused", False, False)):
        if not is_selected(name): continue
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=fallback, fuse_unk=fuse))
        spm_like(tokenizer)
        tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
        bytes_ = [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []
        tokenizer.train_from_iterator(training, trainers.BpeTrainer(vocab_size=SIZE, limit_alphabet=200, special_tokens=["<unk>", "<s>", "</s>", *bytes_], show_progress=False))
        if name != "hf-unfused": tokenizer.pre_tokenizer = None
        model = json.loads(tokenizer.to_str())
        model["added_tokens"] = [token for token in model["added_tokens"] if token["id"] < 3]
        yield save(name, Tokenizer.from_str(json.dumps(model)))
    for name, scheme, pre in (("hf-metaspace", "always", []), ("hf-metaspace-first", "first", [pre_tokenizers.Digits(True), pre_tokenizers.Punctuation("contiguous")])):
        if not is_selected(name): continue
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme=scheme), *pre])
        tokenizer.train_from_iterator(training, trainers.BpeTrainer(vocab_size=SIZE, limit_alphabet=300, special_tokens=["<unk>"], show_progress=False))
        tokenizer.add_special_tokens(special)
        yield save(name, tokenizer)
    for name, fallback in (("hf-unigram", False), ("hf-unigram-bytes", True)):
        if not is_selected(name): continue
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        tokenizer.train_from_iterator(of_few_characters(training[:150], SIZE // 2), trainers.UnigramTrainer(vocab_size=SIZE, unk_token="<unk>", special_tokens=["<unk>", "<s>"], show_progress=False))
        if fallback:
            model = json.loads(tokenizer.to_str())
            model["model"]["vocab"] += [[f"<0x{byte:02X}>", -30.0] for byte in range(256)]
            model["model"]["byte_fallback"] = True
            tokenizer = Tokenizer.from_str(json.dumps(model))
        yield save(name, tokenizer)


R50K = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
CL100K = r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
SIZE = 6000
SMALL = False  # fixtures, which leave large tables out
_ranks = {}


def trained_ranks(pattern, training):
    """tiktoken's ranks of a byte-level BPE that tokenizers train (tiktoken's own trainer is a lesson, not a tool)."""
    if "ranks" not in _ranks:
        tokenizer = byte_level_bpe(pre_tokenizers.Split(Regex(LLAMA3), "isolated"), training, SIZE)
        characters = {character: byte for byte, character in byte_characters().items()}
        ids = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        tokens = [bytes(characters[c] for c in token) for token, _ in ids]
        singles = [bytes([byte]) for byte in range(256)]
        _ranks["ranks"] = {token: rank for rank, token in enumerate(singles + [t for t in tokens if len(t) > 1])}
    return _ranks["ranks"]


def byte_level_bpe(split, training, size, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(training, trainer)
    return tokenizer
