"""Lets PyTorch, and Megatron Core where it is installed, read what `ferry reshard` wrote.

    check_reshard.py FERRY PEERS [NAME...]      PEERS: a folder of run folders, as tests/fixtures/megatron

Each run is resharded to several layouts and releases; PyTorch's own DCP reader must find, byte for byte, the tensors of the run's
twin that Megatron-LM saved again (NAME_as_full), or those of the run itself where they stand a tensor a parameter. Megatron Core reads
the common state and the tensors of those written for its release. Prints a line each; exit 1 on a difference."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings('ignore')
import torch  # noqa: E402
from check_bytes import SAME_STATE, differences  # noqa: E402
from make_truth import load  # noqa: E402
from torch.distributed.checkpoint import FileSystemReader  # noqa: E402

LAYOUTS = ['--tp 1 --pp 1', '--tp 2 --pp 2', '--tp 4 --pp 1 --dp 2', '--pp 4', '--tp 1 --pp 2 --vpp 2',
           '--pp 3 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1', '--ep 4 --pp 1', '--ep 2 --etp 2 --tp 2']
CORE = '0.16'


def named_as_distributed(tensors):
    """Masters under the distributed optimizer's name: an optimizer that is not distributed calls them fp32_param."""
    return {name.replace('optimizer.state.fp32_param.', 'optimizer.state.param.'): tensor for name, tensor in tensors.items()}


def fits(layout, args):
    if '--ep' in layout and not args.get('num_experts'):
        return False
    tensor = int(re.search(r'--tp (\d)', layout + ' --tp 1')[1])
    groups = args.get('num_query_groups') if args.get('group_query_attention') else args['num_attention_heads']
    return groups % tensor == 0 or tensor % groups == 0


def core_reader():
    """A function that reads a folder as Megatron Core does, or None."""
    try:
        from megatron.core import dist_checkpointing
        from megatron.core.safe_globals import register_safe_globals
    except ImportError:
        return None
    register_safe_globals()
    torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)
    return lambda folder: (dist_checkpointing.load_common_state_dict(folder), dist_checkpointing.load_plain_tensors(folder))


def main():
    ferry, peers = sys.argv[1:3]
    names = sys.argv[3:] or sorted(os.path.basename(os.path.dirname(p)) for p in glob.glob(f'{peers}/*/latest_checkpointed_iteration.txt'))
    core = core_reader()
    failed = 0

    def report(name, what, found, expected):
        nonlocal failed
        wrong = list(differences(named_as_distributed(found), named_as_distributed(expected)))
        failed += bool(wrong)
        print(f'{name}: {what}: {len(found)} tensors: ' + ('equal' if not wrong else f'{len(wrong)} differ'), flush=True)
        for line in wrong[:5]:
            print(f'    {line}')

    for name in names:
        run = os.path.join(peers, name)
        twin = glob.glob(f'{peers}/{SAME_STATE.get(name, name + "_as_full")}/iter_*')
        if not twin:
            folder = glob.glob(f'{run}/iter_*')[0]
            if not os.path.exists(f'{folder}/.metadata') or 'optimizer.distributed.' in str(load(folder).keys()):
                print(f'{name}: no truth to compare with')
                continue
            twin = [folder]
        expected = load(twin[0])
        args = json.loads(subprocess.run([ferry, 'inspect', run, '--args', '--json'], check=True, capture_output=True).stdout)['args']
        for layout in LAYOUTS:
            if not fits(layout, args):
                continue
            for release, compress in [(None, None), (None, 'zstd'), (CORE, None)]:
                with tempfile.TemporaryDirectory() as work:
                    command = [ferry, 'reshard', run, f'{work}/out', *layout.split()]
                    command += ['--core-release', release] if release else []
                    command += ['--compress', compress] if compress else []
                    written = subprocess.run(command, capture_output=True, text=True)
                    if written.returncode:
                        failed += 1
                        print(f'{name}: {layout}: {written.stderr.strip()}')
                        continue
                    folder = glob.glob(f'{work}/out/iter_*')[0]
                    what = f'{layout}{" for Core " + release if release else ""}{", " + compress if compress else ""}'
                    items = FileSystemReader(folder).read_metadata().storage_data.values()
                    if any(item.transform_descriptors != (['stream.zstd/1'] if compress else None) for item in items):
                        failed += 1
                        print(f'{name}: {what}: items are not said to be compressed as they are')
                    report(name, what, load(folder), expected)
                    if release and core:
                        common, tensors = core(folder)
                        report(name, f'{what}, read by Megatron Core', {k: t for k, t in tensors.items() if isinstance(t, torch.Tensor)},
                               expected)
                        if common['iteration'] != 5 or common['args'].num_layers != args['num_layers']:
                            failed += 1
                            print(f'{name}: {layout}: another common state')
    sys.exit(failed > 0)


if __name__ == '__main__':
    main()
