"""Times `ferry check` of a large folder: a DeepSeek-V3 in bf16 with the experts of its layers one by one, whose tensors are holes.

    check.py FERRY WORK [--layers 61] [--repeat 9]

WORK/model is made where it is not there: real headers, index and config.json, and files of the right size without blocks on the disk (1.3 TB; a file system with holes).
Times it as a model of a known family and, with another model_type, as one of an unknown type; without and with `--for vllm`."""
import argparse
import json
import os
import statistics
import struct
import subprocess
import time

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('--layers', type=int, default=61)
parser.add_argument('--repeat', type=int, default=9)
a = parser.parse_args()

CONFIG = dict(architectures=['DeepseekV3ForCausalLM'], model_type='deepseek_v3', bos_token_id=0, eos_token_id=1, first_k_dense_replace=3, hidden_act='silu', hidden_size=7168,
              intermediate_size=18432, kv_lora_rank=512, max_position_embeddings=4096, moe_intermediate_size=2048, n_group=8, n_routed_experts=256, n_shared_experts=1,
              norm_topk_prob=True, num_attention_heads=128, num_experts_per_tok=8, num_hidden_layers=a.layers, num_key_value_heads=128, q_lora_rank=1536, qk_nope_head_dim=128,
              qk_rope_head_dim=64, rms_norm_eps=1e-6, rope_theta=10000, routed_scaling_factor=2.5, scoring_func='sigmoid', tie_word_embeddings=False, topk_group=4,
              topk_method='noaux_tc', torch_dtype='bfloat16', v_head_dim=128, vocab_size=129280)
H, HEADS, Q, KV = CONFIG['hidden_size'], CONFIG['num_attention_heads'], CONFIG['q_lora_rank'], CONFIG['kv_lora_rank']


def mlp(prefix, width):
    yield from ((f'{prefix}.{name}_proj.weight', [width, H]) for name in ('gate', 'up'))
    yield f'{prefix}.down_proj.weight', [H, width]


def tensors():
    """Names and shapes; all but the routers' biases are bf16."""
    yield 'model.embed_tokens.weight', [CONFIG['vocab_size'], H]
    for layer in range(a.layers):
        at = f'model.layers.{layer}'
        yield f'{at}.input_layernorm.weight', [H]
        yield f'{at}.post_attention_layernorm.weight', [H]
        yield f'{at}.self_attn.q_a_proj.weight', [Q, H]
        yield f'{at}.self_attn.q_a_layernorm.weight', [Q]
        yield f'{at}.self_attn.q_b_proj.weight', [HEADS * 192, Q]
        yield f'{at}.self_attn.kv_a_proj_with_mqa.weight', [KV + 64, H]
        yield f'{at}.self_attn.kv_a_layernorm.weight', [KV]
        yield f'{at}.self_attn.kv_b_proj.weight', [HEADS * 256, KV]
        yield f'{at}.self_attn.o_proj.weight', [H, HEADS * 128]
        if layer < CONFIG['first_k_dense_replace']:
            yield from mlp(f'{at}.mlp', CONFIG['intermediate_size'])
            continue
        yield f'{at}.mlp.gate.weight', [CONFIG['n_routed_experts'], H]
        yield f'{at}.mlp.gate.e_score_correction_bias', [CONFIG['n_routed_experts']]
        yield from mlp(f'{at}.mlp.shared_experts', CONFIG['moe_intermediate_size'])
        for expert in range(CONFIG['n_routed_experts']):
            yield from mlp(f'{at}.mlp.experts.{expert}', CONFIG['moe_intermediate_size'])
    yield 'model.norm.weight', [H]
    yield 'lm_head.weight', [CONFIG['vocab_size'], H]


def write_json(path, value):
    with open(path, 'w') as file: json.dump(value, file)


def make(folder):
    os.makedirs(folder)
    shards, size = [{}], 0
    for name, shape in tensors():
        dtype, width = ('F32', 4) if name.endswith('_bias') else ('BF16', 2)
        length = width
        for n in shape: length *= n
        if size + length > 8 << 30: shards, size = [*shards, {}], 0
        shards[-1][name] = dict(dtype=dtype, shape=shape, data_offsets=[size, size + length])
        size += length
    index = {}
    for number, header in enumerate(shards, 1):
        file = f'model-{number:05}-of-{len(shards):05}.safetensors'
        text = json.dumps(dict(__metadata__=dict(format='pt'), **header)).encode()
        with open(f'{folder}/{file}', 'wb') as out:
            out.write(struct.pack('<Q', len(text)) + text)
            out.truncate(8 + len(text) + max(each['data_offsets'][1] for each in header.values()))
        index.update(dict.fromkeys(header, file))
    write_json(f'{folder}/model.safetensors.index.json', dict(metadata=dict(total_size=0), weight_map=index))
    write_json(f'{folder}/tokenizer.json', dict(version='1.0', added_tokens=[], model=dict(type='WordLevel', vocab={'<s>': 0, 'a': 1}, unk_token='<s>')))


model = f'{a.work}/model'
if not os.path.exists(model): make(model)
with open(f'{model}/model.safetensors.index.json') as file: count = len(json.load(file)['weight_map'])
print(f'{count} tensors in {sum(name.endswith("safetensors") for name in os.listdir(model))} files')
for model_type in 'deepseek_v3', 'of_another_type':
    write_json(f'{model}/config.json', {**CONFIG, 'model_type': model_type})
    for options in [], ['--for', 'vllm']:
        times = []
        for _ in range(a.repeat):
            begin = time.monotonic()
            done = subprocess.run(['/usr/bin/time', '-f', '%M', a.ferry, 'check', model, *options], capture_output=True, text=True)
            times.append(time.monotonic() - begin)
        print(f'{model_type:16} {" ".join(options):10} {statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f}), '
              f'{int(done.stderr.split()[-1]) // 1024} MiB: {done.stdout.splitlines()[0]}')
