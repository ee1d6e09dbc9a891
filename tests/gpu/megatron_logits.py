"""Holds the logits of Megatron-LM against transformers'. run.sh starts it, one process a GPU, from Megatron-LM's own folder.

Usage: megatron_logits.py EXPECTED.npz BAR [Megatron-LM's arguments]
Prints the largest difference over the mean |logit|; fails above BAR."""
import functools, sys
import numpy as np, torch
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region
from megatron.training import get_args
from megatron.training.checkpointing import load_checkpoint
from megatron.training.initialize import initialize_megatron
from megatron.training.training import get_model

DEFAULTS = {'tokenizer_type': 'NullTokenizer', 'no_load_rng': True, 'no_load_optim': True}

def start():
    try: from megatron.training.arguments import parse_and_validate_args
    except ImportError: return initialize_megatron(args_defaults=DEFAULTS)  # older releases
    parse_and_validate_args(args_defaults=DEFAULTS)
    initialize_megatron()

def provider():
    try:
        from gpt_builders import gpt_builder
        from model_provider import model_provider
        return functools.partial(model_provider, gpt_builder)
    except ImportError:  # older releases
        from pretrain_gpt import model_provider
        return model_provider

def hand_on_what_pretrain_gpt_does_not(stage):
    """The builder of pretrain_gpt.py leaves out --rotary-seq-len-interpolation-factor, and ferry warns of that."""
    if hasattr(stage, 'rotary_pos_emb'): stage.rotary_pos_emb.seq_len_interpolation_factor = get_args().rotary_seq_len_interpolation_factor

def logits_of(model, tokens):
    """fp32, whole vocabulary; None but on the last stage."""
    batch, length = tokens.shape
    tokens = torch.tensor(tokens, device='cuda')
    positions = torch.arange(length, device='cuda')[None].expand(batch, -1)
    mask = torch.triu(torch.ones(length, length, dtype=torch.bool, device='cuda'), 1)[None, None]
    def step(_, stage):
        return stage(tokens, positions, mask), lambda output, non_loss_data: gather_from_tensor_model_parallel_region(output)
    with torch.no_grad():
        outputs = get_forward_backward_func()(
            forward_step_func=step, data_iterator=[None] * len(model), model=model, forward_only=True, collect_non_loss_data=True,
            num_microbatches=parallel_state.get_pipeline_model_parallel_world_size(), seq_length=length, micro_batch_size=batch)
    return outputs[-1].float().cpu().numpy() if outputs else None

def main(expected, bar):
    start()
    model = get_model(provider(), wrap_with_ddp=False)
    for stage in model: hand_on_what_pretrain_gpt_does_not(stage)
    # Modules of forks have buffers that no checkpoint of theirs holds: what matters shows in the logits.
    load_checkpoint(model, None, None, strict=not getattr(get_args(), 'xielu', False))
    for stage in model: stage.eval()
    file = np.load(expected)
    found = logits_of(model, file['tokens'])
    if found is None or parallel_state.get_tensor_model_parallel_rank() > 0: return 0
    theirs = file['logits']
    distance = np.abs(found[..., :theirs.shape[-1]] - theirs).max() / np.abs(theirs).mean()
    print(f'DISTANCE {distance:.2e} {"ok" if distance <= bar else "FAILED"}', flush=True)
    return 0 if distance <= bar else 1

if __name__ == '__main__':
    expected, bar = sys.argv.pop(1), float(sys.argv.pop(1))
    code = main(expected, bar)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    sys.exit(code)
