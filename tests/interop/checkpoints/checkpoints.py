"""What these programs share: checkpoints as PyTorch alone reads them, what to hold them against, and how to say what differs."""
import glob
import json
import os
import re
import subprocess
import sys
import warnings

warnings.filterwarnings('ignore')
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import xxhash  # noqa: E402
from torch.distributed.checkpoint import FileSystemReader  # noqa: E402
from torch.distributed.checkpoint.metadata import TensorStorageMetadata  # noqa: E402

# Runs of one training state that different programs or formats wrote: a run, and another that holds it a tensor a parameter.
SAME_STATE = {'swiss_llama_tp2pp2': 'llama_tp2pp2_full', 'llama_legacy_tp2_nodo': 'llama_tp2dp2_dpr_as_full'}


def load(folder):
    """All tensors, with PyTorch's own DCP reader. folder: an iteration folder with .metadata."""
    entries = FileSystemReader(folder).read_metadata().state_dict_metadata
    tensors = {k: torch.empty(v.size, dtype=v.properties.dtype) for k, v in entries.items() if isinstance(v, TensorStorageMetadata)}
    dcp.load(tensors, storage_reader=FileSystemReader(folder), no_dist=True)
    return tensors


def raw_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def digests(tensors):
    """{name: dtype, shape and XXH3-128 of the bytes}, as in tests/fixtures/truth. Masters have the distributed optimizer's name for them:
    one that is not distributed calls them fp32_param."""
    return {name.replace('optimizer.state.fp32_param.', 'optimizer.state.param.'):
            {'dtype': str(tensor.dtype).removeprefix('torch.'), 'shape': list(tensor.shape), 'xxh3_128': xxhash.xxh3_128_hexdigest(raw_bytes(tensor))}
            for name, tensor in tensors.items()}


def model_of(entries):
    return {name: entry for name, entry in entries.items() if not re.match(r'(chained_\d+\.)?optimizer\.', name)}


def run_names(peers):
    """peers: a folder of run folders, as tests/fixtures/megatron. Not those whose names only PyTorch's sharded data parallelism knows."""
    names = sorted(os.path.basename(os.path.dirname(path)) for path in glob.glob(f'{peers}/*/latest_checkpointed_iteration.txt'))
    return [name for name in names if not is_plain_dcp(iteration_folder(f'{peers}/{name}'))]


def is_plain_dcp(folder):
    return os.path.exists(f'{folder}/.metadata') and not os.path.exists(f'{folder}/metadata.json')


def iteration_folder(run):
    return (glob.glob(f'{run}/iter_*') or [f'{run}/release'])[0]


def twin_of(peers, name):
    """The same state as Megatron-LM saved it a tensor a parameter (NAME_as_full, SAME_STATE), or None."""
    folder = glob.glob(f'{peers}/{SAME_STATE.get(name, name + "_as_full")}/iter_*')
    return folder[0] if folder else None


def truth_of(peers, name):
    """What must be found in run NAME, a tensor a parameter, as digests; None: not known."""
    recorded = f'{peers}/../truth/{name}.json'
    if os.path.exists(recorded):
        with open(recorded) as file:
            return json.load(file)
    twin = twin_of(peers, name)
    if twin:
        return digests(load(twin))
    folder = iteration_folder(f'{peers}/{name}')
    found = digests(load(folder)) if os.path.exists(f'{folder}/.metadata') else {}
    model = model_of(found)
    states = [(key, entry['shape']) for key, entry in found.items() if key not in model]
    whole = all(shape == model.get(key.split('.', 3)[3], {}).get('shape') for key, shape in states)  # and no buckets or fragments
    return found if found and whole else None


def differences(found, expected):
    """Both as digests() gives them."""
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            yield f'{name}: is missing'
        elif name not in expected:
            yield f'{name}: should not be there'
        elif found[name] != expected[name]:
            yield f'{name}: {found[name]} instead of {expected[name]}'


def call(program, *arguments):
    """What it prints; a RuntimeError with that when it fails."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f'{" ".join(arguments)}: {done.stderr.strip() or done.stdout[-2000:]}')
    return done.stdout


def reshard(ferry, source, run, options):
    """The folder that was written; options: text."""
    call(ferry, 'reshard', source, run, *options.split())
    return run if os.path.exists(f'{run}/.metadata') else iteration_folder(run)


def diff_problems(ferry, a, b):
    try:
        call(ferry, 'diff', a, b, '--quiet')
    except RuntimeError as error:
        yield f'ferry diff: {error}'


def arguments_of(ferry, run):
    """The arguments of a run, and its iteration, which ranks change as they train."""
    found = json.loads(call(ferry, 'inspect', run, '--args', '--json'))
    return {**found['args'], 'iteration': found['iteration']}


class Report:
    """Counts and prints what was compared: a line each, and what is wrong below it."""

    def __init__(self):
        self.compared = self.failed = 0

    def add(self, what, wrong):
        """wrong: lines, perhaps found only now; a RuntimeError on the way is one, too."""
        try:
            wrong = list(wrong)
        except RuntimeError as error:
            wrong = [str(error)]
        self.compared += 1
        self.failed += bool(wrong)
        print(f'{what}: ' + (f'{len(wrong)} differ' if wrong else 'equal'), flush=True)
        for line in wrong[:5]:
            print(f'    {line}')

    def end(self):
        print(f'{self.compared} compared, {self.failed} failed')
        sys.exit(self.failed > 0)
