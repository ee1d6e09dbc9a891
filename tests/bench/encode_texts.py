#!/usr/bin/env python3
"""How fast texts become ids, compared with the programs that tokenizers come from: on one core and on several.

    encode_texts.py PRINT_IDS WORK [--gpt2 FOLDER] [--megabytes N] [--rounds N] [--cores 1,2] [--only NAME] [--prepare]    PRINT_IDS: build/*/tests/print_ids

Needs tokenizers, tiktoken and sentencepiece. WORK gets the texts (this machine's documentation, manual pages, translations and sources)
and the vocabularies, once: GPT-2's own (FOLDER: encoder.json and vocab.bpe), one of 128,000 tokens as Llama 3 has it, which the tokenizers
package trains on 30 MB of such texts with Llama 3's pattern (files of tiktoken and of tokenizers), and sentencepiece's of 32,000 pieces (unigram, BPE).
--prepare makes them and stops. Then each program encodes N megabytes of texts with each vocabulary, in turns, the best of several rounds: time is that of
encoding alone (on a machine with other work the processor's time is steadier), memory the peak of the whole process, which holds all texts. Both must give as many ids. Prints a JSON object.
"""
import argparse
import base64
import json
import os
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop", "text"))
import tokenizer_texts

TOKENS, PIECES, TRAINING_MEGABYTES = 128_000, 32_000, 30


def documents(path):
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        size, = struct.unpack_from("<Q", data, at)
        yield data[at + 8:at + 8 + size].decode()
        at += 8 + size


def write_ranks(path, tokens):
    with open(path, "wb") as out:
        for rank, token in enumerate(tokens): out.write(base64.b64encode(token) + b" %d\n" % rank)


def read_ranks(path):
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in open(path, "rb"))}


