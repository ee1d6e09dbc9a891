#!/usr/bin/env python3
"""Compares ids of all kinds of tokenizers on many texts and strings, on as many cores as there are, and goes on where it ended.

check_all_tokenizers.py PRINT_IDS RECORD [--jobs N] [--seconds S] [--shares N] [--kinds gpt2,...] [-- ARGUMENTS of check_tokenizers.py]

Each kind and each share of texts and strings (--part) is a task of one core, some one to three minutes of it where all shares are 1 GB of texts and 10 million
strings. RECORD has a line for each task that has ended; one whose line says that nothing differs is left out the next time, here or on another machine. Tasks that
would not end within S seconds are not begun, and what still runs then is ended.

    check_all_tokenizers.py build/cuda/tests/print_ids RECORD --jobs 16 --seconds 540 -- --texts 1000000000 --strings 10000000 --folders FOLDER ...
"""
import argparse
import os
import re
import subprocess
import sys
import time

import tokenizer_kinds

HERE = os.path.dirname(os.path.abspath(__file__))
ONE_THREAD = {name: "1" for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")} | {"TOKENIZERS_PARALLELISM": "false"}


def ended_well(path):
    """(kind, share) of the record's lines that say that nothing differs."""
    if not os.path.exists(path): return set()
    with open(path, encoding="utf-8") as lines:
        return {tuple(line.split()[:2]) for line in lines if "differ" in line and not re.search(r"[: ][1-9]\d* of \d+ ", line)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("record")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--shares", type=int, default=8)
    parser.add_argument("--kinds", default="")
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    further = sys.argv[len(own) + 2:]
    a = parser.parse_args(own)
    start, done = time.monotonic(), ended_well(a.record)
    kinds = [kind for kind in a.kinds.split(",") if kind] or tokenizer_kinds.names()
    tasks = [(kind, f"{share}/{a.shares}") for kind in kinds for share in range(a.shares) if (kind, f"{share}/{a.shares}") not in done]
    running, longest, failed = [], 0, 0
    with open(a.record, "a", encoding="utf-8") as record:
        while tasks or running:
            left = a.seconds - (time.monotonic() - start)
            while tasks and len(running) < a.jobs and left > 1.2 * longest:
                kind, share = tasks.pop(0)
                words = [sys.executable, os.path.join(HERE, "check_tokenizers.py"), a.program, "--kinds", kind, "--part", share, *further]
                process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | ONE_THREAD)
                running.append((process, kind, share, time.monotonic()))
            if left < 0 or not running: break
            time.sleep(0.2)
            for task in [task for task in running if task[0].poll() is not None]:
                process, kind, share, since = task
                running.remove(task)
                longest = max(longest, time.monotonic() - since)
                lines = process.stdout.read().strip().split("\n")
                failed += process.returncode != 0
                record.write(f"{kind} {share} {time.monotonic() - since:.0f} s: {lines[-1]}\n" + "".join(f"# {line}\n" for line in lines[:-1]))
                record.flush()
    for process, *_ in running: process.kill()
    print(f"{len(tasks) + len(running)} tasks are left, {failed} found differences or failed: see {a.record}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
