"""Writes tests/fixtures/pickle, tests/fixtures/torch and tests/fixtures/dcp_zstd: what Python and PyTorch themselves write.

    make_torch_fixtures.py FIXTURES      needs torch (2.11 was used) and zstandard
The values are chosen so that the C++ tests can tell each element from its position."""
import argparse
import collections
import enum
import io
import os
import pathlib
import pickle
import shutil
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ZStandard


class Colour(enum.Enum):
    RED = 'red'


class Slotted:
    __slots__ = ('x', '__dict__')


def plain_value():
    shared = [1, 2]
    # No sets of several elements: their order is not the same in every run.
    return {
        'none': None, 'true': True, 'false': False,
        'integers': [0, 1, -1, 255, 256, 65535, 65536, -129, 2**31 - 1, 2**31, -2**31, 2**40, 2**63 - 1, -2**63],
        'big': [2**63, -2**63 - 1, 2**100],
        'reals': [0.0, -1.5, 1e300, 0.1],
        'text': ['', 'ascii', 'naïve \u65e5\u672c \U0001f642', "quote' and \\ and \n", 'x' * 300],
        'bytes': [b'', b'\x00\xff\x80', b'y' * 300], 'bytearray': bytearray(b'ab\xe9'),
        'tuples': [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        'set': {5}, 'frozenset': frozenset([6]), 'empty_set': set(),
        'many': list(range(1200)), 'many_keys': {i: str(i) for i in range(1100)},
        'shared': [shared, shared],
        'ordered': collections.OrderedDict([('b', 1), ('a', 2)]),
        'default': collections.defaultdict(list, {'k': [3]}),
        'counter': collections.Counter('aab'),
        'namespace': argparse.Namespace(lr=0.5, name='run', nested=argparse.Namespace(x=1)),
        'enum': Colour.RED, 'path': pathlib.PosixPath('/a/b'),
        'class': collections.OrderedDict, 'complex': 1 + 2j, 'long_key': {'k' * 70: 1},
    }


def small_value():
    """What tells opcodes apart in few of them: seeds of the fuzzers."""
    long = {'integers', 'text', 'many', 'many_keys', 'long_key'}
    value = {name: part for name, part in plain_value().items() if name not in long}
    return {**value, 'bytes': [b'', b'\x00\xff\x80'], 'integers': [-1, 256, 65536, 2**31, -2**63], 'text': ['', 'na\u00efve']}


def small_args():
    """Arguments of a run, those that say where its parameters lie."""
    return argparse.Namespace(
        num_layers=8, mtp_num_layers=1, num_experts=4, tensor_model_parallel_size=2, pipeline_model_parallel_size=2,
        virtual_pipeline_model_parallel_size=2, context_parallel_size=1, expert_model_parallel_size=2,
        expert_tensor_parallel_size=1, world_size=8, num_distributed_optimizer_instances=1, use_tp_pp_dp_mapping=False,
        decoder_first_pipeline_num_layers=None, decoder_last_pipeline_num_layers=None,
        account_for_embedding_in_pipeline_split=False, account_for_loss_in_pipeline_split=False,
        pipeline_model_parallel_layout='Ett|tt|tt|ttmL', swiglu=True, moe_grouped_gemm=True, transformer_impl='local',
        overlap_grad_reduce=True, ddp_bucket_size=100000, ddp_num_buckets=None)


def write_pickles(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for protocol in range(6):
        (folder / f'small_p{protocol}.pkl').write_bytes(pickle.dumps(small_value(), protocol=protocol))
    for protocol in (2, 4):
        (folder / f'small_args_p{protocol}.pkl').write_bytes(pickle.dumps({'args': small_args()}, protocol=protocol))
    for protocol in range(6):
        (folder / f'value_p{protocol}.pkl').write_bytes(pickle.dumps(plain_value(), protocol=protocol))
    cycle = {'list': []}
    cycle['list'].append(cycle)
    (folder / 'cycle.pkl').write_bytes(pickle.dumps(cycle, protocol=4))
    slotted = Slotted()
    slotted.x, slotted.y = 7, 8
    (folder / 'slots.pkl').write_bytes(pickle.dumps(slotted, protocol=2))
    ordered = collections.OrderedDict(a=1)
    ordered._metadata = {'version': 2}
    (folder / 'ordered_with_state.pkl').write_bytes(pickle.dumps(ordered, protocol=2))
    stream = io.BytesIO(b'inner')
    stream.seek(0, io.SEEK_END)
    (folder / 'bytes_io.pkl').write_bytes(pickle.dumps(stream, protocol=4))


def tensors():
    base = torch.arange(24, dtype=torch.float32)
    return {
        'contiguous': base.reshape(4, 6), 'transposed': base.reshape(4, 6).t(), 'view': base[10:20],
        'strided': base.reshape(4, 6)[:, ::2], 'scalar': torch.tensor(2.5, dtype=torch.float64), 'empty': torch.empty(0, 3),
        'expanded': torch.tensor([3.0]).expand(4),
        'bf16': base.to(torch.bfloat16), 'f16': base.to(torch.float16), 'boolean': base > 5, 'i8': base.to(torch.int8),
        'u16': base.to(torch.uint16), 'u64': base.to(torch.uint64), 'f8': base.to(torch.float8_e4m3fn), 'c64': base.to(torch.complex64),
        'parameter': torch.nn.Parameter(base.clone()),
    }


def views_to_be_worked_out():
    """Views whose storage has other elements than they: PyTorch conjugates and negates when it must."""
    z = torch.complex(torch.arange(12.0) + 1, -torch.arange(12.0) - 1).reshape(3, 4)  # no zeros: PyTorch is at will with the signs of theirs
    return {
        'plain': z, 'conjugated': z.conj(), 'transposed': z.t().conj(), 'imaginary': z.clone().conj().imag, 'both': torch._neg_view(z.conj()),
        'negated': torch._neg_view(torch.arange(5.0)), 'bf16': torch._neg_view(torch.arange(5.0).bfloat16()),
        'doubles': z.to(torch.complex128).conj()[1:, ::2],
    }


def write_torch_files(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensor in tensors().items():
        torch.save(tensor, folder / f'{name}.pt')
    tagged = torch.nn.Parameter(torch.arange(3.0))
    tagged.partition_dim = 0
    torch.save(tagged, folder / 'tagged.pt')
    views = views_to_be_worked_out()
    torch.save(views, folder / 'math_bits.pt')
    torch.save({name: view.resolve_conj().resolve_neg().contiguous() for name, view in views.items()}, folder / 'math_bits_resolved.pt')
    torch.save(torch._neg_view(torch.arange(5.0)), folder / 'negated.pt')
    torch.save(torch._neg_view(torch.arange(4, dtype=torch.int32)), folder / 'negated_integers.pt')
    shared = torch.arange(8, dtype=torch.int16)
    state = {'args': argparse.Namespace(lr=0.5), 'low': shared[:4], 'high': shared[4:], 'other': torch.arange(3, dtype=torch.bfloat16)}
    torch.save(state, folder / 'state.pt')
    torch.save(state, folder / 'state_legacy.pt', _use_new_zipfile_serialization=False)


def write_dcp(folder):
    shutil.rmtree(folder, ignore_errors=True)
    state = {'weight': torch.arange(384, dtype=torch.float32).reshape(24, 16), 'transposed': torch.arange(12, dtype=torch.bfloat16).reshape(3, 4).t(),
             'view': torch.arange(100, dtype=torch.int64)[10:20], 'scalar': torch.tensor(2.5, dtype=torch.float64), 'empty': torch.empty(0, 4),
             'step': {'n': 5, 'name': 'x'}}
    os.chdir(folder.parent)  # the path is part of the metadata
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder.name, _extensions=[ZStandard()]), no_dist=True)


if __name__ == '__main__':
    fixtures = pathlib.Path(sys.argv[1])
    write_pickles(fixtures / 'pickle')
    write_torch_files(fixtures / 'torch')
    write_dcp(fixtures / 'dcp_zstd')
