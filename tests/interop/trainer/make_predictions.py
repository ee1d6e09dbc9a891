"""Prints what Megatron Core (0.16, CPU, its local modules) computes of a small model with prediction layers: losses, and norms of gradients.

Usage: make_predictions.py [repeated]      tests/trainer/parallel/prediction_test.cpp has what it prints
With "repeated" one layer predicts all tokens: the same module twice, which is what --mtp-use-repeated-layer of later releases computes.
Weights and tokens are made up in the same way there."""
import contextlib, math, os, sys, warnings
warnings.filterwarnings('ignore')
import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer import multi_token_prediction as mtp
from megatron.core.transformer.transformer_config import TransformerConfig

LENGTH, VOCABULARY, LAYERS, PREDICTIONS, SCALE = 16, 64, 4, 2, 0.5

def philox(key, low, high):
    x, k0, k1 = [low % 2**32, low >> 32, high, 0], key % 2**32, key >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k0, b % 2**32, (a >> 32) ^ x[3] ^ k1, a % 2**32]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return x

def token(sample, position):
    return philox(sample, position, 0x6B6579)[0] % VOCABULARY

def fill(name, parameter):
    i = torch.arange(parameter.numel(), dtype=torch.float64)
    wave = 0.1 * torch.sin(sum(name.encode()) + 0.7 * i + 0.013 * i * i)
    parameter.data.copy_((wave + 1 if name.endswith('norm.weight') else wave).reshape(parameter.shape))

def build():
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=32, num_attention_heads=4, num_query_groups=2, kv_channels=8, ffn_hidden_size=48, add_bias_linear=False,
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization='RMSNorm', hidden_dropout=0, attention_dropout=0,
        use_cpu_initialization=True, mtp_num_layers=PREDICTIONS, mtp_loss_scaling_factor=SCALE, bias_dropout_fusion=False)
    spec = get_gpt_layer_local_spec(normalization='RMSNorm')
    return GPTModel(config, spec, vocab_size=VOCABULARY, max_sequence_length=LENGTH, position_embedding_type='rope',
                    share_embeddings_and_output_weights=False, mtp_block_spec=get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False))

def main():
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29591')
    torch.cuda.current_device = lambda: 'cpu'  # where it keeps the losses
    torch.distributed.init_process_group('gloo', rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    tensor_parallel.get_cuda_rng_tracker().fork = contextlib.nullcontext  # nothing is random
    model = build().train()
    if 'repeated' in sys.argv: model.mtp.layers[1] = model.mtp.layers[0]
    for name, parameter in model.named_parameters(): fill(name.replace('mtp_model_layer', 'transformer_layer'), parameter)
    words = torch.tensor([[token(sample, position) for position in range(LENGTH + 1)] for sample in range(2)])
    positions = torch.arange(LENGTH).expand(2, -1)
    mask = torch.ones(2, LENGTH)
    mask[1, 3] = mask[1, 9] = 0
    mtp.MTPLossAutoScaler.set_loss_scale(torch.tensor(1.0))
    hidden = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool).triu(1)
    losses = model(words[:, :-1].contiguous(), positions, hidden, labels=words[:, 1:].contiguous(), loss_mask=mask)
    loss = (losses * mask).sum() / mask.sum()
    loss.backward()
    norm = lambda parameters: math.sqrt(sum(float(p.grad.double().square().sum()) for p in parameters))
    print('lm loss', f'{loss.item():.9g}')
    for i, one in enumerate(mtp.MTPLossLoggingHelper.tracker['values']): print(f'mtp_{i + 1} loss', f'{one.item():.9g}')
    print('norm', f'{norm(model.parameters()):.9g}')
    for part in ('embedding', 'decoder.layers', 'decoder.final', 'mtp.layers.0.enorm', 'mtp.layers.0', 'mtp.layers.1', 'output_layer'):
        print(part, f'{norm(p for n, p in model.named_parameters() if n.startswith(part)):.9g}')
    torch.distributed.destroy_process_group()

if __name__ == '__main__':
    main()
