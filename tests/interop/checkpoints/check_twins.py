"""Reshards runs to a tensor a parameter, from there to flat buckets at other layouts, and back.

    check_twins.py FERRY PEERS [NAME...]      PEERS: a folder of run folders, as tests/fixtures/megatron

For every run with an optimizer whose state is known, from its twin that Megatron-LM itself saved a tensor a parameter: `ferry reshard` to
fully_reshardable, from there to dp_reshardable at each of LAYOUTS and to rank folders, and from each of those to fully_reshardable again. In the
first and the last PyTorch's own reader must find every tensor of the twin, byte for byte; between them the model's tensors, and in the flat buffers
all values of the optimizer and no others; `ferry diff` must find no difference to the run or its twin at any step. Prints a line each; exit 1 on a
difference."""
import glob
import re
import sys
import tempfile

import torch
from checkpoints import (Report, arguments_of, diff_problems, differences, digests, load, model_of, reshard,
                         run_names, truth_of, twin_of)

# For models of 7 layers.
UNEVEN = {'--pp 2': '--pp 2 --decoder-first-pipeline-num-layers 3', '--pp 4': '--pp 4 --decoder-first-pipeline-num-layers 1', '--pp 2 --vpp 2': '--pp 2 --pipeline-model-parallel-layout Ett|tt|tt|tL'}
LAYOUTS = ['--tp 2 --pp 2', '--tp 1 --pp 4 --dp 2', '--tp 1 --pp 1 --dp 4', '--tp 2 --pp 1 --dp 2 --core-release 0.16', '--tp 1 --pp 2 --vpp 2']


def values_by_kind(tensors, name):
    """{param, exp_avg, ...: the bit patterns of its values and of zero}; name: what identifies optimizer state and its kind."""
    values = {}
    for key, tensor in tensors.items():
        state = re.search(name, key)
        if state:
            values.setdefault(state[1], {0}).update(tensor.reshape(-1).view(torch.int32).tolist())
    return values


def values_of_rank_folders(folder):
    """The same of all distrib_optim.pt."""
    values = {}

    def add(part):
        for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
            if isinstance(value, torch.Tensor):
                values.setdefault(key, {0}).update(value.view(torch.int32).tolist())
            add(value)

    for path in glob.glob(f'{folder}/mp_rank_*/distrib_optim.pt'):
        add(torch.load(path))
    return values


def bucket_count(flat):
    """The most buckets of one buffer."""
    return max((int(number) + 1 for number in re.findall(r'\.bucket_idx_(\d+)\.', ' '.join(flat))), default=0)


def bucket_problems(flat, whole):
    """flat, whole: all tensors of a dp_reshardable and of a fully_reshardable checkpoint."""
    yield from differences(model_of(digests(flat)), model_of(digests(whole)))
    yield from value_problems(values_by_kind(flat, r'\.bucket_idx_\d+\.(\w+)$'), whole)


def value_problems(ours, whole):
    theirs = values_by_kind(whole, r'^optimizer\.state\.(\w+)\.')
    for kind in ours.keys() | theirs.keys():
        if ours.get(kind) != theirs.get(kind):
            yield f'{kind}: other values'


def with_masters(truth):
    """A model in fp32 without the distributed optimizer is its own master; there is one apart for every parameter in what these forms hold."""
    moments = [name.removeprefix('optimizer.state.exp_avg.') for name in truth if name.startswith('optimizer.state.exp_avg.')]
    return {**{f'optimizer.state.param.{name}': truth[name] for name in moments}, **truth}


def fitting(layout, layers):
    """The layout, of uneven stages where even ones cannot be."""
    pipeline = re.search(r'--pp [24]( --vpp 2)?', layout)
    return layout.replace(pipeline[0], UNEVEN[pipeline[0]]) if pipeline and layers == 7 else layout


def check(ferry, peers, name, known, report):
    run = f'{peers}/{name}'
    truth = with_masters(known)
    args = arguments_of(ferry, run)
    limited = args.get('overlap_grad_reduce') and args.get('ddp_bucket_size')
    experts = ' --ep 2' if args.get('num_experts') else ''
    with tempfile.TemporaryDirectory() as work:
        def back(folder, options=''):
            again = reshard(ferry, folder, f'{work}/again', f'--overwrite --optimizer fully_reshardable{options}')
            report.add(f'{name}: and back', [*differences(digests(load(again)), truth), *diff_problems(ferry, whole, again)])

        whole = reshard(ferry, run, f'{work}/whole', '--optimizer fully_reshardable')
        tensors = load(whole)
        twin = (twin_of(peers, name) or run) if truth == known else whole
        report.add(f'{name}: fully_reshardable', [*differences(digests(tensors), truth), *diff_problems(ferry, twin, whole)])
        for layout in [fitting(each, args['num_layers']) for each in LAYOUTS]:
            flat = reshard(ferry, whole, f'{work}/flat', f'--overwrite --optimizer dp_reshardable {layout}{experts}')
            flat_tensors = load(flat)
            buckets = bucket_count(flat_tensors)
            few = ['too few buckets'] if buckets < (2 if limited and '--pp 1' in layout else 1) else []
            report.add(f'{name}: to dp_reshardable, {layout}{experts}, {buckets} buckets',
                       [*few, *bucket_problems(flat_tensors, tensors), *diff_problems(ferry, twin, flat)])
            back(flat)
        folders = reshard(ferry, whole, f'{work}/folders', f'--to torch {fitting("--tp 2 --pp 2", args["num_layers"])}{experts}')
        report.add(f'{name}: to rank folders', [*value_problems(values_of_rank_folders(folders), tensors), *diff_problems(ferry, twin, folders)])
        back(folders, ' --transformer-impl transformer_engine')  # whose names of norms the twins have, though they say "local"


def main():
    ferry, peers = sys.argv[1:3]
    report = Report()
    for name in sys.argv[3:] or run_names(peers):
        truth = truth_of(peers, name)
        if truth and len(model_of(truth)) < len(truth) and not name.endswith('_as_full'):
            try:
                check(ferry, peers, name, truth, report)
            except RuntimeError as error:
                report.add(name, [str(error)])
    report.end()


if __name__ == '__main__':
    main()
