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

    # Forced families.
    for folder in 'smollm3', 'ernie4_5', 'ministral_win':
        says(folder, 'convert {IN} {OUT} --to torch_dist', 5, f"model_type is '{folder.removesuffix('_win')}'", '!--family llama')
        for family in 'llama', 'mistral': says(folder, f'convert {{IN}} {{OUT}} --to torch_dist --family {family}', 5)
    says('ministral_win', 'convert {IN} {OUT} --to torch_dist --family mistral', 5, 'layer_types')
    for folder in 'smollm3', 'ernie4_5', 'ministral_win':
        becomes(folder, [to_hf], original(folder))

    # Files that are on no list.
    says('kimi', to_hf, 0, 'tiktoken.model')
    says('dsv3_mtp', 'inspect {IN}', 0, 'mtp.safetensors')

    # Quantised weights.
    for folder in 'qwen3_ct_fp8', 'qwen3_moe_ct_fp8', 'qwen3_fp8_tensor', 'qwen3_moe_fp8_fused':
        says(folder, to_hf + ' --dtype bf16', 0)
    for folder in 'gpt_oss_mxfp4', 'qwen3_fp8_e8m0', 'v4_style', 'int8_experts':
        says(folder, to_hf + ' --dtype bf16', 5)
        says(folder, to_hf, 0)

    # LoRA inside checkpoints.
    for folder in 'verl_lora', 'lora_fsdp', 'lora_in_model':
        says(folder, 'inspect {IN}', 0, 'LoRA')
        says(folder, to_hf + ' --config {FOLDERS}/lora_fsdp.want' * (folder == 'lora_fsdp'), 5, '--base-only')

    # Other programs' folders.
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
