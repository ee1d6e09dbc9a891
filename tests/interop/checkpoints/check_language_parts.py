"""Takes the language models of tiny random vision models of transformers to Megatron-LM with ferry, and back.

Usage: check_language_parts.py FERRY [TYPE ...]
For each type of MODELS, saved by transformers:
  back     the language model alone goes to a run, and comes back into the folder that it came from (--fill-from): the same bytes in every tensor, of the vision model too
  logits   the run as a Hugging Face model by itself computes what the vision model computes of tokens alone, to 1e-6 of the mean size
Prints a line each; fails when anything differs."""
import os, sys, tempfile
import numpy as np, torch
from checkpoints import call
from check_import import raw, tensors_of
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging

TEXT = dict(vocab_size=250, hidden_size=32, intermediate_size=88, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
            bos_token_id=None, eos_token_id=None, pad_token_id=None)
MIXTURE = dict(tie_word_embeddings=False, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
MROPE = dict(rope_type='default', rope_theta=1e6, mrope_section=[1, 1, 2])
LINEAR = dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4,
              layer_types=['linear_attention', 'linear_attention', 'full_attention'],
              rope_parameters=dict(rope_type='default', rope_theta=1e6, partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True))
QWEN3_5_VISION = dict(depth=1, hidden_size=16, intermediate_size=32, num_heads=2, out_hidden_size=32)
QWEN3_VISION = dict(depth=1, hidden_size=16, intermediate_size=32, num_heads=2, out_hidden_size=32, deepstack_visual_indexes=[0])
LATENT = dict(num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, first_k_dense_replace=1, n_routed_experts=4,
              n_shared_experts=1, moe_intermediate_size=24, num_experts_per_tok=2, n_group=1, topk_group=1, num_nextn_predict_layers=0, rope_parameters=dict(rope_type='default', rope_theta=1e4))
MODELS = {  # type: (text_config, vision_config, other members)
    'qwen2_5_vl': ({**TEXT, 'rope_parameters': MROPE}, dict(depth=1, hidden_size=16, intermediate_size=32, num_heads=2, out_hidden_size=32, fullatt_block_indexes=[0]), {}),
    'qwen3_vl': ({**TEXT, 'head_dim': 8, 'rope_parameters': MROPE}, QWEN3_VISION, {}),
    'qwen3_vl_moe': ({**TEXT, **MIXTURE, 'head_dim': 8, 'rope_parameters': MROPE}, QWEN3_VISION, {}),
    'qwen3_5': ({**TEXT, **LINEAR}, QWEN3_5_VISION, {}),
    'qwen3_5_moe': ({**TEXT, **MIXTURE, **LINEAR, 'shared_expert_intermediate_size': 24}, QWEN3_5_VISION, {}),
    'gemma4_unified': (dict(TEXT, tie_word_embeddings=False, head_dim=8, global_head_dim=16, sliding_window=16, layer_types=['sliding_attention', 'sliding_attention', 'full_attention'],
                            num_kv_shared_layers=0, pad_token_id=0), dict(hidden_size=16), {}),
    'mistral3': (dict(TEXT, model_type='ministral3', head_dim=8, rope_parameters=dict(rope_type='yarn', rope_theta=1e6, factor=16.0, original_max_position_embeddings=16384, beta_fast=32.0,
                                                                                       beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.0)),
                 dict(model_type='pixtral', hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14), {}),
    'gemma3': (dict(TEXT, head_dim=8, query_pre_attn_scalar=8, sliding_window=16, sliding_window_pattern=2),
               dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14), dict(mm_tokens_per_image=4)),
    'gemma4': (dict(TEXT, tie_word_embeddings=False, head_dim=8, global_head_dim=16, sliding_window=16, layer_types=['sliding_attention', 'sliding_attention', 'full_attention'], hidden_size_per_layer_input=8,
                    vocab_size_per_layer_input=250, num_kv_shared_layers=0, pad_token_id=0),
               dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8), {}),
    'kimi_k25': (dict(TEXT, **LATENT, model_type='deepseek_v3', rms_norm_eps=1e-6), dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2), {}),
}

FAMILIES = {'gemma4_unified': ['--family', 'gemma4_text']}  # of language models of another type

def make(model_type, folder):
    text, vision, more = MODELS[model_type]
    torch.manual_seed(7)
    config = AutoConfig.for_model(model_type, text_config=text, vision_config=vision, tie_word_embeddings=False, **more)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, tensor in sorted(model.state_dict().items()):
            if not tensor.is_floating_point(): continue
            norm = 'norm' in name and name.endswith('weight')
            tensor.copy_(torch.randn(tensor.shape) * (0.3 if norm or tensor.dim() == 1 else 0.08) + (1 if norm else 0))
    model.save_pretrained(folder)
    if model_type != 'kimi_k25': return
    # transformers 5.23 names the layers "blocks" where the hub has "layers".
    path = os.path.join(folder, 'model.safetensors')
    save_file({name.replace('language_model.model.blocks.', 'language_model.model.layers.'): tensor for name, tensor in tensors_of(folder).items()}, path, {'format': 'pt'})

def logits(of_class, folder, tokens):
    model = of_class.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager').eval()
    with torch.no_grad(): return model(input_ids=tokens).logits.numpy()

def problems(ferry, model_type, work):
    hf, run, back, alone = (os.path.join(work, n) for n in ('hf', 'run', 'back', 'alone'))
    make(model_type, hf)
    call(ferry, 'convert', hf, run, '--to', 'torch_dist', '--tp', '2', *FAMILIES.get(model_type, []))
    call(ferry, 'convert', run, back, '--to', 'hf', '--fill-from', hf)
    before, after = tensors_of(hf), tensors_of(back)
    differ = [n for n in before.keys() | after.keys() if n not in before or n not in after or raw(before[n]) != raw(after[n])]
    if differ: yield f'back: {sorted(differ)[:3]}'
    call(ferry, 'convert', run, alone, '--to', 'hf')
    tokens = torch.from_numpy(np.random.RandomState(0).randint(0, 250, (1, 24)))
    expected = logits(AutoModelForImageTextToText, hf, tokens)
    distance = np.abs(logits(AutoModelForCausalLM, alone, tokens) - expected).max() / np.abs(expected).mean()
    if not distance <= 1e-6: yield f'logits: {distance:.1e}'

def main(ferry, types):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    failed = 0
    for model_type in types or MODELS:
        with tempfile.TemporaryDirectory() as work: found = list(problems(ferry, model_type, work))
        failed += bool(found)
        print(f'{model_type:16} {"; ".join(found) or "ok"}', flush=True)
    return 1 if failed else 0

if __name__ == '__main__':
    sys.exit(main(sys.argv[1], sys.argv[2:]))
