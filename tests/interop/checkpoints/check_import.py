"""Converts tiny random models of transformers to Megatron-LM's formats with ferry, and back.

Usage: check_import.py FERRY [CASE ...]
For every case of make_hf_names.py, with random norms and biases too:
  bytes    Hugging Face -> Megatron-LM -> Hugging Face, at each of LAYOUTS: the same bytes in every tensor, a config that transformers reads as the same;
           and a run made of that again has the first one's tensors
  pytorch  PyTorch's own reader loads every tensor of the distributed checkpoint
  fp8      (deepseek_v3) weights quantised by blocks become what transformers and plain PyTorch make of them
  kimi     (deepseek_v3) under the name kimi_k2, whose class transformers does not have, it is the same run, and comes back under that name
  logits   Megatron Core computes what transformers computes: check_core_logits.py, where megatron-core is installed; prediction layers too
Prints a table; fails when anything differs."""
import importlib.util, json, os, shutil, subprocess, sys, tempfile
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import numpy as np, torch
from checkpoints import call, diff_problems, load, raw_bytes
from make_hf_names import CASES
from safetensors.torch import load_file, save_file
from tiny_models import make_model
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.utils import logging

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = (1, 48)
LAYOUTS = [  # where the model has experts they are split by 2 besides
    ['--to', 'torch_dist', '--tp', '2', '--pp', '2', '--etp', '1'],
    ['--to', 'torch_dist', '--pp', '2', '--vpp', '2', '--make-vocab-size-divisible-by', '1'],
    ['--to', 'torch', '--tp', '2', '--pp', '2'],
    ['--to', 'torch', '--pp', '4', '--make-vocab-size-divisible-by', '64'],
]
# Megatron Bridge has no other for dense models of Gemma 4.
ONE_STAGE = [['--to', form, '--tp', tp] for form in ('torch_dist', 'torch') for tp in '12']
# Stages begin with layers that have an indexer.
WITH_INDEXERS = [['--to', form, '--tp', tp, '--pp', '2', '--decoder-first-pipeline-num-layers', '3'] for form in ('torch_dist', 'torch') for tp in '12']
PREDICTION_LAYERS = os.path.join(HERE, '../../fixtures/core/deepseek_v3_mtp')
NOT_IN_CORE = {'apertus', 'gemma4_mixture', 'gemma4_mixture_keys_for_values', 'gemma4_keys_for_values', 'gemma4_layer_embeddings', 'gemma4_text', 'gemma4_wide', 'exaone4', 'exaone4_no_positions', 'exaone4_windows', 'gemma3_no_windows', 'gemma3_text', 'minimax_m2', 'olmoe', 'deepseek_v32', 'glm_moe_dsa', 'glm_moe_dsa_shared', 'nemotron_h', 'nemotron_h_latent', 'qwen3_next', 'qwen3_next_mixed', 'qwen3_5_text', 'qwen3_5_moe_text'}  # 0.16 has them not, or not as modules of its own
# layer_types says what intervals of windows would.
NOT_OF_THE_MODEL = {'_sliding_window_pattern', 'sliding_window_pattern', 'transformers_version', '_name_or_path', 'dtype', 'torch_dtype', 'architectures', 'output_router_logits', 'router_jitter_noise'}

def ferry_convert(ferry, *arguments):
    call(ferry, 'convert', *arguments)

