"""Masters that are stored as 16-bit remainders are the fp32 masters that they stand for, and the other way round.

    check_masters.py FERRY PEERS [NAME...]      PEERS: a folder of run folders, as tests/fixtures/megatron

Transformer Engine's optimizer, which makes remainders, runs on GPUs alone; so runs with fp32 masters are rewritten here by the rule of its
kernel (common/multi_tensor/adam.cu), item by item, as Megatron-LM stores them: int16 in flat buckets; fp32 with whole
numbers a tensor a parameter and in distrib_optim.pt. `ferry reshard` of each must give the masters of the run byte for byte, as PyTorch reads
them; remainders that ferry writes itself must be those of the rule, weights rounded as it rounds them, and come back as the same masters.
Prints a line each; exit 1 on a difference."""
import glob
import io
import os
import pickle
import re
import shutil
import sys
import tempfile

import megatron_stubs  # noqa: F401 (reads what was saved with any release)
import torch
from checkpoints import Report, call, differences, digests, iteration_folder, load, model_of, reshard, run_names, truth_of
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

LAYOUTS = ['--tp 1 --pp 1 --dp 2', '--tp 2 --pp 1 --dp 2']
FORMS = {'dp_reshardable': '--optimizer dp_reshardable --masters fp32', 'fully_reshardable': '--optimizer fully_reshardable',
         'legacy': '--to torch --optimizer legacy'}


def remainders(masters):
    """int16; the weight's bits are those of the master's upper half, one more where the remainder is negative."""
    halves = masters.contiguous().reshape(-1).view(torch.int16)  # little-endian: the lower one first
    return halves[::2].clone().reshape(masters.shape)


def is_master(name):
    return re.search(r'(^optimizer\.state\.param\.|\.bucket_idx_\d+\.param$)', name)


def say_precision_aware(value):
    """In the arguments, wherever they are."""
    if hasattr(value, '__dict__') and hasattr(value, 'tensor_model_parallel_size'):
        value.use_precision_aware_optimizer = True
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        say_precision_aware(part)


def with_remainders(run, target, as_floats):
    """A copy of a torch_dist run whose masters are remainders, item by item."""
    folder = iteration_folder(run)
    copy = f'{target}/{os.path.basename(folder)}'
    os.makedirs(copy)
    metadata = FileSystemReader(folder).read_metadata()
    entries = metadata.state_dict_metadata
    half = {name for name, entry in entries.items() if getattr(getattr(entry, 'properties', None), 'dtype', None) == torch.bfloat16}

    def of_half(name):
        return name.split('.', 3)[3] in half if name.startswith('optimizer.state.') else 'dtype_(torch.bfloat16' in name

    split = {name for name in entries if is_master(name) and of_half(name)}
    items = {}
    for index, place in metadata.storage_data.items():
        items.setdefault(place.relative_path, []).append((place.offset, index, place))
    for path, parts in items.items():
        with open(f'{folder}/{path}', 'rb') as source, open(f'{copy}/{path}', 'wb') as out:
            for offset, index, place in sorted(parts, key=lambda part: part[0]):
                source.seek(offset)
                item = source.read(place.length)
                if index.fqn in split or not isinstance(entries[index.fqn], TensorStorageMetadata):
                    value = torch.load(io.BytesIO(item), weights_only=False)
                    if index.fqn in split:
                        value = remainders(value).float() if as_floats else remainders(value)
                    else:
                        say_precision_aware(value)
                    made = io.BytesIO()
                    torch.save(value, made)
                    item = made.getvalue()
                place.offset, place.length = out.tell(), len(item)
                out.write(item)
    for name in split:
        entries[name].properties.dtype = torch.float32 if as_floats else torch.int16
    with open(f'{copy}/.metadata', 'wb') as file:
        pickle.dump(metadata, file)
    for name in os.listdir(folder):
        if name not in os.listdir(copy):
            shutil.copy(f'{folder}/{name}', copy)
    common = f'{copy}/common.pt'
    if os.path.exists(common):
        value = torch.load(common, weights_only=False)
        say_precision_aware(value)
        torch.save(value, common)
    return target


