"""Takes folders as people have them through ferry: what comes out is what transformers makes of them, or they are refused with what is wrong.

Usage: check_wild.py FERRY FOLDERS [NAME ...]     FOLDERS: a folder that holds them by name; those that it lacks are left out
Prints a line a case; fails when an exit code, a message or logits differ."""
import glob, json, os, re, subprocess, sys, tempfile, warnings
warnings.filterwarnings('ignore')
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

BAR = 1e-6  # of the mean size of the logits: only the order of sums may differ
TOKENS = torch.arange(1, 33)[None]


def tensors_of(folder):
    tensors = {}
    for path in sorted(glob.glob(f'{folder}/*.safetensors')): tensors.update(load_file(path))
    return tensors


def logits_of(model):
    with torch.no_grad(): return model.float().eval()(input_ids=TOKENS, use_cache=False).logits.float()


def loaded(folder):
    """The model as transformers loads it from the folder, which must hold all of it and no more."""
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {kind: sorted(map(str, keys))[:3] for kind, keys in info.items() if keys and kind != 'error_msgs'}
    if wrong: raise AssertionError(f'transformers: {wrong}')
    return logits_of(model)


def renamed(folder, *wrappers):
    """The model of config.json with the folder's tensors, whose names are cleared of `wrappers`."""
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    tensors = {}
    for name, tensor in tensors_of(folder).items():
        for wrapper in wrappers: name = re.sub(wrapper, '', name)
        tensors[name] = tensor
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    if missing or unexpected: raise AssertionError(f'the test: {missing[:3]} {unexpected[:3]}')
    return logits_of(model)


FP4 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


def times_scales(codes, scale, blocks):
    """Codes times the scales of their blocks, rows, tensors or experts; integers are two 4-bit numbers each, the lower half first."""
    if not codes.is_floating_point():
        codes = codes.view(torch.uint8)
        codes = torch.stack([FP4[(codes & 15).int()], FP4[(codes >> 4).int()]], -1).flatten(-2)
    scale = scale.float()
    for axis, (rows, parts) in enumerate(zip(codes.shape[-scale.dim():], scale.shape)) if scale.dim() else ():
        block = blocks[axis] if blocks and scale.dim() == 2 and -(-rows // blocks[axis]) == parts else -(-rows // parts)
        scale = scale.repeat_interleave(block, axis).narrow(axis, 0, rows)
    return (codes.float() * scale).bfloat16()


def dequantised(folder):
    """The model of config.json without its quantization, with every quantised weight times its scales."""
    config = AutoConfig.from_pretrained(folder)
    blocks = None
    if hasattr(config, 'quantization_config'):
        blocks = config.quantization_config.get('weight_block_size')
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    stored, values = tensors_of(folder), {}
    for name, tensor in stored.items():
        if name.endswith('_blocks'):  # gpt-oss: [experts, rows, blocks, bytes], of the transposed weight
            scale = torch.exp2(stored[name.removesuffix('blocks') + 'scales'].float() - 127)
            values[name.removesuffix('_blocks')] = times_scales(tensor, scale[..., None], None).flatten(-2).transpose(1, 2)
        if re.search(r'([._]scale(_inv)?|_scales|_blocks)$', name): continue
        scales = name + '_scale', name + '_scale_inv', name.removesuffix('weight') + 'scale'
        scale = next((stored[other] for other in scales if other in stored), None)
        values[name] = tensor if scale is None else times_scales(tensor, scale, blocks)
    experts = {}
    for name in [n for n in values if '.experts.' in n and n.endswith('.weight')]:  # as the class holds them: of all experts, gate over up
        layer, expert, part = re.fullmatch(r'(.*\.experts)\.(\d+)\.(\w+)\.weight', name).groups()
        experts.setdefault(layer, {})[int(expert), part] = values.pop(name)
    for layer, parts in experts.items():
        count = max(expert for expert, _ in parts) + 1
        values[f'{layer}.gate_up_proj'] = torch.stack([torch.cat([parts[i, 'gate_proj'], parts[i, 'up_proj']]) for i in range(count)])
        values[f'{layer}.down_proj'] = torch.stack([parts[i, 'down_proj'] for i in range(count)])
    missing, unexpected = model.load_state_dict(values, strict=False)
    if missing or unexpected: raise AssertionError(f'the test: {missing[:3]} {unexpected[:3]}')
    return logits_of(model)


def of_torch_save(folder, config_folder):
    """The model of a file of torch.save, wherever in it the state dict is."""
    def find(value):
        if isinstance(value, dict) and any(str(key).endswith('lm_head.weight') for key in value): return value
        return next((found for found in map(find, value.values()) if found), None) if isinstance(value, dict) else None
    tensors = find(torch.load(glob.glob(f'{folder}/*.pt')[0], weights_only=False, map_location='cpu'))
    prefix = next(key for key in tensors if key.endswith('lm_head.weight')).removesuffix('lm_head.weight')
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config_folder), dtype=torch.float32)
    model.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in tensors.items()})
    return logits_of(model)


