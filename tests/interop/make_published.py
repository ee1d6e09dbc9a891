"""Writes tests/fixtures/published_configs.json: config.json of well-known models as their makers published them, and beside each how many
elements transformers' own model of it has (buffers that are saved included, prediction layers not).   Usage: make_published.py [OUT.json]"""
import json, os, sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM

LLAMA3 = dict(factor=8.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192, rope_type='llama3')
YARN = dict(beta_fast=32, beta_slow=1, factor=40, original_max_position_embeddings=4096, type='yarn')

def llama(**others):
    return dict(architectures=['LlamaForCausalLM'], attention_bias=False, attention_dropout=0.0, hidden_act='silu', initializer_range=0.02, mlp_bias=False,
                model_type='llama', pretraining_tp=1, rms_norm_eps=1e-05, tie_word_embeddings=False, torch_dtype='bfloat16', use_cache=True) | others

def qwen(kind, name, **others):
    return dict(architectures=[name], attention_dropout=0.0, bos_token_id=151643, eos_token_id=151643, hidden_act='silu', initializer_range=0.02, model_type=kind,
                rms_norm_eps=1e-06, rope_theta=1000000.0, torch_dtype='bfloat16', use_cache=True, use_sliding_window=False) | others

def deepseek(kind, **others):
    return dict(architectures=[f'Deepseek{kind.upper()}ForCausalLM'], attention_bias=False, attention_dropout=0.0, aux_loss_alpha=0.001, ep_size=1, hidden_act='silu',
                initializer_range=0.02, kv_lora_rank=512, max_position_embeddings=163840, model_type='deepseek_' + kind, moe_layer_freq=1, pretraining_tp=1,
                qk_nope_head_dim=128, qk_rope_head_dim=64, rms_norm_eps=1e-06, rope_theta=10000, seq_aux=True, tie_word_embeddings=False, torch_dtype='bfloat16',
                use_cache=True, v_head_dim=128,
                auto_map=dict(AutoConfig='configuration_deepseek.DeepseekConfig', AutoModelForCausalLM='modeling_deepseek.DeepseekForCausalLM')) | others

