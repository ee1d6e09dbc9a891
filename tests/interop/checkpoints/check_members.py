"""Changes every member of config.json, one at a time, and sees that ferry never loses one in silence.

Usage: check_members.py FERRY [CASE ...] [--every N]
For every case of make_hf_names.py (with --every, each N-th of them, from another one each day of the year): each member that the class of transformers has takes other values.
Where the model's logits change with the same weights, `ferry convert --to torch_dist` must refuse the folder or write other arguments, and the folder that comes back
must give the changed logits. Prints a line a case and one for each member that is lost."""
import argparse, datetime, json, os, shutil, subprocess, sys, tempfile
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import torch
from make_hf_names import CASES
from tiny_models import make_model
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

# What other sizes would change, what only training or generation reads, what names the files.
NOT_TRIED = {'architectures', 'attention_dropout', 'attn_pdrop', 'bos_token_id', 'chunk_size_feed_forward', 'dtype', 'embd_pdrop', 'eos_token_id', 'hidden_size', 'id2label', 'initializer_range', 'is_decoder',
             'is_encoder_decoder', 'label2id', 'model_type', 'num_hidden_layers', 'output_attentions', 'output_hidden_states', 'output_router_logits', 'pad_token_id', 'problem_type', 'resid_pdrop', 'return_dict',
             'router_jitter_noise', 'tie_word_embeddings', 'transformers_version', 'use_cache', 'vocab_size', '_name_or_path', '_attn_implementation'}
TOKENS = torch.arange(1, 97).reshape(2, 48) % 240
ACTIVATIONS = ('silu', 'gelu', 'relu', 'gelu_pytorch_tanh')
OTHER_WORDS = ('softmax', 'sigmoid', 'greedy', 'noaux_tc')
CHANGED, SAME = 1e-5, 2e-5  # of the mean logit

def other_values(key, value):
    if isinstance(value, bool): return [not value]
    if isinstance(value, int): return [value * 2, value + 1, max(1, value // 2)]
    if isinstance(value, float): return [value * 2, value / 2]
    if value is None: return [True, 2, 0.5, 3.0]
    if isinstance(value, str): return [word for word in (ACTIVATIONS if 'act' in key else OTHER_WORDS) if word != value]
    if isinstance(value, list) and value: return [value[::-1], value[1:] + value[:1], [value[0]] * len(value), [value[-1]] * len(value)]
    if isinstance(value, dict) and 'rope_type' in value: return other_positions(value)
    if isinstance(value, dict): return [value | {name: other} for name, one in value.items() for other in other_values(name, one)]
    return []

def other_positions(value):
    fraction = {'partial_rotary_factor': 1.0 if value.get('partial_rotary_factor', 1.0) != 1 else 0.5}
    kinds = [{'rope_type': 'linear', 'factor': 4.0}, {'rope_type': 'dynamic', 'factor': 4.0}, {'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 16},
             {'rope_type': 'llama3', 'factor': 4.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 16}]
    return [value | {name: other} for name, one in value.items() if name != 'rope_type' for other in other_values(name, one)] + [value | change for change in [fraction, *kinds]]

def logits(folder):
    """None where the class refuses the configuration, or has other parameters with it."""
    try:
        model, found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager', output_loading_info=True)
        if found['missing_keys'] or found['unexpected_keys'] or found['mismatched_keys']: return None
        with torch.no_grad(): result = model.eval()(TOKENS).logits
    except Exception: return None  # whatever a class raises
    return result if torch.isfinite(result).all() else None

def check(ferry, case, work):
    """Returns (members whose values change the logits, those refused, those lost)."""
    base, changed, run, back = (os.path.join(work, name) for name in ('base', 'changed', 'run', 'back'))
    def call(*words):
        return subprocess.run([ferry, *words], capture_output=True, text=True)
    def convert(source, target, form):
        shutil.rmtree(target, ignore_errors=True)
        return call('convert', source, target, '--to', form)
    def arguments():
        return call('inspect', run, '--args').stdout
    make_model(base, case, torch.float32)
    written = json.load(open(os.path.join(base, 'config.json')))
    before = logits(base)
    scale = before.abs().mean()
    first = convert(base, run, 'torch_dist')
    if first.returncode: sys.exit(f'{case}: {first.stderr}')
    said = arguments()
    shutil.copytree(base, changed)
    seen, refused, lost = 0, 0, []
    for key, value in AutoConfig.from_pretrained(base).to_dict().items():
        for other in other_values(key, value) if key not in NOT_TRIED else []:
            json.dump(written | {key: other}, open(os.path.join(changed, 'config.json'), 'w'))
            now = logits(changed)
            if now is None or (now - before).abs().max() < CHANGED * scale: continue
            seen += 1
            if convert(changed, run, 'torch_dist').returncode:
                refused += 1
                continue
            if arguments() == said: problem = 'the same arguments'
            elif (result := convert(run, back, 'hf')).returncode: problem = result.stderr.strip()
            else:
                then = logits(back)
                problem = None if then is not None and (then - now).abs().max() < SAME * scale else 'other logits'
            if problem: lost.append(f'{key} = {other}: {problem}')
    return seen, refused, lost

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('ferry')
    parser.add_argument('cases', nargs='*')
    parser.add_argument('--every', type=int, default=1)
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    start = datetime.date.today().timetuple().tm_yday % options.every
    failed = False
    for case in options.cases or list(CASES)[start::options.every]:
        with tempfile.TemporaryDirectory() as work:
            seen, refused, lost = check(os.path.abspath(options.ferry), case, work)
        print(f'{case:28} {seen:3} change the logits, {refused:3} refused, {len(lost)} lost', *lost, sep='\n    ', flush=True)
        failed |= bool(lost)
    sys.exit(failed)

main()
