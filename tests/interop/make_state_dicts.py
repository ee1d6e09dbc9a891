"""Writes the tiny model of tests/fixtures/foreign and its state dict as programs around PyTorch save it, with torch.save and PyTorch's DCP.

Usage: make_state_dicts.py OUT
  model/           save_pretrained() of a Llama whose vocabulary no two ranks share evenly
  lightning.ckpt   state_dict behind "model.", as Lightning's checkpoints have it, with an optimizer beside it
  compiled.pt      names of a compiled, recomputed module
  average.pt       the model and its moving average, which has the same names
  dcp/             {"state": {"model": ..., "optimizer": ...}}, as torchtitan and Accelerate nest them
  titan.pt         the same model in torchtitan's own names, made by torchtitan's own adapter, where torchtitan is installed"""
import importlib.util, os, sys
import torch
import torch.distributed.checkpoint as dcp
from check_torchtitan import adapter_of, only_the_adapters
from transformers import LlamaConfig, LlamaForCausalLM


def make_model(folder):
    torch.manual_seed(1)
    config = LlamaConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, vocab_size=41,
                         max_position_embeddings=32, bos_token_id=None, eos_token_id=None, tie_word_embeddings=False)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        for name, tensor in sorted(model.state_dict().items()):
            tensor.copy_(torch.randn(tensor.shape) * 0.1 + ('norm' in name))
    model.save_pretrained(folder)
    return model


def main(out):
    os.makedirs(out, exist_ok=True)
    model = make_model(os.path.join(out, 'model'))
    state = model.state_dict()
    moments = {name: dict(exp_avg=torch.full_like(tensor, 0.5), step=torch.tensor(3.0)) for name, tensor in state.items()}
    torch.save({'epoch': 1, 'global_step': 3, 'state_dict': {'model.' + n: t for n, t in state.items()},
                'optimizer_states': [{'state': dict(enumerate(moments.values())), 'param_groups': [{'lr': 1e-3}]}]}, os.path.join(out, 'lightning.ckpt'))
    torch.save({'module.' + n.replace('layers.1.', 'layers.1._checkpoint_wrapped_module._orig_mod.'): t for n, t in state.items()}, os.path.join(out, 'compiled.pt'))
    torch.save({'model': state, 'average': {n: t * 0.5 for n, t in state.items()}}, os.path.join(out, 'average.pt'))
    dcp.save({'state': {'model': state, 'optimizer': {'state': moments}}}, checkpoint_id=os.path.join(out, 'dcp'), no_dist=True)
    if importlib.util.find_spec('torchtitan'):
        only_the_adapters()
        torch.save({'model': adapter_of('llama', model.config).from_hf(dict(state))}, os.path.join(out, 'titan.pt'))


if __name__ == '__main__':
    main(sys.argv[1])
