"""Writes the distributed checkpoint of a 70B run as far as `ferry inspect` reads it: real metadata, data files that are holes.

    make_metadata_70b.py OUT

Llama 3.1 70B with Adam, saved by torchtitan's names over 8 ranks: 2,169 tensors, 13,971 chunks, a 705 GB checkpoint. Needs PyTorch."""
import math
import os
import pickle
import sys
import uuid

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties,
                                                   TensorStorageMetadata)

out, ranks, hidden, ffn, vocab = sys.argv[1], 8, 8192, 28672, 128256
os.makedirs(out)
tensors, storage, ends = {}, {}, [0] * ranks


def add(name, shape, dtype):
    """One tensor: rows over all ranks when it has two axes, a copy on one rank otherwise."""
    parts = ranks if len(shape) == 2 else 1
    rows = shape[0] // parts
    chunks = []
    for part in range(parts):
        offset = torch.Size([part * rows] + [0] * (len(shape) - 1))
        size = torch.Size([rows] + list(shape[1:]))
        rank = part if parts > 1 else len(tensors) % ranks
        length = math.prod(size) * dtype.itemsize + 1200  # the item's own zip directory
        chunks.append(ChunkStorageMetadata(offset, size))
        storage[MetadataIndex(name, offset)] = _StorageInfo(f'__{rank}_0.distcp', ends[rank], length)
        ends[rank] += length
    tensors[name] = TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size(shape), chunks)


shapes = {'tok_embeddings.weight': (vocab, hidden), 'norm.weight': (hidden,), 'output.weight': (vocab, hidden)}
for i in range(80):
    at = f'layers.{i}.'
    shapes |= {at + 'attention.wq.weight': (hidden, hidden), at + 'attention.wk.weight': (1024, hidden),
               at + 'attention.wv.weight': (1024, hidden), at + 'attention.wo.weight': (hidden, hidden),
               at + 'feed_forward.w1.weight': (ffn, hidden), at + 'feed_forward.w2.weight': (hidden, ffn),
               at + 'feed_forward.w3.weight': (ffn, hidden), at + 'attention_norm.weight': (hidden,), at + 'ffn_norm.weight': (hidden,)}
for prefix, dtype in (('', torch.bfloat16), ('optimizer.state.exp_avg.', torch.float32), ('optimizer.state.exp_avg_sq.', torch.float32)):
    for name, shape in shapes.items():
        add(prefix + name, shape, dtype)

for rank, end in enumerate(ends):
    with open(f'{out}/__{rank}_0.distcp', 'wb') as f:
        f.truncate(end)
with open(f'{out}/.metadata', 'wb') as f:
    pickle.dump(Metadata(tensors, None, storage, StorageMeta(out, str(uuid.uuid4())), '1.0.0'), f)
print(f'{len(tensors)} tensors, {len(storage)} chunks, {sum(ends) / 1e9:.0f} GB, {os.path.getsize(out + "/.metadata") / 1e6:.2f} MB of metadata')
