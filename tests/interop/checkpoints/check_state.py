"""Lets Python unpickle all that `ferry reshard` writes besides the tensors of .distcp files, and holds it against Megatron-LM's own.

    check_state.py FERRY PEERS [NAME...]      PEERS: a folder of run folders, as tests/fixtures/megatron

Each run is written anew at its own layout: every object of a torch_dist checkpoint (arguments, content metadata, scheduler, random numbers, ...) and
every file of rank folders has the same content, key by key, as Megatron-LM's. And each is written as rank folders of a single rank: the model is, name
by name, what the run holds. PyTorch loads every file of rank folders both ways, as Megatron-LM does, and every CRC-32 in it is right. Prints a line
each; exit 1 on a difference."""
import glob
import io
import os
import re
import sys
import tempfile
import zipfile

import torch
from checkpoints import Report, iteration_folder, load, model_of, raw_bytes, reshard, run_names
from megatron_stubs import safe_classes
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata

OF_THE_PROCESS = {"['args'].rank", "['args'].local_rank"}
# The optimizer's state of Megatron Core up to 0.14 is not written, and enums are their values where a release may lack their class.
OF_THE_RELEASE = {f"['common']['args'].{name}" for name in ('attention_backend', 'model_type', 'no_save_optim', 'tensor_parallel_num_weight_shards')}


def differences(ours, theirs, path='', by_design=frozenset()):
    if path in by_design:
        return
    if type(ours) is not type(theirs):
        yield f'{path}: {type(ours).__name__} instead of {type(theirs).__name__}'
    elif torch.is_tensor(ours):
        if (ours.dtype, ours.shape, raw_bytes(ours)) != (theirs.dtype, theirs.shape, raw_bytes(theirs)):
            yield f'{path}: another tensor'
    elif isinstance(ours, dict):
        if list(ours) != list(theirs):
            yield f'{path}: keys {sorted(map(str, ours.keys() ^ theirs.keys()))} on one side, or another order'
        for key in ours.keys() & theirs.keys():
            yield from differences(ours[key], theirs[key], f'{path}[{key!r}]', by_design)
    elif isinstance(ours, (list, tuple)):
        if len(ours) != len(theirs):
            yield f'{path}: {len(ours)} instead of {len(theirs)}'
        for i, (a, b) in enumerate(zip(ours, theirs)):
            yield from differences(a, b, f'{path}[{i}]', by_design)
    elif hasattr(ours, '__dict__') and not isinstance(ours, type):
        for key in sorted(vars(ours).keys() | vars(theirs).keys()):
            yield from differences(vars(ours).get(key), vars(theirs).get(key), f'{path}.{key}', by_design)
    elif (ours != theirs).any() if hasattr(ours, 'shape') else ours != theirs:
        yield f'{path}: {ours!r} instead of {theirs!r}'


def load_file(path):
    """As torch.load gives it; both ways of loading agree and the archive is whole."""
    with zipfile.ZipFile(path) as archive:
        broken = archive.testzip()
        assert broken is None, f'{path}: wrong CRC-32 in {broken}'
    value = torch.load(path, weights_only=False, map_location='cpu')
    with torch.serialization.safe_globals(safe_classes()):
        assert not list(differences(value, torch.load(path, weights_only=True, map_location='cpu'))), f'{path}: weights_only gives something else'
    return value


def objects_of(folder):
    """All that a torch_dist checkpoint holds besides tensors."""
    metadata = FileSystemReader(folder).read_metadata()
    objects = {}
    for index, item in metadata.storage_data.items():
        if isinstance(metadata.state_dict_metadata[index.fqn], BytesStorageMetadata):
            with open(f'{folder}/{item.relative_path}', 'rb') as file:
                file.seek(item.offset)
                objects[index.fqn] = torch.load(io.BytesIO(file.read(item.length)), weights_only=False, map_location='cpu')
    if os.path.exists(f'{folder}/common.pt'):
        objects['common'] = torch.load(f'{folder}/common.pt', weights_only=False, map_location='cpu')
        objects['common'].pop('optimizer', None)
    return dict(sorted(objects.items()))


def object_problems(ferry, run, folder, work):
    old = os.path.exists(f'{folder}/common.pt')
    stored = FileSystemReader(folder).read_metadata().state_dict_metadata
    flat = any('optimizer.distributed.' in name for name in stored)
    out = reshard(ferry, run, f'{work}/same', '--core-release 0.12 --optimizer none' if old else '--optimizer dp_reshardable' if flat else '')
    by_design = OF_THE_RELEASE if old else frozenset()
    ours, theirs = objects_of(out), objects_of(folder)
    if not any('optimizer.' in name for name in stored):  # a run without its optimizer says of which form that would be
        for name in theirs:
            if name.startswith('common_state/'): theirs[name][0]['content_metadata'].pop('distrib_optim_sharding_type', None)
    yield from differences(ours, theirs, by_design=by_design)