def rank_folders_with_remainders(run, target):
    """A copy of a run of rank folders whose masters are remainders, as floats."""
    shutil.copytree(run, target)

    def split(part):
        for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
            if key == 'param' and isinstance(value, torch.Tensor):
                part[key] = remainders(value).float()
            split(value)

    for path in glob.glob(f'{target}/iter_*/mp_rank_*/*.pt'):
        state = torch.load(path, weights_only=False)
        say_precision_aware(state)
        if path.endswith('distrib_optim.pt'):
            split(state)
        torch.save(state, path)
    return target


def check_source(report, ferry, work, source, truth, what):
    for layout in LAYOUTS:
        with tempfile.TemporaryDirectory(dir=work) as folder:
            found = digests(load(reshard(ferry, source, f'{folder}/full', f'--optimizer fully_reshardable {layout}')))
            report.add(f'{what}, resharded by {layout}', differences(found, truth))


def upper_halves(masters):
    """bf16, as the optimizer that keeps remainders rounds: halves go up."""
    bits = masters.contiguous().view(torch.int32)
    return (bits + ((bits & 0x8000) << 1)).view(torch.int16).reshape(-1)[1::2].clone().view(torch.bfloat16).reshape(masters.shape)


def check_written(report, ferry, work, run, name):
    """Remainders that ferry writes, against the rule. Returns what must be found in that run, a tensor a parameter."""
    full = load(reshard(ferry, run, f'{work}/full', '--optimizer fully_reshardable'))
    masters = {key.split('.', 3)[3]: value for key, value in full.items() if key.startswith('optimizer.state.param.')}
    half = {key for key in masters if full[key].dtype == torch.bfloat16}
    weights = {key: upper_halves(masters[key]) for key in half}
    tensors = load(reshard(ferry, run, f'{work}/own', '--optimizer dp_reshardable --masters remainders'))
    problems = [f'{key} is {tensor.dtype}' for key, tensor in tensors.items()
                if is_master(key) and (tensor.dtype == torch.int16) != ('dtype_(torch.bfloat16' in key)]
    expected = {0}.union(*(set(remainders(masters[key]).reshape(-1).tolist()) for key in half))
    written = {0}.union(*(set(value.tolist()) for key, value in tensors.items() if is_master(key) and value.dtype == torch.int16))
    if written != expected:
        problems.append(f'{len(written ^ expected)} remainders that should not be there, or are missing')
    truth = digests({**full, **weights})
    problems += differences(model_of(digests(tensors)), model_of(truth))
    report.add(f'{name}: remainders that ferry wrote', problems)
    return truth


def main():
    ferry, peers = sys.argv[1:3]
    report = Report()
    for name in sys.argv[3:] or run_names(peers):
        run, truth = f'{peers}/{name}', truth_of(peers, name)
        has_masters = truth and any(is_master(key) for key in truth)
        if not has_masters or not any(entry['dtype'] == 'bfloat16' for entry in model_of(truth).values()):
            continue
        with tempfile.TemporaryDirectory() as work:
            truth = check_written(report, ferry, work, run, name)
            check_source(report, ferry, work, f'{work}/own', truth, f'{name}: remainders that ferry wrote')
            for form, options in FORMS.items():
                reshard(ferry, f'{work}/own', f'{work}/{form}', options)
                make = rank_folders_with_remainders if form == 'legacy' else with_remainders
                copy = make(f'{work}/{form}', f'{work}/{form}_copy') if form == 'legacy' else \
                    make(f'{work}/{form}', f'{work}/{form}_copy', as_floats=form == 'fully_reshardable')
                report_text = call(ferry, 'inspect', copy)
                report.add(f'{name}: {form}, inspect', [] if 'masters as 16-bit remainders' in ' '.join(report_text.split()) else [report_text])
                check_source(report, ferry, work, copy, truth, f'{name}: {form}')
    report.end()


if __name__ == '__main__':
    main()
