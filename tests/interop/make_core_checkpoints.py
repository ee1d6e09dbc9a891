"""Writes small checkpoints and their logits with Megatron Core itself (pip install megatron-core), on the CPU.

For what no training run at hand covers: windows, shared experts with a gate, latent attention without query compression, YaRN, grouped
routing, multi-token prediction layers, per-expert keys. Every parameter is random, norms and biases too. OUT_DIR/CASE is a run folder,
OUT_DIR/CASE.npz its `tokens` and fp32 `logits` (`further_logits`: those of prediction layers), as check_logits.py wants them.   Usage: make_core_checkpoints.py OUT_DIR [CASE ...]"""
import argparse, contextlib, copy, dataclasses, functools, os, sys, tempfile
import numpy as np, torch, torch.nn.functional as F
from make_hf_names import BASE_ARGS, MLA_ARGS, MOE_ARGS, SHARED_GATE, QK, merged

torch.cuda.current_device = lambda: torch.device('cpu')  # Megatron Core asks for it even where the device does not matter
torch.Tensor.cuda = lambda self, *a, **k: self
torch.nn.Module.cuda = lambda self, *a, **k: self
for _name in ('ones', 'zeros', 'empty', 'tensor', 'arange'):
    def _on_cpu(*a, _make=getattr(torch, _name), **k): return _make(*a, **{n: v for n, v in k.items() if n != 'device'})
    setattr(torch, _name, _on_cpu)

class _NoStream:
    def __init__(self, *a, **k): pass
    def __getattr__(self, name): return lambda *a, **k: None
torch.cuda.Stream = torch.cuda.Event = _NoStream
torch.cuda.current_stream = lambda *a, **k: _NoStream()
torch.cuda.synchronize = lambda *a, **k: None
torch.cuda.stream = lambda *a, **k: contextlib.nullcontext()

from megatron.core import parallel_state, dist_checkpointing
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from megatron.core.transformer import TransformerConfig, MLATransformerConfig
from megatron.core.transformer.dot_product_attention import DotProductAttention

from megatron.core.transformer import multi_latent_attention
from megatron.core.transformer.moe import moe_utils
if not hasattr(moe_utils, 'te_general_gemm'): moe_utils.te_general_gemm = None
if not isinstance(multi_latent_attention.TELinear, type): multi_latent_attention.TELinear = type('TELinear', (), {})

CudaRNGStatesTracker.fork = lambda self, *a, **k: contextlib.nullcontext()
def _init_attention(self, config, *a, k_channels=None, v_channels=None, _init=DotProductAttention.__init__, **k):
    if v_channels:  # the plain attention knows one width only; that of the values is the one it needs
        config = copy.copy(config)
        config.kv_channels = v_channels
    _init(self, config, *a, **k)
DotProductAttention.__init__ = _init_attention

SMALL = dict(num_layers=3)
MOE = merged(SMALL, MOE_ARGS)
V2 = merged(MOE, MLA_ARGS, dict(moe_router_pre_softmax=True, moe_layer_freq=[0, 1, 1]))
V3 = merged(V2, dict(moe_router_score_function='sigmoid', moe_router_enable_expert_bias=True, moe_router_topk_scaling_factor=2.5))
YARN = dict(rotary_scaling_factor=4.0, mscale=0.7, mscale_all_dim=0.7)
QWEN2_MOE = merged(MOE, SHARED_GATE, dict(add_qkv_bias=True))
CASES = {
    'llama3_scaling': dict(use_rope_scaling=True, rope_scaling_factor=8.0, kv_channels=16, untie_embeddings_and_output_weights=False),
    'llama_biases': dict(add_bias_linear=True, add_qkv_bias=True, rotary_seq_len_interpolation_factor=2.0),
    'mistral': merged(SMALL, dict(window_size=[11, 0])),
    'qwen2_windows': merged(SMALL, dict(add_qkv_bias=True, window_size=[11, 0], window_attn_skip_freq=[0, 1, 1])),
    'qwen3_moe_mixed': merged(MOE, QK, dict(moe_layer_freq=[1, 0, 1])),
    'qwen2_moe': merged(QWEN2_MOE, dict(moe_router_pre_softmax=True)),
    'qwen2_moe_mixed': merged(QWEN2_MOE, dict(moe_layer_freq=[1, 0, 1])),
    'deepseek_v2': V2,
    'deepseek_v2_plain_queries': merged(V2, YARN, dict(q_lora_rank=None, mscale_all_dim=1.0, mscale=1.0, moe_router_num_groups=2, moe_router_group_topk=1,
                                                       moe_router_topk=1, moe_router_topk_scaling_factor=1.5)),
    'deepseek_v3_mtp': merged(V3, YARN, dict(mtp_num_layers=2, moe_router_num_groups=2, moe_router_group_topk=1)),
    'deepseek_v3_no_bias': merged(V3, dict(moe_router_enable_expert_bias=False, rotary_scaling_factor=40.0, mscale=1.3, q_lora_rank=None)),
    'gpt2_exact_gelu': dict(normalization='LayerNorm', add_bias_linear=True, add_qkv_bias=True, swiglu=False, bias_gelu_fusion=False, group_query_attention=False,
                            position_embedding_type='learned_absolute'),
}
SINGLETON = {'deepseek_v2_plain_queries', 'qwen2_moe_mixed'}  # a key for every layer and expert, gate and up apart
TOKENS = (1, 32)

