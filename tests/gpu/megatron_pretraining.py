"""Runs pretrain_gpt.py of Megatron-LM, whose folder is the current one, with the arguments given here.

Where neither Transformer Engine nor Apex is installed Megatron-LM falls back to torch.optim.AdamW, which keeps its step with each parameter, and then loads no
checkpoint whose optimizer was one of theirs: they keep it with each group. An AdamW that keeps its state as they do takes its place then. Norms are PyTorch's there, and refuse to compute parts of a sequence, which
they can: their gradients are added up as those of other norms are."""
import copy
import runpy

import torch
from megatron.core import optimizer
from megatron.core.optimizer import distrib_optimizer
from megatron.core.transformer.torch_norm import WrappedTorchNorm


class GroupedAdamW(torch.optim.Optimizer):
    """AdamW in fp32, with the state and the arguments of Apex's FusedAdam: exp_avg and exp_avg_sq of a parameter, step of a group."""

    def __init__(self, params, lr, betas, eps, weight_decay, adam_w_mode, capturable):
        if not adam_w_mode or capturable:
            raise ValueError('only AdamW outside of CUDA graphs is here')
        super().__init__(params, {'lr': lr, 'betas': betas, 'eps': eps, 'weight_decay': weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group['step'] = step = group.get('step', 0) + 1
            (beta, beta_sq), rate = group['betas'], group['lr']
            for p in group['params']:
                if p.grad is None:
                    continue
                state = self.state[p]
                mean = state.setdefault('exp_avg', torch.zeros_like(p))
                square = state.setdefault('exp_avg_sq', torch.zeros_like(p))
                mean.mul_(beta).add_(p.grad, alpha=1 - beta)
                square.mul_(beta_sq).addcmul_(p.grad, p.grad, value=1 - beta_sq)
                change = (mean / (1 - beta**step)) / ((square / (1 - beta_sq**step)).sqrt() + group['eps'])
                p.sub_(rate * (change + group['weight_decay'] * p))


def of_sequence_parts(make):
    def make_norm(cls, config, *args, **kwargs):
        whole = copy.copy(config)
        whole.sequence_parallel = False
        norm = make(cls, whole, *args, **kwargs)
        for p in norm.parameters():
            p.sequence_parallel = config.sequence_parallel
        return norm

    return make_norm


if __name__ == '__main__':
    WrappedTorchNorm.__new__ = staticmethod(of_sequence_parts(WrappedTorchNorm.__new__))
    if optimizer.USING_PYTORCH_OPTIMIZER:
        optimizer.Adam, optimizer.USING_PYTORCH_OPTIMIZER = GroupedAdamW, False
        distrib_optimizer.HAVE_APEX_OR_TE = distrib_optimizer.USING_APEX_OPTIMIZER = True
    runpy.run_path('pretrain_gpt.py', run_name='__main__')
