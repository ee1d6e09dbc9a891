"""Takes Megatron-LM's runs to Hugging Face and back.

    check_export.py FERRY PEERS...      PEERS: folders of run folders, as tests/fixtures/megatron

Each run becomes a Hugging Face model, padding of the vocabulary included, and that a run again, at another layout: PyTorch's own reader must find
every tensor of the model, byte for byte, also where the new run has rank folders; `ferry diff` must find no difference between the run, the model
without padding and a new run of that. (Of tests/fixtures/core, where Megatron Core's local modules have other names, only the latter.) Prints a line
each; exit 1 on a difference."""
import os
import sys
import tempfile

from check_state import single_rank_problems
from checkpoints import Report, call, diff_problems, differences, digests, iteration_folder, load, model_of, run_names, truth_of


def problems(ferry, run, truth, work):
    hf, new = f'{work}/hf', f'{work}/run'
    layout = ['--tp', '2'] + (['--ep', '2'] if any('.experts.' in name for name in truth) else [])
    call(ferry, 'convert', run, hf, '--to', 'hf', '--keep-padding')
    call(ferry, 'convert', hf, new, '--to', 'torch_dist', '--make-vocab-size-divisible-by', '1', *layout)
    if 'fixtures/core' not in run:
        yield from differences(digests(load(f'{new}/release')), model_of(truth))
        if os.path.exists(f'{iteration_folder(run)}/.metadata'):
            call(ferry, 'convert', hf, new, '--overwrite', '--to', 'torch', '--make-vocab-size-divisible-by', '1')
            yield from single_rank_problems(f'{new}/release', iteration_folder(run))
    call(ferry, 'convert', run, hf, '--overwrite', '--to', 'hf')
    call(ferry, 'convert', hf, new, '--overwrite', '--to', 'torch', *layout)
    yield from diff_problems(ferry, run, hf)
    yield from diff_problems(ferry, new, hf)


def main():
    ferry = sys.argv[1]
    report = Report()
    for peers in sys.argv[2:]:
        for name in run_names(peers):
            truth = truth_of(peers, name)
            if truth:
                with tempfile.TemporaryDirectory() as work:
                    report.add(f'{name}: to Hugging Face and back', problems(ferry, f'{peers}/{name}', truth, work))
    report.end()


if __name__ == '__main__':
    main()
