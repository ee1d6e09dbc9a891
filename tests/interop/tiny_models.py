"""Tiny random models of transformers, one for each case of make_hf_names.py; norms and biases are random too."""
import torch
from make_hf_names import BASE_CONFIG, CASES, merged
from transformers import AutoConfig, AutoModelForCausalLM

# Megatron ranks groups of experts by the sum of as many scores as experts are chosen in each, deepseek_v2 by the best one.
THE_SAME_GROUPS = {'deepseek_v2_plain_queries': dict(num_experts_per_tok=1)}

def make_model(folder, case, dtype=torch.bfloat16):
    """Saves it; returns whether it has experts."""
    model_type, _, extra = CASES[case]
    base = dict(vocab_size=250, bos_token_id=None, eos_token_id=None) if model_type == 'gpt2' else BASE_CONFIG
    torch.manual_seed(sum(map(ord, case)))
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **merged(base, extra, THE_SAME_GROUPS.get(case, {}))), dtype=dtype)
    with torch.no_grad():
        for name, tensor in sorted(model.state_dict().items()):
            if not tensor.is_floating_point() or name.endswith(('act_fn.beta', 'act_fn.eps')): continue
            norm = ('norm' in name or 'ln_' in name) and name.endswith('weight')
            tensor.copy_(torch.randn(tensor.shape) * (0.3 if norm or tensor.dim() == 1 else 0.08) + (1 if norm else 0))
    model.save_pretrained(folder)
    return any('experts' in name for name in model.state_dict())
