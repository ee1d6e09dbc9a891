"""Lets PyTorch, and Megatron Core where it is installed, read every kind of distributed checkpoint that `ferry reshard` writes.

    check_reshard.py FERRY PEERS [NAME...]      PEERS: a folder of run folders, as tests/fixtures/megatron

Each run is resharded to LAYOUTS, and at one of them to KINDS; PyTorch's own DCP reader must find, byte for byte, the tensors of the run's
twin that Megatron-LM saved again, or those of the run itself where they stand a tensor a parameter. Megatron Core loads the common state, the
tensors and all objects of those written for its release. Prints a line each; exit 1 on a difference."""
import os
import re
import sys
import tempfile

import torch
from checkpoints import Report, arguments_of, differences, digests, iteration_folder, load, model_of, reshard, run_names, truth_of
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

FOR_CORE = '--core-release 0.16'
LAYOUTS = ['--tp 1 --pp 1', '--tp 2 --pp 2', '--tp 4 --pp 1 --dp 4', '--pp 4', '--tp 1 --pp 2 --vpp 2',
           '--pp 3 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1', '--ep 4 --pp 1', '--ep 2 --etp 2 --tp 2']
KINDS = ['', FOR_CORE, f'{FOR_CORE} --compress zstd', '--core-release 0.12 --optimizer none', '--core-release 0.14 --optimizer none', '--compress zstd',
         '--compress zstd:19', '--optimizer none', '--to dcp', '--to dcp --compress zstd', '--dtype fp32', '--dtype fp16', '--to dcp --dtype fp32']


def fits(layout, args, kind=''):
    if '--ep' in layout and not args.get('num_experts'):
        return False
    tensor = int(re.search(r'--tp (\d)', layout + ' --tp 1')[1])
    groups = args.get('num_query_groups') if args.get('group_query_attention') else args['num_attention_heads']
    release = re.search(r'--core-release 0\.(\d+)', kind)
    can_share = not release or int(release[1]) >= 16
    return groups % tensor == 0 or can_share and tensor % groups == 0


def core_reader():
    """A function that reads a folder as Megatron Core does, or None."""
    try:
        from megatron.core import dist_checkpointing
        from megatron.core.safe_globals import register_safe_globals
    except ImportError:
        return None
    register_safe_globals()
    torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)

    def read(folder):
        stored = dist_checkpointing.serialization.load_sharded_metadata(folder)  # tensors and objects
        return dist_checkpointing.load_common_state_dict(folder), dist_checkpointing.load(stored, folder, validate_access_integrity=False)

    return read


def expected_of(truth, source, kind, args):
    """The truth of a run as a kind of checkpoint holds it; None where that needs values that PyTorch cannot read from the run."""
    if '--optimizer none' in kind:
        truth = model_of(truth)
    dtype = re.search(r'--dtype (\w+)', kind)
    if not dtype:
        return truth
    if not os.path.exists(f'{source}/.metadata'):
        return None
    dtype = {'fp32': torch.float32, 'fp16': torch.float16}[dtype[1]]
    # The router's bias is fp32 whatever the model is.
    model = {name: tensor if name.endswith('expert_bias') else tensor.to(dtype) for name, tensor in model_of(load(source)).items()}
    if dtype == torch.float32 and '--to dcp' not in kind and not args['use_distributed_optimizer']:
        # Such a model is its own fp32 copy: Megatron-LM's optimizer has none.
        truth = {name: digest for name, digest in truth.items() if not name.startswith('optimizer.state.param.')}
    return {**truth, **digests(model)}


def dcp_problems(folder, args):
    """What PyTorch alone makes of it."""
    with tempfile.TemporaryDirectory() as work:
        dcp_to_torch_save(folder, f'{work}/all.pt')
        state = torch.load(f'{work}/all.pt', weights_only=False)
    if state['iteration'] != args['iteration'] or state['args'].num_layers != args['num_layers']:
        yield 'another common state'
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    yield from differences(digests(tensors), digests(load(folder)))


def problems(ferry, run, options, expected, args, core):
    with tempfile.TemporaryDirectory() as work:
        yield from problems_of(reshard(ferry, run, f'{work}/out', options), options, expected, args, core)


def problems_of(folder, kind, expected, args, core):
    items = FileSystemReader(folder).read_metadata().storage_data.values()
    if any(item.transform_descriptors != (['stream.zstd/1'] if 'zstd' in kind else None) for item in items):
        yield 'items are not said to be compressed as they are'
    yield from differences(digests(load(folder)), expected)
    if '--to dcp' in kind:
        yield from dcp_problems(folder, args)
    if FOR_CORE in kind and core:
        common, entries = core(folder)
        found = digests({name: entry for name, entry in entries.items() if isinstance(entry, torch.Tensor)})
        yield from (f'Megatron Core: {line}' for line in differences(found, expected))
        if common['iteration'] != args['iteration'] or common['args'].num_layers != args['num_layers']:
            yield 'Megatron Core: another common state'


def main():
    ferry, peers = sys.argv[1:3]
    core = core_reader()
    report = Report()
    for name in sys.argv[3:] or run_names(peers):
        run = f'{peers}/{name}'
        truth = truth_of(peers, name)
        if not truth:
            print(f'{name}: no truth to compare with')
            continue
        args = arguments_of(ferry, run)
        for layout, kind in [(layout, '') for layout in LAYOUTS if fits(layout, args)] + [
                ('--tp 2 --pp 2', kind) for kind in KINDS[1:] if fits('--tp 2 --pp 2', args, kind)]:
            expected = expected_of(truth, iteration_folder(run), kind, args)
            if expected is None:
                continue
            options = f'{layout} {kind}'.strip()
            report.add(f'{name}: {options}: {len(expected)} tensors', problems(ferry, run, options, expected, args, core))
    report.end()


if __name__ == '__main__':
    main()
