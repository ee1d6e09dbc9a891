"""Compares what two builds of ferry do with every checkpoint below some folders.

usage: compare_programs.py OLD NEW FOLDER...

Each checkpoint that either build can inspect goes through the commands below. Exit codes, standard
output, standard error and the bytes of all files written must be the same. Prints the differences
and the counts; exits with 1 when anything differs.
"""

import argparse
import concurrent.futures
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = {
    "inspect": ["inspect", "{in}"],
    "inspect --json": ["inspect", "{in}", "--json", "--tensors", "*"],
    "verify": ["verify", "{in}"],
    "convert --to hf": ["convert", "{in}", "{out}", "--to", "hf"],
    "convert --to hf --dtype fp32": ["convert", "{in}", "{out}", "--to", "hf", "--dtype", "fp32"],
    "convert --to torch_dist": ["convert", "{in}", "{out}", "--to", "torch_dist"],
    "convert --to torch": ["convert", "{in}", "{out}", "--to", "torch"],
    "convert --to safetensors": ["convert", "{in}", "{out}", "--to", "safetensors"],
    "reshard --tp 2": ["reshard", "{in}", "{out}", "--tp", "2"],
    "reshard --pp 2 --to torch": ["reshard", "{in}", "{out}", "--pp", "2", "--to", "torch"],
    "reshard dp_reshardable": ["reshard", "{in}", "{out}", "--tp", "1", "--pp", "1", "--dp", "2",
                               "--optimizer", "dp_reshardable"],
    "reshard --to fsdp_dtensor": ["reshard", "{in}", "{out}", "--to", "fsdp_dtensor"],
    "diff": ["diff", "{in}", "{in}"],
    "estimate": ["estimate", "{in}"],
}


def digest(folder):
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return files


def run(program, arguments, source, scratch):
    shutil.rmtree(scratch, ignore_errors=True)
    words = [word.replace("{in}", str(source)).replace("{out}", str(scratch / "out")) for word in arguments]
    scratch.mkdir(parents=True)
    done = subprocess.run([program, *words], capture_output=True, timeout=300)
    # A rate follows a time that is long enough.
    text = [re.sub(r"\d+(\.\d+)? (s|ms)\b( \(\d+(\.\d+)? [kMG]i?B/s\))?", "TIME", stream.decode(errors="replace"))
            for stream in (done.stdout, done.stderr)]
    result = (done.returncode, *text, digest(scratch / "out") if (scratch / "out").exists() else {})
    shutil.rmtree(scratch, ignore_errors=True)
    return result


def compare(old, new, source, scratch):
    differences, runs, written = [], 0, 0
    for name, arguments in COMMANDS.items():
        # Both write to the same path, which messages and manifests may name.
        before, after = (run(program, arguments, source, scratch) for program in (old, new))
        runs += 1
        written += len(before[3])
        for part, one, other in zip(("exit code", "standard output", "standard error", "files"), before, after):
            if one != other:
                if isinstance(one, dict):
                    one, other = ({k: v for k, v in a.items() if b.get(k) != v} for a, b in ((one, other), (other, one)))
                differences.append(f"{source}: {name}: {part}\n  before: {one}\n  after:  {other}")
        if name == "inspect" and before[0] != 0 and after[0] != 0:
            break
    return differences, runs, written


def checkpoints(folder):
    return sorted(path for path in [folder, *folder.rglob("*")] if path.is_dir() or path.suffix in
                  (".safetensors", ".pt", ".pth", ".bin", ".nemo", ".zip"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    sources = [path for folder in options.folders for path in checkpoints(folder)]
    total = opened = written = 0
    differences = []
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        done = pool.map(lambda each: compare(options.old, options.new, each[1], Path(scratch) / str(each[0])), enumerate(sources))
        for found, runs, files in done:
            differences += found
            total += runs
            opened += runs > 1
            written += files
    print("\n".join(differences))
    print(f"{len(sources)} paths, {opened} opened, {total} runs of each program, {written} files written, {len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