def prepare_gpt2(work, gpt2):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    import tokenizer_kinds
    tokenizer = Tokenizer(models.BPE.from_file(f"{gpt2}/encoder.json", f"{gpt2}/vocab.bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(f"{work}/gpt2.json")
    bytes_of = {character: byte for byte, character in tokenizer_kinds.byte_characters().items()}
    tokens = sorted(json.load(open(f"{gpt2}/encoder.json")).items(), key=lambda item: item[1])
    write_ranks(f"{work}/gpt2.tiktoken", [bytes(bytes_of[c] for c in token) for token, _ in tokens if token != "<|endoftext|>"])


def prepare_llama3(work):
    import tokenizer_kinds
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(tokenizer_kinds.LLAMA3), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = list(tokenizer_kinds.byte_characters().values())
    tokenizer.train_from_iterator(documents(f"{work}/texts"), trainers.BpeTrainer(vocab_size=TOKENS, show_progress=False, initial_alphabet=alphabet))
    tokenizer.save(f"{work}/llama3.json")
    bytes_of = {character: byte for byte, character in tokenizer_kinds.byte_characters().items()}
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    write_ranks(f"{work}/llama3.tiktoken", [bytes(bytes_of[c] for c in token) for token, _ in tokens])


def prepare_sentencepiece(work):
    import sentencepiece
    lines = [line for text in documents(f"{work}/texts") for line in text.split("\n") if line.strip() and "\0" not in line]
    for kind in ("unigram", "bpe"):
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines[::max(1, len(lines) // 200_000)]), model_prefix=f"{work}/{kind}", model_type=kind,
                                                 vocab_size=PIECES, byte_fallback=True, hard_vocab_limit=False, num_threads=os.cpu_count(), minloglevel=2)


def write_texts(path, megabytes):
    with open(path, "wb") as out:
        for text in tokenizer_texts.files(tokenizer_texts.paths(seed=11), megabytes * 1e6):
            data = text.encode()
            out.write(struct.pack("<Q", len(data)) + data)


def prepare(work, gpt2, megabytes):
    os.makedirs(work, exist_ok=True)
    if not os.path.exists(f"{work}/measured"): write_texts(f"{work}/measured", megabytes)
    if os.path.exists(f"{work}/complete"): return
    write_texts(f"{work}/texts", TRAINING_MEGABYTES)
    prepare_gpt2(work, gpt2)
    prepare_llama3(work)
    prepare_sentencepiece(work)
    open(f"{work}/complete", "w").close()


def peer(name, file, threads, work):
    """Encodes with another program: seconds and ids."""
    texts = list(documents(f"{work}/measured"))
    if name == "tokenizers":
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(file)
        encode = lambda batch: sum(len(encoding) for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False))
    elif name == "tiktoken":
        import tiktoken
        import tokenizer_kinds
        pattern = tokenizer_kinds.R50K if "gpt2" in file else tokenizer_kinds.LLAMA3
        encoding = tiktoken.Encoding("a", pat_str=pattern, mergeable_ranks=read_ranks(file), special_tokens={})
        encode = lambda batch: sum(map(len, encoding.encode_ordinary_batch(batch, num_threads=threads)))
    else:
        import sentencepiece
        processor = sentencepiece.SentencePieceProcessor(model_file=file)
        encode = lambda batch: sum(map(len, processor.encode(batch, num_threads=threads)))
    begin, used, ids = time.monotonic(), time.process_time(), 0
    for start in range(0, len(texts), 64): ids += encode(texts[start:start + 64])  # what is kept of them stays small
    print(time.monotonic() - begin, time.process_time() - used, ids)


def timed(command, threads, stdin=None, env=None):
    """What a program prints, and its peak of memory in bytes. It has as many cores as threads."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, env=env, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    answer = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0: sys.exit(f"{' '.join(command)} failed")
    seconds, processor, ids = answer.split()
    return float(seconds), float(processor), int(ids), usage.ru_maxrss * 1024


def main():
    if sys.argv[1] == "--peer": return peer(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("work")
    parser.add_argument("--gpt2", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../shared/peers/gpt2_bpe"))
    parser.add_argument("--megabytes", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cores", type=lambda text: [int(count) for count in text.split(",")], default=[1, 2])
    parser.add_argument("--only", default="", help="of the vocabularies and programs, those with this text in their names")
    parser.add_argument("--prepare", action="store_true")
    arguments = parser.parse_args()
    work, gpt2 = arguments.work, arguments.gpt2
    prepare(work, gpt2, arguments.megabytes)
    if arguments.prepare: return
    # The program, its file, and ours for the same vocabulary
    cases = {"GPT-2, tokenizers": ("tokenizers", f"{work}/gpt2.json", ["GPT2BPETokenizer", "-", f"{gpt2}/encoder.json", f"{gpt2}/vocab.bpe"]),
             "GPT-2, tiktoken": ("tiktoken", f"{work}/gpt2.tiktoken", ["TikTokenizer", f"{work}/gpt2.tiktoken", "-", "-", "gpt2"]),
             "Llama 3's size, tokenizers": ("tokenizers", f"{work}/llama3.json", ["HuggingFaceTokenizer", f"{work}/llama3.json"]),
             "Llama 3's size, tiktoken": ("tiktoken", f"{work}/llama3.tiktoken", ["TikTokenizer", f"{work}/llama3.tiktoken", "-", "-", "llama3"]),
             "unigram, sentencepiece": ("sentencepiece", f"{work}/unigram.model", ["SentencePieceTokenizer", f"{work}/unigram.model"]),
             "BPE, sentencepiece": ("sentencepiece", f"{work}/bpe.model", ["SentencePieceTokenizer", f"{work}/bpe.model"])}
    cases = {case: what for case, what in cases.items() if arguments.only in case}
    size = sum(len(text.encode()) for text in documents(f"{work}/measured"))
    best, processor, memory, counts = {}, {}, {}, {}
    for _ in range(arguments.rounds):
        for case, (name, file, options) in cases.items():
            for threads in arguments.cores:
                env = {**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}
                theirs = timed([sys.executable, os.path.abspath(__file__), "--peer", name, file, str(threads), work], threads, env=env)
                with open(f"{work}/measured", "rb") as texts:
                    ours = timed([os.path.abspath(arguments.program), "--time", str(threads), *options], threads, stdin=texts)
                for who, (seconds, of_processor, ids, peak) in (("ours", ours), ("theirs", theirs)):
                    key = (case, threads, who)
                    best[key], memory[key], counts[key] = min(seconds, best.get(key, seconds)), max(peak, memory.get(key, peak)), ids
                    processor[key] = min(of_processor, processor.get(key, of_processor))
    report = {"cores": os.cpu_count(), "megabytes": size / 1e6, "rounds": arguments.rounds, "cases": {}}
    for case in cases:
        for threads in arguments.cores:
            ours, theirs = (case, threads, "ours"), (case, threads, "theirs")
            report["cases"][f"{case}, {threads} core{'s' * (threads > 1)}"] = {
                "ours MB/s": round(size / 1e6 / best[ours], 1), "theirs MB/s": round(size / 1e6 / best[theirs], 1), "times as fast": round(best[theirs] / best[ours], 2),
                "times the processor's time": round(processor[theirs] / processor[ours], 2), "ours s of the processor": round(processor[ours], 2),
                "same number of ids": counts[ours] == counts[theirs], "ours MB of memory": round(memory[ours] / 1e6), "theirs MB of memory": round(memory[theirs] / 1e6)}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