class Wild:
    def __init__(self, ferry, folders):
        self.ferry, self.folders, self.cases = ferry, folders, []

    def run(self, arguments, folder, out):
        words = [word.format(IN=f'{self.folders}/{folder}', OUT=out, FOLDERS=self.folders) for word in arguments.split()]
        done = subprocess.run([self.ferry, *words], capture_output=True, text=True)
        return done.returncode, ' '.join((done.stdout + done.stderr).split())

    def says(self, folder, arguments, code, *texts):
        """A command ends with `code`, and its output has all `texts`; those that begin with '!' it has not."""
        def check(out):
            found, text = self.run(arguments, folder, out)
            wrong = [f'exit code {found}'] if found != code else []
            wrong += [f'no "{t}"' for t in texts if not t.startswith('!') and t not in text]
            wrong += [f'has "{t[1:]}"' for t in texts if t.startswith('!') and t[1:] in text]
            if found and os.path.exists(out): wrong.append('left an output')
            return [f'{"; ".join(wrong)}: {text[:300]}'] if wrong else []
        self.cases.append((folder, arguments, check))

    def becomes(self, folder, commands, expected):
        """The last command's {OUT} is a model of the logits that expected() gives. {MID}: what the command before it wrote."""
        def check(out):
            made = folder
            for i, arguments in enumerate(commands):
                code, text = self.run(arguments.replace('{MID}', f'{out}{i - 1}'), folder, f'{out}{i}')
                if code: return [f'{arguments}: exit code {code}: {text[:300]}']
                made = f'{out}{i}'
            a, b = loaded(made), expected()
            difference = ((a - b).abs().max() / b.abs().mean()).item()
            return [f'logits differ by {difference:.1e} of their mean'] if difference > BAR else []
        self.cases.append((folder, ' and '.join(commands), check))


    def keeps(self, folder, commands, expected, but=()):
        """The last command's {OUT} has the tensors of the folders `expected`, bit for bit; those of `but` may be of another dtype."""
        def check(out):
            for i, arguments in enumerate(commands):
                code, text = self.run(arguments.replace('{MID}', f'{out}{i - 1}'), folder, f'{out}{i}')
                if code: return [f'{arguments}: exit code {code}: {text[:300]}']
            a, b = tensors_of(f'{out}{len(commands) - 1}'), tensors_of(f'{self.folders}/{expected}')
            if a.keys() != b.keys(): return [f'names: {sorted(a.keys() ^ b.keys())[:4]}']
            same = lambda name: torch.equal(a[name].float(), b[name].float()) and (a[name].dtype == b[name].dtype or name.endswith(tuple(but)))
            return [f'differs: {name}' for name in a if not same(name)][:4]
        self.cases.append((folder, ' and '.join(commands), check))