def activation(args):
    if args.swiglu: return F.silu
    return functools.partial(F.gelu, approximate='tanh') if getattr(args, 'bias_gelu_fusion', False) else F.gelu

def transformer_config(args):
    kind = MLATransformerConfig if args.multi_latent_attention else TransformerConfig
    values = {f.name: getattr(args, f.name) for f in dataclasses.fields(kind) if hasattr(args, f.name)}
    values.update(num_moe_experts=args.num_experts, num_query_groups=args.num_query_groups if args.group_query_attention else None,
                  use_cpu_initialization=True, gated_linear_unit=args.swiglu, activation_func=activation(args), bias_activation_fusion=False,
                  params_dtype=torch.float32, moe_token_dispatcher_type='allgather', apply_rope_fusion=False, moe_router_load_balancing_type='none')
    if values.get('window_size'): values['window_size'] = tuple(values['window_size'])
    if args.num_experts is None: values.pop('moe_layer_freq', None)
    return kind(**values)

def build(args):
    config = transformer_config(args)
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False)
    mtp = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False) if getattr(args, 'mtp_num_layers', None) else None
    return GPTModel(config, spec, vocab_size=args.padded_vocab_size, max_sequence_length=args.max_position_embeddings,
                    share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights, position_embedding_type=args.position_embedding_type,
                    rotary_base=args.rotary_base, rope_scaling=getattr(args, 'use_rope_scaling', False), rope_scaling_factor=getattr(args, 'rope_scaling_factor', 8.0),
                    seq_len_interpolation_factor=getattr(args, 'rotary_seq_len_interpolation_factor', None), mtp_block_spec=mtp)

def randomise(model):
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            norm = 'norm' in name and name.endswith('weight')
            values = torch.randn(tensor.shape) * (0.3 if norm or tensor.dim() == 1 else 0.08) + (1 if norm else 0)
            tensor.copy_(values if name.endswith('expert_bias') else values.bfloat16())

def all_logits(model, tokens):
    """Of the model, and of each prediction layer, fp32."""
    t = torch.from_numpy(tokens)
    mask = torch.triu(torch.ones(TOKENS[1], TOKENS[1], dtype=torch.bool), 1)[None, None]
    positions = torch.arange(TOKENS[1])[None]
    if getattr(model, 'mtp_process', False):
        hidden = []
        model.mtp.register_forward_hook(lambda module, inputs, output: hidden.append(output))
        model(t, positions, mask, labels=t)
        parts = torch.chunk(hidden[0], 1 + model.config.mtp_num_layers, dim=0)
    else:
        return model(t, positions, mask), []
    logits = [model.output_layer(part)[0].transpose(0, 1).contiguous() for part in parts]
    return logits[0], logits[1:]

def write(out, case):
    args = argparse.Namespace(**merged(BASE_ARGS, CASES[case]))
    torch.manual_seed(sum(map(ord, case)))
    model = build(args).float().eval()
    with torch.no_grad():
        randomise(model)
        tokens = np.random.RandomState(0).randint(0, 250, TOKENS)
        logits, further = all_logits(model, tokens)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point() and not name.endswith('expert_bias'): tensor.data = tensor.data.bfloat16()
    folder = os.path.join(out, case, 'iter_0000001')
    os.makedirs(folder)
    state = model.sharded_state_dict(metadata={'singleton_local_shards': case in SINGLETON})
    state.update(args=args, iteration=1, checkpoint_version=3.0)
    dist_checkpointing.save(state, folder)
    with open(os.path.join(out, case, 'latest_checkpointed_iteration.txt'), 'w') as f: f.write('1')
    np.savez(os.path.join(out, case + '.npz'), tokens=tokens, logits=logits.numpy(), **({'further_logits': torch.stack(further).numpy()} if further else {}))
    print(case, tuple(logits.shape), float(logits.abs().mean()), flush=True)

if __name__ == '__main__':
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29587')
    torch.distributed.init_process_group('gloo', rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    for case in sys.argv[2:] or CASES:
        write(sys.argv[1], case)