def tensors_of(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith('.safetensors'): tensors.update(load_file(os.path.join(folder, name)))
    return tensors

def raw(tensor):
    return tensor.dtype, tensor.shape, raw_bytes(tensor)

def same_bytes(a, b):
    if a.keys() != b.keys(): return [f'names: {sorted(a.keys() ^ b.keys())[:3]}']
    # The router's bias is fp32 in files that ferry writes.
    differ = [n for n in a if raw(a[n].float() if n.endswith(('e_score_correction_bias', 'expert_bias')) else a[n]) != raw(b[n])]
    return [f'bytes: {differ[:3]}'] if differ else []

def same_config(one, other):
    """What one says the other must say, but for windows that no layer has."""
    a, b = (AutoConfig.from_pretrained(f).to_dict() for f in (one, other))
    if not a.get('use_sliding_window'): a.pop('max_window_layers', None)
    differ = {k: (a[k], b.get(k)) for k in a if k not in NOT_OF_THE_MODEL and a[k] != b.get(k)}
    return [f'config: {differ}'] if differ else []

def pytorch_reads(folder, tensors):
    """Loads all of it with PyTorch alone."""
    embedding = next(t for n, t in tensors.items() if n.endswith(('embed_tokens.weight', 'wte.weight', 'embeddings.weight')))
    found = load(folder)['embedding.word_embeddings.weight']
    return [] if torch.equal(found[:len(embedding)], embedding) and not found[len(embedding):].any() else ['pytorch: the embedding differs']

def there_and_back(ferry, work, has_experts):
    hf, run, back, again = (os.path.join(work, n) for n in ('hf', 'run', 'back', 'again'))
    experts = ['--ep', '2'] if has_experts else []
    with open(os.path.join(hf, 'config.json')) as file: config = json.load(file)
    family = config['model_type']  # Seed-OSS is Llama or Qwen2 unless it is said
    shares_indexers = 'shared' in config.get('indexer_types', [])
    problems = []
    for layout in ONE_STAGE if family == 'gemma4_text' and not has_experts else WITH_INDEXERS if shares_indexers else LAYOUTS:
        ferry_convert(ferry, hf, run, '--overwrite', *layout, *experts)
        ferry_convert(ferry, run, back, '--overwrite', '--to', 'hf', '--family', family)
        found = same_bytes(tensors_of(hf), tensors_of(back)) + same_config(hf, back)
        if 'torch_dist' in layout: found += pytorch_reads(os.path.join(run, 'release'), tensors_of(hf))
        ferry_convert(ferry, back, again, '--overwrite', *layout, *experts)
        found += diff_problems(ferry, run, again)
        problems += [f'{" ".join(layout)}: {problem}' for problem in found]
        shutil.rmtree(run)
        shutil.rmtree(again)
    return problems

def quantised(weight, block):
    """Codes, scales, and what they stand for: as transformers says, where it takes blocks that are cut off at the edges, and as plain PyTorch."""
    rows, columns = weight.shape
    grid = [-(-rows // block[0]), -(-columns // block[1])]
    scales = torch.rand(grid) * 0.01 + 1e-4
    spread = scales.repeat_interleave(block[0], 0)[:rows].repeat_interleave(block[1], 1)[:, :columns]
    codes = (weight.float() / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    values = (codes.float() * spread).bfloat16()
    if rows % block[0] == 0 and columns % block[1] == 0:
        assert torch.equal(values, Fp8Dequantize(None)._dequantize_one(codes, scales, torch.bfloat16))
    return codes, scales, values

def fp8_is_read(ferry, work):
    hf, fp8, run, back = (os.path.join(work, n) for n in ('hf', 'fp8', 'run', 'back'))
    problems = []
    for block in ([16, 8], [128, 128]):
        tensors, expected = {}, {}
        for name, tensor in tensors_of(hf).items():
            tensors[name] = expected[name] = tensor
            if not name.endswith('_proj.weight'): continue
            tensors[name], tensors[name + '_scale_inv'], expected[name] = quantised(tensor, block)
        os.makedirs(fp8, exist_ok=True)
        save_file(tensors, os.path.join(fp8, 'model.safetensors'), {'format': 'pt'})
        with open(os.path.join(hf, 'config.json')) as file: config = json.load(file)
        config['quantization_config'] = dict(quant_method='fp8', fmt='e4m3', activation_scheme='dynamic', weight_block_size=block)
        with open(os.path.join(fp8, 'config.json'), 'w') as file: json.dump(config, file)
        ferry_convert(ferry, fp8, run, '--overwrite', '--to', 'torch_dist', '--tp', '2', '--ep', '2')
        ferry_convert(ferry, run, back, '--overwrite', '--to', 'hf')
        problems += [f'fp8 {block}: {problem}' for problem in same_bytes(expected, tensors_of(back))]
    return problems

def kimi_is_the_same(ferry, work):
    hf, kimi, run, renamed, back = (os.path.join(work, n) for n in ('hf', 'kimi', 'run', 'renamed', 'back'))
    shutil.copytree(hf, kimi)
    with open(os.path.join(hf, 'config.json')) as file: config = {**json.load(file), 'model_type': 'kimi_k2'}
    with open(os.path.join(kimi, 'config.json'), 'w') as file: json.dump(config, file)
    layout = ['--to', 'torch_dist', '--tp', '2', '--ep', '2']
    ferry_convert(ferry, hf, run, '--overwrite', *layout)
    ferry_convert(ferry, kimi, renamed, '--overwrite', *layout)
    ferry_convert(ferry, renamed, back, '--overwrite', '--to', 'hf', '--family', 'kimi_k2')
    with open(os.path.join(back, 'config.json')) as file: found = json.load(file)
    differ = {k: (config[k], found[k]) for k in config.keys() & found.keys() - NOT_OF_THE_MODEL if config[k] != found[k]}
    problems = [*diff_problems(ferry, run, renamed)] + same_bytes(tensors_of(kimi), tensors_of(back)) + ([f'config: {differ}'] if differ else [])
    for folder in (run, renamed): shutil.rmtree(folder)
    return [f'kimi_k2: {problem}' for problem in problems]

def prepare_logits(ferry, source, work, logits=None):
    """A run for Megatron Core 0.16 in `work`, with what transformers computes or what is known."""
    if logits is None:
        tokens = np.random.RandomState(0).randint(0, 250, TOKENS)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation='eager').eval()
        with torch.no_grad(): logits = dict(tokens=tokens, logits=model(torch.from_numpy(tokens)).logits.numpy())
    ferry_convert(ferry, source, os.path.join(work, 'run_0_16'), '--to', 'torch_dist', '--core-release', '0.16', '--tp', '2', '--transformer-impl', 'local')
    np.savez(os.path.join(work, 'logits.npz'), **logits)

def check(ferry, case, work):
    has_experts = make_model(os.path.join(work, 'hf'), case)
    problems = there_and_back(ferry, work, has_experts)
    if case == 'deepseek_v3': problems += fp8_is_read(ferry, work) + kimi_is_the_same(ferry, work)
    if case not in NOT_IN_CORE: prepare_logits(ferry, os.path.join(work, 'hf'), work)
    return problems

def main(ferry, cases):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        for case in cases or CASES:
            problems = check(ferry, case, os.path.join(work, case))
            failed += bool(problems)
            print(f'{case:28} {"; ".join(problems) or "ok"}', flush=True)
        if not cases:  # transformers makes no prediction layers: those that Megatron Core made go to Hugging Face first
            hf = os.path.join(work, 'deepseek_v3_mtp', 'hf')
            os.makedirs(os.path.dirname(hf))
            ferry_convert(ferry, PREDICTION_LAYERS, hf, '--to', 'hf')
            prepare_logits(ferry, hf, os.path.dirname(hf), np.load(PREDICTION_LAYERS + '.npz'))
        if importlib.util.find_spec('megatron'):  # a process of its own: it makes torch believe in the CPU
            failed += subprocess.run([sys.executable, os.path.join(HERE, 'check_core_logits.py'), work]).returncode != 0
        else: print('megatron-core is not installed: no logits')
    return 1 if failed else 0

if __name__ == '__main__':
    sys.exit(main(sys.argv[1], sys.argv[2:]))