CONFIGS = {
    'Llama-2-7b': llama(bos_token_id=1, eos_token_id=2, hidden_size=4096, intermediate_size=11008, max_position_embeddings=4096, num_attention_heads=32,
                        num_hidden_layers=32, num_key_value_heads=32, rope_scaling=None, torch_dtype='float16', vocab_size=32000),
    'Llama-3.1-8B': llama(bos_token_id=128000, eos_token_id=[128001, 128008, 128009], hidden_size=4096, intermediate_size=14336, max_position_embeddings=131072,
                          num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, rope_scaling=LLAMA3, rope_theta=500000.0, vocab_size=128256),
    'Llama-3.2-1B': llama(bos_token_id=128000, eos_token_id=128001, head_dim=64, hidden_size=2048, intermediate_size=8192, max_position_embeddings=131072,
                          num_attention_heads=32, num_hidden_layers=16, num_key_value_heads=8, rope_scaling=LLAMA3 | dict(factor=32.0), rope_theta=500000.0,
                          tie_word_embeddings=True, vocab_size=128256),
    'Mistral-7B-v0.1': dict(architectures=['MistralForCausalLM'], bos_token_id=1, eos_token_id=2, hidden_act='silu', hidden_size=4096, initializer_range=0.02,
                            intermediate_size=14336, max_position_embeddings=32768, model_type='mistral', num_attention_heads=32, num_hidden_layers=32,
                            num_key_value_heads=8, rms_norm_eps=1e-05, rope_theta=10000.0, sliding_window=4096, tie_word_embeddings=False, torch_dtype='bfloat16',
                            use_cache=True, vocab_size=32000),
    'Mixtral-8x7B-v0.1': dict(architectures=['MixtralForCausalLM'], attention_dropout=0.0, bos_token_id=1, eos_token_id=2, hidden_act='silu', hidden_size=4096,
                              initializer_range=0.02, intermediate_size=14336, max_position_embeddings=32768, model_type='mixtral', num_attention_heads=32,
                              num_experts_per_tok=2, num_hidden_layers=32, num_key_value_heads=8, num_local_experts=8, output_router_logits=False, rms_norm_eps=1e-05,
                              rope_theta=1000000.0, router_aux_loss_coef=0.02, sliding_window=None, tie_word_embeddings=False, torch_dtype='bfloat16', use_cache=True,
                              vocab_size=32000),
    'Qwen2.5-7B': qwen('qwen2', 'Qwen2ForCausalLM', hidden_size=3584, intermediate_size=18944, max_position_embeddings=131072, max_window_layers=28,
                       num_attention_heads=28, num_hidden_layers=28, num_key_value_heads=4, sliding_window=131072, tie_word_embeddings=False, use_mrope=False,
                       vocab_size=152064),
    'Qwen2.5-0.5B': qwen('qwen2', 'Qwen2ForCausalLM', hidden_size=896, intermediate_size=4864, max_position_embeddings=32768, max_window_layers=24,
                         num_attention_heads=14, num_hidden_layers=24, num_key_value_heads=2, sliding_window=32768, tie_word_embeddings=True, use_mrope=False,
                         vocab_size=151936),
    'Qwen1.5-MoE-A2.7B': qwen('qwen2_moe', 'Qwen2MoeForCausalLM', decoder_sparse_step=1, hidden_size=2048, intermediate_size=5632, max_position_embeddings=8192,
                              max_window_layers=21, moe_intermediate_size=1408, norm_topk_prob=False, num_attention_heads=16, num_experts=60,
                              num_experts_per_tok=4, num_hidden_layers=24, num_key_value_heads=16, output_router_logits=False, router_aux_loss_coef=0.001,
                              shared_expert_intermediate_size=5632, sliding_window=32768, tie_word_embeddings=False, vocab_size=151936),
    'Qwen3-8B': qwen('qwen3', 'Qwen3ForCausalLM', attention_bias=False, head_dim=128, hidden_size=4096, intermediate_size=12288, max_position_embeddings=40960,
                     max_window_layers=36, num_attention_heads=32, num_hidden_layers=36, num_key_value_heads=8, rope_scaling=None, sliding_window=None,
                     tie_word_embeddings=False, vocab_size=151936),
    'Qwen3-30B-A3B': qwen('qwen3_moe', 'Qwen3MoeForCausalLM', attention_bias=False, decoder_sparse_step=1, head_dim=128, hidden_size=2048, intermediate_size=6144,
                          max_position_embeddings=40960, max_window_layers=48, mlp_only_layers=[], moe_intermediate_size=768, norm_topk_prob=True,
                          num_attention_heads=32, num_experts=128, num_experts_per_tok=8, num_hidden_layers=48, num_key_value_heads=4, output_router_logits=False,
                          rope_scaling=None, router_aux_loss_coef=0.001, sliding_window=None, tie_word_embeddings=False, vocab_size=151936),
    'gpt2': dict(activation_function='gelu_new', architectures=['GPT2LMHeadModel'], attn_pdrop=0.1, bos_token_id=50256, embd_pdrop=0.1, eos_token_id=50256,
                 initializer_range=0.02, layer_norm_epsilon=1e-05, model_type='gpt2', n_ctx=1024, n_embd=768, n_head=12, n_layer=12, n_positions=1024,
                 resid_pdrop=0.1, summary_activation=None, summary_first_dropout=0.1, summary_proj_to_labels=True, summary_type='cls_index',
                 summary_use_proj=True, task_specific_params={'text-generation': dict(do_sample=True, max_length=50)}, vocab_size=50257),
    'DeepSeek-V2-Lite': deepseek('v2', bos_token_id=100000, eos_token_id=100001, first_k_dense_replace=1, hidden_size=2048, intermediate_size=10944,
                                 moe_intermediate_size=1408, n_group=1, n_routed_experts=64, n_shared_experts=2, norm_topk_prob=False, num_attention_heads=16,
                                 num_experts_per_tok=6, num_hidden_layers=27, num_key_value_heads=16, q_lora_rank=None,
                                 rope_scaling=YARN | dict(mscale=0.707, mscale_all_dim=0.707), routed_scaling_factor=1.0, scoring_func='softmax', topk_group=1,
                                 topk_method='greedy', vocab_size=102400),
    'DeepSeek-V2': deepseek('v2', bos_token_id=100000, eos_token_id=100001, first_k_dense_replace=1, hidden_size=5120, intermediate_size=12288,
                            moe_intermediate_size=1536, n_group=8, n_routed_experts=160, n_shared_experts=2, norm_topk_prob=False, num_attention_heads=128,
                            num_experts_per_tok=6, num_hidden_layers=60, num_key_value_heads=128, q_lora_rank=1536,
                            rope_scaling=YARN | dict(mscale=0.707, mscale_all_dim=0.707), routed_scaling_factor=16.0, scoring_func='softmax', topk_group=3,
                            topk_method='group_limited_greedy', vocab_size=102400),
    'DeepSeek-V3': deepseek('v3', bos_token_id=0, eos_token_id=1, first_k_dense_replace=3, hidden_size=7168, intermediate_size=18432, moe_intermediate_size=2048,
                            n_group=8, n_routed_experts=256, n_shared_experts=1, norm_topk_prob=True, num_attention_heads=128, num_experts_per_tok=8,
                            num_hidden_layers=61, num_key_value_heads=128, num_nextn_predict_layers=1, q_lora_rank=1536,
                            quantization_config=dict(activation_scheme='dynamic', fmt='e4m3', quant_method='fp8', weight_block_size=[128, 128]),
                            rope_scaling=YARN | dict(mscale=1.0, mscale_all_dim=1.0), routed_scaling_factor=2.5, scoring_func='sigmoid', topk_group=4,
                            topk_method='noaux_tc', vocab_size=129280),
    'Apertus-8B-2509': dict(architectures=['ApertusForCausalLM'], attention_bias=False, attention_dropout=0.0, bos_token_id=1, dtype='bfloat16', eos_token_id=2,
                            hidden_act='xielu', hidden_dropout=0.0, hidden_size=4096, initializer_range=0.02, intermediate_size=21504, max_position_embeddings=65536,
                            mlp_bias=False, model_type='apertus', num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, pad_token_id=3,
                            post_norm=False, qk_norm=True, rms_norm_eps=1e-05,
                            rope_scaling=dict(factor=8.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192, rope_type='llama3',
                                              type='llama3'), rope_theta=12000000, tie_word_embeddings=False, use_cache=True, vocab_size=131072),
}

def elements(config):
    config = {k: v for k, v in config.items() if k not in ('auto_map', 'quantization_config')}
    with torch.device('meta'): model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop('model_type'), **config))
    tied = model.config.tie_word_embeddings
    return sum(t.numel() for n, t in model.state_dict().items() if not (tied and n == 'lm_head.weight'))

def main(out):
    with open(out, 'w') as file:
        json.dump({name: dict(config=config, elements=elements(config)) for name, config in CONFIGS.items()}, file, indent=1, sort_keys=True)
        file.write('\n')

if __name__ == '__main__':
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures/published_configs.json'))
