"""Holds ferry against Megatron Bridge itself, for families whose layers Megatron-LM has no arguments for.

Usage: check_bridge.py FERRY MEGATRON_CPU BRIDGE [CASE ...]
MEGATRON_CPU: a folder in which Megatron-LM runs on a CPU, as check_megatron.py takes it. BRIDGE: a folder that `pip install --no-deps --target BRIDGE megatron-bridge omegaconf` filled.
For a tiny model of transformers of each case, in fp32:
  load     Bridge's modules load what ferry made of it, and compute transformers' logits
  import   what Bridge itself imports from it is the same, bit for bit
  export   ferry makes the same model of a checkpoint of Bridge's own with its run_config.yaml, bit for bit
Prints a line a case; fails when anything differs."""
import json, os, subprocess, sys, tempfile
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import torch
from checkpoints import call
from safetensors.torch import load_file
import make_hf_names
from tiny_models import OTHERS, make_model

HERE = os.path.dirname(os.path.abspath(__file__))
BAR = 8e-6  # of the mean size of the logits
# What Bridge does not take from the configurations that transformers writes.
CASES = {'exaone4': {}, 'gemma4_text': {}, 'gemma4_keys_for_values': {}, 'gemma4_layer_embeddings': {}, 'gemma4_wide': {}, 'gemma4_mixture': dict(moe_grouped_gemm=True), 'gemma4_mixture_keys_for_values': dict(moe_grouped_gemm=True), 'gemma3_text': dict(interleaved_attn_pattern=[3, 1]), 'gemma3_no_windows': dict(interleaved_attn_pattern=[0, 1]),
         'minimax_m2': dict(rotary_percent=0.5), 'olmoe': {}, 'bailing_moe_v2': {}, 'mimo': {}}
# Bridge's norm of keys is as wide as that of queries.
make_hf_names.CASES['olmoe'][2]['num_key_value_heads'] = 4


def in_bridge(megatron, bridge, *arguments):
    path = [f'{megatron}/te_stub', f'{megatron}/ssm_stub', f'{megatron}/mlm', bridge]
    # A package of two places: Megatron-LM's `megatron` and Bridge's.
    start = (f'import sys, runpy; sys.path[:0] = {path!r}; import megatron; megatron.__path__ = [*megatron.__path__, {bridge + "/megatron"!r}]; '
             f'sys.argv = {["cpu_shim.py", os.path.join(HERE, "bridge_model.py"), *arguments]!r}; runpy.run_path({megatron + "/cpu_shim.py"!r}, run_name="__main__")')
    environment = dict(os.environ, TORCHDYNAMO_DISABLE='1', MASTER_PORT=os.environ.get('FERRY_TEST_PORT', '29571'))
    done = subprocess.run([f'{megatron}/venv/bin/python', '-c', start], capture_output=True, text=True, env=environment, cwd=megatron)
    if done.returncode: raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def check(ferry, megatron, bridge, case, work):
    hf, run, saved, back = (os.path.join(work, name) for name in ('hf', 'run', 'saved', 'back'))
    make_model(hf, case, torch.float32)
    call(ferry, 'convert', hf, run, '--to', 'torch_dist', '--make-vocab-size-divisible-by', '1', '--core-release', '0.16')
    found = in_bridge(megatron, bridge, hf, run, saved, json.dumps(CASES[case]))
    # Scores that are not divided magnify rounding: transformers' own two ways of attention may differ more.
    problems = [f'logits differ by {found["logits"]:.1e}'] if not found['logits'] <= max(BAR, 2 * found['own']) else []
    if found['differ']: problems.append(f'Bridge imports otherwise: {found["differ"]}')
    # Bridge's configuration does not say which of those with the same layers these are.
    call(ferry, 'convert', saved, back, '--to', 'hf', *(['--family', case] if case in OTHERS else []))
    a, b = (load_file(os.path.join(folder, 'model.safetensors')) for folder in (hf, back))
    if a.keys() != b.keys(): problems.append(f'names: {sorted(a.keys() ^ b.keys())[:4]}')
    problems += [f'differs: {name}' for name in a if name in b and not torch.equal(a[name].float(), b[name].float())][:4]
    configs = [json.load(open(os.path.join(folder, 'config.json'))) for folder in (hf, back)]
    if configs[0]['model_type'] != configs[1]['model_type']: problems.append(f'model_type is {configs[1]["model_type"]}')
    print(f'{case:24} {"; ".join(problems) or "ok"}   {found["parameters"]} parameters, logits {found["logits"]:.1e}, transformers\' own {found["own"]:.1e}')
    return problems


def main(ferry, megatron, bridge, cases):
    failed = 0
    for case in cases or CASES:
        with tempfile.TemporaryDirectory() as work: failed += bool(check(os.path.abspath(ferry), os.path.abspath(megatron), os.path.abspath(bridge), case, work))
    return 1 if failed else 0


if __name__ == '__main__':
    if len(sys.argv) < 4: sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:4], sys.argv[4:]))
