"""Logits that Megatron-LM itself computes in fp32 from a checkpoint of a GPT or a hybrid model, for check_megatron.py.

Run as pretrain_gpt.py is, with its arguments. Environment: TOKENS, an .npz with `tokens`; LOGITS, a prefix: each rank of the last pipeline stage writes PREFIX.RANK.npz, with its part of the vocabulary.
Stages are two ranks at most, one after the other."""
import os, sys
import numpy as np, torch
from megatron.training.arguments import parse_and_validate_args
from megatron.training.argument_utils import gpt_config_from_args, hybrid_config_from_args, pretrain_cfg_container_from_args
from megatron.training.initialize import initialize_megatron
from megatron.training import get_args
from megatron.training.checkpointing import load_checkpoint
from megatron.core import parallel_state
from megatron.core.process_groups_config import ProcessGroupCollection
args = parse_and_validate_args(args_defaults={'tokenizer_type': 'NullTokenizer', 'no_load_rng': True, 'no_load_optim': True})
config_from_args = hybrid_config_from_args if args.hybrid_layer_pattern else gpt_config_from_args
cfg = pretrain_cfg_container_from_args(args, config_from_args(args))
initialize_megatron()
args = get_args()
builder = cfg.model.get_builder_cls()(cfg.model)
model = builder.build_distributed_models(pg_collection=ProcessGroupCollection.use_mpu_process_groups(), ddp_config=cfg.ddp, overlap_param_gather_with_optimizer_step=False,
    use_megatron_fsdp=False, use_torch_fsdp2=False, wrap_with_ddp=False, data_parallel_random_init=False)
load_checkpoint(model, None, None, strict=True)
m = model[0].eval()
f = np.load(os.environ['TOKENS'])['tokens']
t = torch.tensor(f); pos = torch.arange(t.shape[1])[None].expand(*t.shape)
mask = torch.triu(torch.ones(t.shape[1], t.shape[1], dtype=torch.bool), 1)[None, None]
if not parallel_state.is_pipeline_first_stage():
    states = torch.empty(t.shape[1], t.shape[0], args.hidden_size)
    torch.distributed.recv(states, parallel_state.get_pipeline_model_parallel_prev_rank())
    m.set_input_tensor(states)
with torch.no_grad(): out = m(t, pos, mask)
if parallel_state.is_pipeline_last_stage():
    np.savez(os.environ['LOGITS'] + '.' + os.environ['RANK'], logits=out.float().numpy())
    print('LOGITS', out.shape)
else: torch.distributed.send(out.contiguous(), parallel_state.get_pipeline_model_parallel_next_rank())
