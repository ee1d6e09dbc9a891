"""Writes tests/fixtures/hf_names/CASE.json: what transformers itself saves for a tiny model of each family.

Each file holds `args` (Megatron's arguments for the same model), `config` (transformers' own config.json) and `tensors`
(name -> shape) of the files that save_pretrained wrote; `parameters`, the names of the model in memory, in the order in which an optimizer counts them, and
`undecayed`, those of them that Trainer does not decay. The C++ tests build the Megatron side from the arguments and demand the
same names, shapes and config values.   Usage: make_hf_names.py [OUT_DIR]"""
import json, os, struct, sys, tempfile
import torch, transformers
from transformers import AutoConfig, AutoModelForCausalLM, Trainer

BASE_ARGS = dict(
    num_layers=4, hidden_size=32, num_attention_heads=4, group_query_attention=True, num_query_groups=2, kv_channels=8,
    ffn_hidden_size=88, max_position_embeddings=128, normalization='RMSNorm', layernorm_epsilon=1e-5, add_bias_linear=False,
    add_qkv_bias=False, qk_layernorm=False, swiglu=True, untie_embeddings_and_output_weights=True,
    position_embedding_type='rope', rotary_base=500000, rotary_percent=1.0, init_method_std=0.02, attention_dropout=0.0,
    hidden_dropout=0.0, vocab_size=250, padded_vocab_size=256, tokenizer_type='NullTokenizer', null_tokenizer_eod_id=None,
    make_vocab_size_divisible_by=128, tensor_model_parallel_size=1, multi_latent_attention=False, num_experts=None)
BASE_CONFIG = dict(
    vocab_size=250, hidden_size=32, intermediate_size=88, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, rms_norm_eps=1e-5, rope_theta=500000.0, bos_token_id=None, eos_token_id=None, pad_token_id=None)
MOE_ARGS = dict(num_experts=4, moe_router_topk=2, moe_ffn_hidden_size=48, moe_layer_freq=1, moe_router_score_function='softmax',
                moe_router_pre_softmax=False, moe_aux_loss_coeff=0.01)
MLA_ARGS = dict(
    multi_latent_attention=True, group_query_attention=False, qk_layernorm=True, q_lora_rank=24, kv_lora_rank=16, qk_head_dim=16,
    qk_pos_emb_head_dim=8, v_head_dim=12, rotary_scaling_factor=1.0, mscale=1.0, mscale_all_dim=0.0, layernorm_epsilon=1e-6,
    rotary_base=10000, moe_layer_freq=[0, 1, 1, 1], moe_shared_expert_intermediate_size=96)
MLA_CONFIG = dict(
    num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, rms_norm_eps=1e-6,
    rope_theta=10000.0, first_k_dense_replace=1, n_routed_experts=4, n_shared_experts=2, moe_intermediate_size=48, num_experts_per_tok=2)
LLAMA3 = dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
YARN = dict(rope_type='yarn', factor=40.0, original_max_position_embeddings=4096, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)

