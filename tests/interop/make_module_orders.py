"""Writes tests/fixtures/megatron_modules/orders.json: the parameters of GPT models in the order in which Megatron Core's
modules register them (named_parameters()), with their shapes. Needs megatron-core (0.16.1 was used) and runs on a CPU, one rank.

    make_module_orders.py OUT.json"""
import json
import os
import sys

import torch
import torch.distributed as dist

os.environ.update(MASTER_ADDR='localhost', MASTER_PORT='29611', RANK='0', WORLD_SIZE='1')
dist.init_process_group('gloo', rank=0, world_size=1)
torch.cuda.current_device = lambda: torch.device('cpu')

from megatron.core import parallel_state
from megatron.core.models.gpt import gpt_layer_specs as specs
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer import dot_product_attention, multi_latent_attention
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

# Local attention takes no channel counts; its parameters do not depend on them.
plain_init = dot_product_attention.DotProductAttention.__init__


def init(self, *args, k_channels=None, v_channels=None, **keywords):
    plain_init(self, *args, **keywords)


dot_product_attention.DotProductAttention.__init__ = init
multi_latent_attention.HAVE_TE = False  # set where its classes are missing, too

SILU = torch.nn.functional.silu
MOE = {'num_moe_experts': 2, 'moe_ffn_hidden_size': 24, 'ffn_hidden_size': 40, 'gated_linear_unit': True, 'activation_func': SILU,
       'add_bias_linear': False}
MLA = {'multi_latent_attention': True, 'kv_lora_rank': 8, 'qk_head_dim': 8, 'qk_pos_emb_head_dim': 4, 'v_head_dim': 8,
       'qk_layernorm': True, 'normalization': 'RMSNorm', 'rope_type': 'rope'}
CASES = {
    'gpt2': (TransformerConfig, {}, {'position_embedding_type': 'learned_absolute', 'share_embeddings_and_output_weights': True}),
    'llama': (TransformerConfig, {'gated_linear_unit': True, 'activation_func': SILU, 'add_bias_linear': False, 'num_query_groups': 2,
                                  'normalization': 'RMSNorm'}, {}),
    'qwen3': (TransformerConfig, {'gated_linear_unit': True, 'activation_func': SILU, 'add_bias_linear': False, 'add_qkv_bias': True,
                                  'num_query_groups': 2, 'qk_layernorm': True, 'normalization': 'RMSNorm'}, {}),
    'moe_shared_gate': (TransformerConfig, {**MOE, 'moe_shared_expert_intermediate_size': 24, 'moe_shared_expert_gate': True}, {}),
    'moe_biases_sink': (TransformerConfig, {**MOE, 'add_bias_linear': True, 'softmax_type': 'learnable'}, {}),
    'deepseek': (MLATransformerConfig, {**MOE, **MLA, 'q_lora_rank': 12, 'moe_layer_freq': [0, 1], 'moe_router_enable_expert_bias': True,
                                        'moe_router_score_function': 'sigmoid', 'moe_shared_expert_intermediate_size': 24}, {}),
    'mla_without_q_lora': (MLATransformerConfig, {**MLA, 'q_lora_rank': None, 'gated_linear_unit': True, 'activation_func': SILU, 'add_bias_linear': False}, {}),
    'mtp': (TransformerConfig, {**MOE, 'mtp_num_layers': 2, 'num_query_groups': 2}, {}),
}


def parameters(kind, config, model):
    config = kind(num_layers=2, hidden_size=32, num_attention_heads=4, use_cpu_initialization=True, **config)
    spec = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=False)
    mtp = specs.get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False) if config.mtp_num_layers else None
    gpt = GPTModel(config, spec, vocab_size=64, max_sequence_length=16, mtp_block_spec=mtp,
                   **{'position_embedding_type': 'rope', **model})
    named = {name: list(p.shape) for name, p in gpt.named_parameters()}
    assert [key for key in gpt.state_dict() if key in named] == list(named)
    return list(named.items())


if __name__ == '__main__':
    parallel_state.initialize_model_parallel(1, 1)
    result = {}
    for name, (kind, config, model) in CASES.items():
        result[name] = {'gated': config.get('gated_linear_unit', False), 'experts': config.get('num_moe_experts', 0),
                        'mtp_layers': config.get('mtp_num_layers', 0), 'stacked': not isinstance(config.get('moe_layer_freq'), list),
                        'latent_q': config.get('q_lora_rank') or 0,
                        'latent_kv': config.get('kv_lora_rank', 0) + config.get('qk_pos_emb_head_dim', 0),
                        'tied': model.get('share_embeddings_and_output_weights', False),
                        'parameters': parameters(kind, config, model)}
    with open(sys.argv[1], 'w') as f:
        f.write('{\n' + ',\n'.join(f'{json.dumps(k)}: {json.dumps(v)}' for k, v in result.items()) + '\n}\n')
