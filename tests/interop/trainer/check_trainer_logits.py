"""Compares the logits of the trainer's forward pass with those that others computed from the same weights, in fp32.

    check_trainer_logits.py WRITE_LOGITS PEERS [CASE ...]     PEERS/NAME (a run) and PEERS/NAME.npz (tokens, logits)

Megatron-LM computed those of PEERS, and transformers those of tiny models of each family, which are made here and loaded as they are (CASE: only these).
WRITE_LOGITS is tests/write_logits of a build, or write_logits_cuda, which computes on a GPU. The largest difference over the mean |logit| may be 8e-6;
3e-3 of Apertus, whose activation Megatron-LM computes in bf16. Where gpt-oss is trained until its clamps are active (g_hot_gptoss), changing weights by half
of a last digit moves transformers' own logits by 7e-4, which is its bar. Models that the trainer does not have must be refused, with the reason."""
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures'))
BARS = {'hot_apertus': 3e-3, 'swiss_apertus_tp2': 3e-3, 'g_hot_gptoss': 7e-4, 'g_hot_gptoss_tp2': 7e-4}
REASONS = {'qwen3next': 'a gated delta net', 'qwen3_next': 'a gated delta net', 'qwen3_5': 'a gated delta net', 'nemotron': 'a Mamba mixer', 'dsv32': 'sparse attention',
           'deepseek_v32': 'sparse attention', 'dsa': 'sparse attention', 'minimax_m2': 'a norm over all heads', 'olmoe': 'a norm over all heads',
           'exaone4': 'a norm of what attention', 'gemma3': 'a norm of what attention', 'gemma4': 'a norm of what attention', 'mla_qnorm': 'linear_q_proj.layer_norm_weight', 'lora_': 'adapter'}
WORDS = ['--mock-data', '--tokenizer-type', 'NullTokenizer', '--train-iters', '1', '--lr', '1e-3', '--transformer-impl', 'local', '--attention-dropout', '0',
         '--hidden-dropout', '0']
failed = []


def logits_of(work, tokens, words):
    """[sequences, positions, vocabulary], or why there are none."""
    tokens.astype(np.int32).tofile(os.path.join(work, 'tokens'))
    sequences, length = tokens.shape
    words = [*words, *WORDS, '--micro-batch-size', str(sequences), '--global-batch-size', str(sequences), '--seq-length', str(length)]
    run = subprocess.run([program, os.path.join(work, 'tokens'), os.path.join(work, 'logits'), *words], capture_output=True, text=True)
    if run.returncode: return ' '.join(run.stderr.split())
    return np.fromfile(os.path.join(work, 'logits'), np.float32).reshape(length, sequences, -1).swapaxes(0, 1)


def compare(name, found, expected):
    reason = next((text for part, text in REASONS.items() if part in name and name != 'g_lora_base'), None)
    if isinstance(found, str):
        good, text = reason is not None and reason in found, f'refused: {found[-200:]}'
    elif reason:
        good, text = False, f'not refused: {reason}'
    else:
        distance = np.abs(found - expected)[..., :250].max() / np.abs(expected).mean()
        good, text = distance <= BARS.get(name, 8e-6), f'{distance:.1e}'
    if not good: failed.append(name)
    print(f'{name:28} {text} {"ok" if good else "FAILED"}', flush=True)


def check_peers(peers):
    for name in sorted(n[:-4] for n in os.listdir(peers) if n.endswith('.npz')):
        file = np.load(os.path.join(peers, name + '.npz'))
        with tempfile.TemporaryDirectory() as work:
            words = ['--load', os.path.join(peers, name), '--use-checkpoint-args', '--finetune', '--vocab-size', '251' if 'apertus' in name else '250',
                     '--make-vocab-size-divisible-by', '32']
            compare(name, logits_of(work, file['tokens'], words), file['logits'])


def check_families(cases):
    import torch
    from make_hf_names import CASES
    from tiny_models import make_model
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for case in cases or CASES:
        with tempfile.TemporaryDirectory() as work:
            folder = os.path.join(work, 'model')
            make_model(folder, case, torch.float32)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager')
            torch.manual_seed(1)
            tokens = torch.randint(0, 250, (2, 48))
            with torch.no_grad(): expected = model(tokens).logits.numpy()[..., :250]
            found = logits_of(work, tokens.numpy(), ['--load', folder, '--vocab-size', '250', '--make-vocab-size-divisible-by', '2'])
            compare(case, found if isinstance(found, str) else found[..., :250], expected)


program, peers, *cases = sys.argv[1:]
if not cases: check_peers(peers)
check_families(cases)
sys.exit(1 if failed else 0)