def all_cases(wild):
    says, becomes, folders = wild.says, wild.becomes, wild.folders
    original = lambda folder: lambda: loaded(f'{folders}/{folder}')
    to_hf = 'convert {IN} {OUT} --to hf'
    both_ways = [f'convert {{IN}} {{OUT}} --to torch_dist', 'convert {MID} {OUT} --to hf']

    # Names that programs wrapped.
    wrappers = r'_orig_mod\.', r'^module\.'
    for folder in 'orig_mod', 'orig_mod_sharded', 'ddp_module', 'both_wrapped':
        says(folder, 'inspect {IN}', 0, 'are wrapped')
        says(folder, 'verify {IN}', 4, 'are wrapped')
        for commands in [to_hf], [to_hf + ' --dtype bf16'], both_ways:
            becomes(folder, commands, lambda folder=folder: renamed(f'{folders}/{folder}', *wrappers))
    says('language_model_thrice', 'verify {IN}', 4, 'are wrapped')
    becomes('language_model_thrice', [to_hf], lambda: renamed(f'{folders}/language_model_thrice', r'language_model\.'))

    # Tensors that are missing, and indexes of other saves.
    for command, code in ('inspect {IN}', 0), ('verify {IN}', 4), (to_hf, 6), ('convert {IN} {OUT} --to torch_dist', 6):
        says('consolidated_lacks_norm', command, code, 'model.norm.weight')
    says('consolidated_lacks_norm', to_hf + ' --as-is', 0)
    for folder in 'index_ghost', 'index_stale':
        says(folder, 'inspect {IN}', 0, 'model.safetensors.index.json')
        says(folder, 'verify {IN}', 4, 'model.safetensors.index.json')
        for target in 'hf', 'torch_dist': says(folder, f'convert {{IN}} {{OUT}} --to {target}', 6, '--index ignore')
        becomes(folder, [to_hf + ' --index ignore'], lambda folder=folder: renamed(f'{folders}/{folder}'))

    # What a user reads who is about to load them.
    for folder, what in {'orig_mod_sharded': 'are wrapped', 'both_wrapped': 'are wrapped', 'consolidated_lacks_norm': 'model.norm.weight: is missing',
                         'index_ghost': 'mtp.fc.weight', 'index_stale': '8 of the 8 shards that it names are missing', 'noconf': 'no config.json',
                         'lora_in_model': 'names transformers does not load'}.items():
        says(folder, 'check {IN}', 4, 'problem: ', what)
    says('lora_fsdp.adapter', 'check {IN}', 4, '1 problem', 'merge it first')
    for folder in 'smollm3', 'ernie4_5', 'kimi', 'qwen3_ct_fp8', 'qwen3_moe_ct_fp8', 'qwen3_fp8_tensor', 'gpt_oss_mxfp4', 'internvl_qwen3', 'omni_full':
        says(folder, 'check {IN}', 0, 'no problems')
    says('dsv3_mtp', 'check {IN}', 0, 'mtp.safetensors')
    says('qwen3_moe_fp8_fused', 'check {IN}', 0, 'on the hub')
    says('qwen3_moe_fp8_fused', 'check {IN} --for transformers', 0, '!on the hub')
    says('qwen3_moe_fp8_fused', 'check {IN} --for sglang', 4, 'on the hub')
    says('thinker_trained', 'check {IN} --like {FOLDERS}/omni_full', 4, 'is in the original and not here')
    for folder in 'composer', 'verl_plain', 'nemo1': says(folder, 'check {IN}', 2, 'is not a Hugging Face folder')

    # Forced families.
    becomes('smollm3', both_ways, original('smollm3'))
    for family in 'llama', 'mistral': says('smollm3', f'convert {{IN}} {{OUT}} --to torch_dist --family {family}', 5)
    becomes('ernie4_5', both_ways, original('ernie4_5'))
    says('ministral_win', 'convert {IN} {OUT} --to torch_dist', 5, "model_type is 'ministral'", '!--family llama')
    for folder in 'ernie4_5', 'ministral_win':
        for family in 'llama', 'mistral': says(folder, f'convert {{IN}} {{OUT}} --to torch_dist --family {family}', 5)
    says('ministral_win', 'convert {IN} {OUT} --to torch_dist --family mistral', 5, 'layer_types')
    for folder in 'smollm3', 'ernie4_5', 'ministral_win':
        becomes(folder, [to_hf], original(folder))

    # Files that are on no list.
    says('kimi', to_hf, 0, 'tiktoken.model')
    says('dsv3_mtp', 'inspect {IN}', 0, 'mtp.safetensors')
    keeps = wild.keeps
    keeps('dsv3_mtp', [to_hf], 'dsv3_mtp')
    keeps('dsv3_mtp', both_ways, 'dsv3_mtp', but=['e_score_correction_bias'])
    keeps('kimi', [to_hf], 'kimi')
    keeps('kimi', [both_ways[0], both_ways[1] + ' --family kimi_k2'], 'kimi', but=['e_score_correction_bias'])
    for folder in 'internvl_qwen3', 'omni_full':  # the language part of a model of several
        keeps(folder, [both_ways[0], both_ways[1] + ' --fill-from {IN}'], folder)
    says('thinker_trained', to_hf + ' --fill-from {FOLDERS}/omni_full', 0, '49 tensors')

    # Quantised weights.
    for folder in 'qwen3_ct_fp8', 'qwen3_moe_ct_fp8', 'qwen3_fp8_tensor', 'qwen3_moe_fp8_fused':
        becomes(folder, [to_hf + ' --dtype bf16'], lambda folder=folder: dequantised(f'{folders}/{folder}'))
        becomes(folder, ['convert {IN} {OUT} --to torch_dist --dtype bf16', both_ways[1]], lambda folder=folder: dequantised(f'{folders}/{folder}'))
    becomes('ministral3_fp8_tensor', [to_hf + ' --dtype bf16'], lambda: dequantised(f'{folders}/ministral3_fp8_tensor'))
    for folder in 'gpt_oss_mxfp4', 'qwen3_fp8_e8m0', 'v4_style':
        becomes(folder, [to_hf + ' --dtype bf16'], lambda folder=folder: dequantised(f'{folders}/{folder}'))
    says('int8_experts', to_hf + ' --dtype bf16', 5)
    for folder in 'gpt_oss_mxfp4', 'qwen3_fp8_e8m0', 'v4_style', 'int8_experts': says(folder, to_hf, 0)

    # LoRA inside checkpoints.
    for folder in 'verl_lora', 'lora_fsdp', 'lora_in_model':
        says(folder, 'inspect {IN}', 0, 'LoRA')
        says(folder, to_hf + ' --config {FOLDERS}/lora_fsdp.want' * (folder == 'lora_fsdp'), 5, '--base-only')

    becomes('lora_in_model', [to_hf + ' --base-only'], lambda: base_of(f'{folders}/lora_in_model'))

    # Other programs' folders.
    a_config = ' --config {FOLDERS}/orig_mod'
    for folder, options in ('composer', a_config), ('fp32_pt', ''):
        becomes(folder, [to_hf + options], lambda folder=folder: of_torch_save(f'{folders}/{folder}', f'{folders}/orig_mod'))
    for folder, options in ('verl_plain', ''), ('nemorl_v1', a_config), ('extra_state', ''):
        says(folder, to_hf + options, 0)
    says('extra_state', 'verify {IN}', 0)
    for folder in 'verl_plain', 'nemorl_v1', 'fp32_pt', 'composer', 'nemo1':
        says(folder, 'inspect {IN}', 0)
        says(folder, 'verify {IN}', 0)
    says('zarr', 'inspect {IN}', 5, 'zarr')
    says('noconf', 'convert {IN} {OUT} --to torch_dist', 3, '--config')
    becomes('noconf', ['convert {IN} {OUT} --to hf --config {FOLDERS}/lora_fsdp.want'], lambda: logits_with('noconf', folders))
    says('mem_qwen3_moe', 'diff {IN} {FOLDERS}/qwen3_moe', 0, '135 equal')


def logits_with(folder, folders):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(f'{folders}/lora_fsdp.want'), dtype=torch.float32)
    model.load_state_dict(tensors_of(f'{folders}/{folder}'))
    return logits_of(model)


def base_of(folder):
    """The base model of a folder with LoRA in it."""
    tensors = {re.sub(r'^base_model\.model\.', '', name).replace('.base_layer', ''): t for name, t in tensors_of(folder).items() if 'lora_' not in name}
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    model.load_state_dict(tensors)
    return logits_of(model)


def main(ferry, folders, *names):
    logging.set_verbosity_error()
    wild = Wild(ferry, folders)
    all_cases(wild)
    failed = 0
    for i, (folder, what, check) in enumerate(wild.cases):
        if not os.path.exists(f'{folders}/{folder}') or (names and folder not in names): continue
        with tempfile.TemporaryDirectory() as work:
            try: problems = check(f'{work}/out')
            except Exception as error: problems = [f'{type(error).__name__}: {str(error)[:300]}']
        failed += bool(problems)
        print(f'{"FAILED" if problems else "ok":<8}{folder:<24}{what}' + ''.join(f'\n        {p}' for p in problems))
    print(f'{failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