def file_problems(ferry, run, folder, work):
    out = reshard(ferry, run, f'{work}/same', '--to torch')
    ours, theirs = ({os.path.relpath(path, top) for path in glob.glob(f'{top}/mp_rank_*/*.pt')} for top in (out, folder))
    if ours != theirs:
        yield f'files on one side only: {sorted(ours ^ theirs)}'
    for name in sorted(ours & theirs):
        expected = torch.load(f'{folder}/{name}', weights_only=False, map_location='cpu')
        yield from (f'{name}{line}' for line in differences(load_file(f'{out}/{name}'), expected, by_design=OF_THE_PROCESS))


PIECES = ['query', 'key', 'value', 'z', 'x', 'B', 'C', 'dt', 'beta', 'alpha']  # in the order of rows, of delta nets and Mamba's mixers alike


def without_pieces(tensors):
    """Parameters that torch_dist stores in pieces, each as one."""
    whole = {}
    for name, tensor in tensors.items():
        base, _, piece = name.rpartition('.')
        if piece in PIECES and base.endswith(('.weight', '.bias')): whole.setdefault(base, {})[piece] = tensor
        else: whole[name] = tensor
    # What modules call otherwise than Megatron-LM's distributed checkpoints.
    names = {name: re.sub(r'^(mtp\.layers\.\d+)\.transformer_layer\.', r'\1.mtp_model_layer.', name.replace('.mixer.conv1d.', '.mixer.conv1d_')) for name in whole}
    whole = {names[name]: value for name, value in whole.items()}
    return {name: torch.cat([value[piece] for piece in PIECES if piece in value]) if isinstance(value, dict) else value for name, value in whole.items()}


def single_rank_model(tensors, norms_in_linears, grouped):
    """The state dict of a single rank, made of what a torch_dist checkpoint holds. grouped: experts are parameters of one module, numbered at the end."""
    model = {}

    def add(name, tensor):
        if not norms_in_linears:
            name = name.replace('self_attention.linear_qkv.layer_norm_', 'input_layernorm.')
            name = name.replace('mlp.linear_fc1.layer_norm_', 'pre_mlp_layernorm.')
            name = re.sub(r'linear_(q|kv)_up_proj\.layer_norm_', r'\1_layernorm.', name)
        if '.mlp.experts.experts.' not in name:
            model[name] = tensor
            return
        for expert, part in enumerate(tensor):
            numbered = name.replace('.experts.experts.', '.experts.') + str(expert) if grouped else name.replace('.experts.experts.', f'.experts.local_experts.{expert}.')
            model[numbered] = part

    for name, tensor in without_pieces(tensors).items():
        stacked = re.match(r'decoder\.layers\.(?!\d)(.*)', name)
        for layer, part in enumerate(tensor) if stacked else ():
            add(f'decoder.layers.{layer}.{stacked[1]}', part)
        if not stacked:
            add(name, tensor)
    return dict(sorted(model.items()))


def single_rank_problems(out, folder):
    state = load_file(f'{out}/mp_rank_00/model_optim_rng.pt')
    model = {name: tensor for name, tensor in state['model'].items() if tensor is not None}
    norms_in_linears = any('linear_qkv.layer_norm' in name or 'linear_fc1.layer_norm' in name for name in model)
    yield from differences(dict(sorted(model.items())), single_rank_model(model_of(load(folder)), norms_in_linears, any('.experts.linear_fc1.' in name for name in model)))
    if os.path.exists(f'{out}/mp_rank_00/distrib_optim.pt'):
        load_file(f'{out}/mp_rank_00/distrib_optim.pt')


def main():
    ferry, peers = sys.argv[1:3]
    report = Report()
    for name in sys.argv[3:] or run_names(peers):
        run = f'{peers}/{name}'
        folder = iteration_folder(run)
        with tempfile.TemporaryDirectory() as work:
            if not os.path.exists(f'{folder}/.metadata'):
                report.add(f'{name}: files of rank folders', file_problems(ferry, run, folder, work))
                continue
            report.add(f'{name}: objects', object_problems(ferry, run, folder, work))
            one = reshard(ferry, run, f'{work}/one', '--to torch --tp 1 --pp 1 --ep 1')
            report.add(f'{name}: rank folders of a single rank', single_rank_problems(one, folder))
    report.end()


if __name__ == '__main__':
    main()