def merged(*parts): return {k: v for p in parts for k, v in p.items()}
SHARED_GATE = dict(moe_shared_expert_intermediate_size=96, moe_shared_expert_gate=True)
QK = dict(qk_layernorm=True)
CASES = {  # name: (model_type, Megatron args beyond the base, config beyond the base)
    'llama': ('llama', {}, dict(head_dim=8)),
    'llama_tied_wide_heads': ('llama', dict(untie_embeddings_and_output_weights=False, kv_channels=16, use_rope_scaling=True, rope_scaling_factor=8.0),
                              dict(tie_word_embeddings=True, head_dim=16, rope_scaling=LLAMA3)),
    'llama_biases': ('llama', dict(add_bias_linear=True, add_qkv_bias=True, rotary_seq_len_interpolation_factor=2.0),
                     dict(head_dim=8, attention_bias=True, mlp_bias=True, rope_scaling=dict(rope_type='linear', factor=2.0))),
    'mistral': ('mistral', dict(window_size=[31, 0]), dict(head_dim=8, sliding_window=32)),
    'mixtral': ('mixtral', MOE_ARGS, dict(head_dim=8, intermediate_size=48, num_local_experts=4, num_experts_per_tok=2, router_aux_loss_coef=0.01)),
    'qwen2': ('qwen2', dict(add_qkv_bias=True, untie_embeddings_and_output_weights=False), dict(tie_word_embeddings=True)),
    'qwen2_windows': ('qwen2', dict(add_qkv_bias=True, window_size=[31, 0], window_attn_skip_freq=[0, 0, 1, 1]),
                      dict(use_sliding_window=True, sliding_window=32, max_window_layers=2)),
    'qwen2_moe': ('qwen2_moe', merged(MOE_ARGS, SHARED_GATE, dict(add_qkv_bias=True, moe_router_pre_softmax=True)),
                  dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=96,
                       norm_topk_prob=False, router_aux_loss_coef=0.01)),
    'qwen2_moe_mixed': ('qwen2_moe', merged(MOE_ARGS, SHARED_GATE, dict(add_qkv_bias=True, moe_layer_freq=[0, 1, 0, 1])),
                        dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=96,
                             norm_topk_prob=True, router_aux_loss_coef=0.01, mlp_only_layers=[0, 2])),
    'qwen3': ('qwen3', QK, dict(head_dim=8)),
    'qwen3_moe': ('qwen3_moe', merged(MOE_ARGS, QK), dict(head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48,
                                                          norm_topk_prob=True, router_aux_loss_coef=0.01)),
    'gpt2': ('gpt2', dict(normalization='LayerNorm', add_bias_linear=True, add_qkv_bias=True, swiglu=False, bias_gelu_fusion=True,
                          group_query_attention=False, position_embedding_type='learned_absolute', untie_embeddings_and_output_weights=False),
             dict(n_embd=32, n_layer=4, n_head=4, n_inner=88, n_positions=128, activation_function='gelu_new', attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)),
    'deepseek_v2': ('deepseek_v2', merged(MOE_ARGS, MLA_ARGS, dict(moe_router_pre_softmax=True)), merged(MLA_CONFIG, dict(topk_method='greedy', n_group=1, topk_group=1))),
    'deepseek_v2_plain_queries': ('deepseek_v2', merged(MOE_ARGS, MLA_ARGS, dict(moe_router_pre_softmax=True, q_lora_rank=None, moe_router_num_groups=2, moe_router_group_topk=1,
                                                                                 rotary_scaling_factor=40.0, mscale_all_dim=1.0)),
                                  merged(MLA_CONFIG, dict(q_lora_rank=None, topk_method='group_limited_greedy', n_group=2, topk_group=1, rope_scaling=YARN))),
    'deepseek_v3': ('deepseek_v3', merged(MOE_ARGS, MLA_ARGS, dict(moe_router_score_function='sigmoid', moe_router_pre_softmax=True, moe_router_enable_expert_bias=True,
                                                                   moe_router_topk_scaling_factor=2.5)),
                    merged(MLA_CONFIG, dict(n_group=1, topk_group=1, num_nextn_predict_layers=0))),
    'deepseek_v3_no_bias': ('deepseek_v3', merged(MOE_ARGS, MLA_ARGS, dict(moe_router_score_function='sigmoid', q_lora_rank=None, moe_router_topk_scaling_factor=1.0)),
                            merged(MLA_CONFIG, dict(q_lora_rank=None, n_group=1, topk_group=1, num_nextn_predict_layers=0, routed_scaling_factor=1.0))),
    'apertus': ('apertus', merged(QK, dict(swiglu=False, xielu=True)), dict(rope_parameters=dict(rope_type='default', rope_theta=500000.0))),
}

def header(path):
    with open(path, 'rb') as f:
        return json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))

def main(out):
    os.makedirs(out, exist_ok=True)
    for case, (model_type, args, extra) in CASES.items():
        base = {} if model_type == 'gpt2' else BASE_CONFIG
        if model_type == 'gpt2': extra = merged(extra, dict(vocab_size=250, bos_token_id=None, eos_token_id=None))
        torch.manual_seed(0)
        config = AutoConfig.for_model(model_type, **merged(base, extra))
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            tensors = {}
            for name in sorted(os.listdir(folder)):
                if name.endswith('.safetensors'):
                    tensors.update({k: v['shape'] for k, v in header(os.path.join(folder, name)).items() if k != '__metadata__'})
            config = json.load(open(os.path.join(folder, 'config.json')))
        with open(os.path.join(out, case + '.json'), 'w') as f:
            names, decayed = [name for name, _ in model.named_parameters()], set(Trainer.get_decay_parameter_names(None, model))
            json.dump(dict(transformers=transformers.__version__, args=merged(BASE_ARGS, args), config=config, tensors=tensors, parameters=names,
                           undecayed=[name for name in names if name not in decayed]), f, indent=1, sort_keys=True)
            f.write('\n')
        print(case, len(tensors))

if __name__ == '__main__':
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures/hf_names'))
