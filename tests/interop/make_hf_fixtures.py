"""Writes tests/fixtures/hugging_face: small model folders and files that transformers, PyTorch and safetensors themselves wrote.

    make_hf_fixtures.py tests/fixtures
truth.json in each folder: dtype, shape and XXH3-128 of every tensor, in the order in which they were given to the writer."""
import json
import os
import sys

import torch
import xxhash
from make_truth import raw_bytes
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM


def write_truth(folder, tensors):
    truth = {name: {'dtype': str(t.dtype).removeprefix('torch.'), 'shape': list(t.shape), 'xxh3_128': xxhash.xxh3_128_hexdigest(raw_bytes(t))}
             for name, t in tensors.items()}
    with open(f'{folder}/truth.json', 'w') as f:
        json.dump(truth, f, indent=0)
        f.write('\n')


def shards_of_transformers(folder):
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                                         num_key_value_heads=1, max_position_embeddings=32)).bfloat16()
    model.save_pretrained(folder, max_shard_size='4KB')
    tensors = dict(model.state_dict())
    write_truth(folder, tensors)
    return tensors


def shards_of_torch(folder, tensors):
    """As transformers 4 wrote them: an OrderedDict in each shard; a transposed view and a storage that two tensors share."""
    os.makedirs(folder, exist_ok=True)
    tensors = dict(tensors)
    tensors['transposed.weight'] = tensors['model.layers.0.mlp.up_proj.weight'].t()
    tensors['tied.weight'] = tensors['lm_head.weight']
    names = list(tensors)
    shards = {'pytorch_model-00001-of-00002.bin': names[:9] + ['transposed.weight'], 'pytorch_model-00002-of-00002.bin': names[9:]}
    shards['pytorch_model-00002-of-00002.bin'].remove('transposed.weight')
    for file, members in shards.items():
        torch.save({name: tensors[name] for name in members}, f'{folder}/{file}')
    weight_map = {name: file for file, members in shards.items() for name in members}
    with open(f'{folder}/pytorch_model.bin.index.json', 'w') as f:
        json.dump({'metadata': {'total_size': 0}, 'weight_map': weight_map}, f, indent=2)
    write_truth(folder, tensors)


def every_dtype(folder):
    os.makedirs(folder, exist_ok=True)
    integers = torch.arange(-6, 6).reshape(3, 4)
    tensors = {str(d).removeprefix('torch.'): integers.to(d) for d in (
        torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64, torch.float16,
        torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz)}
    tensors['float8_e8m0fnu'] = torch.tensor([1., 2., 4.]).to(torch.float8_e8m0fnu)
    tensors['float4_e2m1fn_x2'] = torch.arange(12, dtype=torch.uint8).reshape(2, 6).view(torch.float4_e2m1fn_x2)
    tensors['scalar'] = torch.tensor(7.0)
    tensors['empty'] = torch.empty(0, 5)
    tensors['name \"with\" \n \u00e4'] = torch.tensor([1])
    written = {}
    for name, tensor in tensors.items():  # a dtype that this safetensors cannot write is left out
        try:
            save_file({name: tensor}, f'{folder}/model.safetensors')
            written[name] = tensor
        except Exception as error:
            print(f'left out {name}: {error}')
    save_file(written, f'{folder}/model.safetensors', metadata={'format': 'pt', 'k': 'v \u00e4'})
    write_truth(folder, written)


if __name__ == '__main__':
    out = sys.argv[1] + '/hugging_face'
    tensors = shards_of_transformers(out + '/safetensors_shards')
    shards_of_torch(out + '/torch_shards', tensors)
    every_dtype(out + '/every_dtype')
