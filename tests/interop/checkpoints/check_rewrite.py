"""Holds `ferry convert --to hf` of Hugging Face models against transformers and PyTorch.

Usage: check_rewrite.py FERRY [SLIME]
Tiny random models of make_hf_names.py:
  cast   --dtype: every tensor is what PyTorch's .to() makes of it; transformers loads the new model, with the type that its config says
  bin    pytorch_model.bin (torch.save), alone and in shards, becomes safetensors of the same bytes
  fp8    --quantize fp8: near the values, and --dtype bf16 of that is what plain PyTorch makes of codes and scales; transformers loads it;
         with SLIME, a tree of github.com/THUDM/slime: every tensor that both quantise has the bytes that its convert_hf_to_fp8.py writes
Prints a table; fails when anything differs."""
import json, os, subprocess, sys, tempfile
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import torch
from checkpoints import call, raw_bytes
from safetensors.torch import load_file
from tiny_models import make_model
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

CASES = ['llama', 'qwen3', 'qwen3_moe', 'mixtral', 'gpt2', 'deepseek_v3']

def tensors_of(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith('.safetensors'): tensors.update(load_file(os.path.join(folder, name)))
    return tensors

def raw(tensor): return tensor.dtype, tensor.shape, raw_bytes(tensor)

def differing(a, b):
    if a.keys() != b.keys(): return [f'names: {sorted(a.keys() ^ b.keys())[:3]}']
    names = [name for name in a if raw(a[name]) != raw(b[name])]
    return [f'bytes: {names[:3]}'] if names else []

def logits(folder, **options):
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation='eager', **options).eval()
    with torch.no_grad(): return model(torch.arange(40)[None] % 100).logits.float()

def dequantised(codes, scales):
    rows, columns = codes.shape
    return (codes.float() * scales.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]).bfloat16()

def check_cast(ferry, hf, out):
    problems = []
    tensors = tensors_of(hf)
    for flag, dtype in ('fp16', torch.float16), ('fp32', torch.float32), ('bf16', torch.bfloat16):
        call(ferry, 'convert', hf, out, '--overwrite', '--to', 'hf', '--dtype', flag)
        expected = {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}
        problems += [f'{flag}: {p}' for p in differing(expected, tensors_of(out))]
        if AutoConfig.from_pretrained(out).dtype != dtype: problems.append(f'{flag}: config says {AutoConfig.from_pretrained(out).dtype}')
    return problems

def check_bin(ferry, hf, work, out):
    tensors = tensors_of(hf)
    one, two = os.path.join(work, 'one_bin'), os.path.join(work, 'two_bins')
    for folder in one, two: os.makedirs(folder)
    names = sorted(tensors)
    torch.save(tensors, os.path.join(one, 'pytorch_model.bin'))
    weight_map = {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f'pytorch_model-0000{i + 1}-of-00002.bin'
        torch.save({name: tensors[name] for name in part}, os.path.join(two, file))
        weight_map.update(dict.fromkeys(part, file))
    with open(os.path.join(two, 'pytorch_model.bin.index.json'), 'w') as file: json.dump({'metadata': {}, 'weight_map': weight_map}, file)
    problems = []
    for folder in one, two:
        call(ferry, 'convert', folder, out, '--overwrite', '--to', 'hf')
        problems += differing(tensors, tensors_of(out))
    return problems

def check_fp8(ferry, hf, work, slime):
    fp8, bf16, theirs = (os.path.join(work, name) for name in ('fp8', 'bf16', 'slime'))
    call(ferry, 'convert', hf, fp8, '--to', 'hf', '--quantize', 'fp8')
    call(ferry, 'convert', fp8, bf16, '--to', 'hf', '--dtype', 'bf16')
    problems = []
    quantised, plain = tensors_of(fp8), tensors_of(hf)
    codes = [name for name in quantised if quantised[name].dtype == torch.float8_e4m3fn]
    expected = {**plain, **{name: dequantised(quantised[name], quantised[name + '_scale_inv']) for name in codes}}
    problems += [f'dequantised: {p}' for p in differing({n: t for n, t in expected.items()}, tensors_of(bf16))]
    for name in codes:  # three bits of mantissa
        if not torch.allclose(expected[name].float(), plain[name].float(), rtol=1 / 16 + 1 / 128, atol=plain[name].abs().max().item() / 448): problems.append(f'values: {name}')
    left = AutoConfig.from_pretrained(fp8).quantization_config['modules_to_not_convert']
    if sorted(left) != sorted(n.removesuffix('.weight') for n in plain if n.endswith('.weight') and n not in codes): problems.append(f'config: {left}')
    if not torch.isfinite(logits(bf16, dtype=torch.bfloat16)).all(): problems.append('logits')
    if slime:
        script = ('import sys, types; sys.modules["slime"] = types.ModuleType("slime"); sys.modules["slime.utils"] = types.SimpleNamespace(accelerator='
                  'types.SimpleNamespace(memory_allocated=lambda: 0, device_name=lambda: "cpu", empty_cache=lambda: None)); import runpy;'
                  'sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name="__main__")')
        subprocess.run([sys.executable, '-c', script, os.path.join(slime, 'tools/convert_hf_to_fp8.py'), '--model-dir', hf, '--save-dir', theirs,
                        '--block-size', '128', '128'], check=True, capture_output=True)
        a, b = tensors_of(fp8), tensors_of(theirs)
        problems += [f'slime: {name}' for name in a if a[name].dtype == torch.float8_e4m3fn and raw(a[name]) != raw(b[name])]
        problems += [f'slime: {name}' for name in a if name.endswith('_scale_inv') and raw(a[name]) != raw(b[name])]
    return problems

def main(ferry, slime=None):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    failed = 0
    for case in CASES:
        with tempfile.TemporaryDirectory() as work:
            hf, out = os.path.join(work, 'hf'), os.path.join(work, 'out')
            make_model(hf, case)
            problems = check_cast(ferry, hf, out) + check_bin(ferry, hf, work, out)
            if case != 'gpt2': problems += check_fp8(ferry, hf, work, slime)  # its layers are not linear ones
        failed += bool(problems)
        print(f'{case:28} {"; ".join(problems) or "ok"}', flush=True)
    return 1 if failed else 0

if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
