"""Writes small runs whose matrices have Muon and whose other parameters have Adam, with Megatron Core's own code on the CPU, for tests/fixtures/muon.

    make_muon_runs.py OUT_DIR [CASE_FORM ...] needs torch, Megatron Core's tree of August 2026 on PYTHONPATH (`--optimizer muon` with a layer-wise
                                              optimizer has today's form since May 2026), emerging-optimizers 0.3.0, triton, psutil
    make_muon_runs.py --truth OUT_DIR/CASE_full > CASE.json
    make_muon_runs.py --check RUN CASE_FORM DATA_RANKS      loads a run that ferry made of such a one, with Megatron Core's own code, and compares every value

OUT_DIR/CASE_FORM is a run folder. Forms: `dpr` and `full`, which torch_dist has with a layer-wise optimizer (dp_reshardable, fully_reshardable); `older`,
torch_dist where the layer-wise optimizer has all parameters (--no-use-layer-wise-param-layout, and before May 2026); `files`, rank folders with
layer_wise_optimizer_*.pt, which that one writes; `chain`, rank folders without a layer-wise optimizer (--optimizer muon alone): each optimizer in
model_optim_rng.pt, one after another; `plain`, the same in torch_dist. All forms of a case hold the same values:
masters and moments are random, by the parameters' names, weights the masters rounded to bf16."""
import argparse
import os
import sys
import types
import typing
import zlib

import torch
import torch.multiprocessing
import typing_extensions

typing.override = typing_extensions.override  # of Python 3.12

EXPERTS = dict(num_layers=1, num_experts=4, moe_grouped_gemm=False, moe_router_topk=2, moe_ffn_hidden_size=24, moe_layer_freq=1)
CASES = {  # tensor, expert and all ranks, further arguments
    'dense': (2, 1, 4, dict(add_qkv_bias=True)),
    'experts': (1, 2, 2, EXPERTS),
    'adaptive': (1, 1, 2, dict(optimizer='adaptive_muon')),
}
FORMS = {'dense': ('dpr', 'full', 'older', 'files', 'chain', 'plain'), 'experts': ('dpr', 'full', 'files', 'chain', 'plain'), 'adaptive': ('dpr', 'full', 'files', 'chain', 'plain')}
RANK_FOLDERS = ('files', 'chain')
SMALL = dict(num_layers=2, vocab_size=60, padded_vocab_size=64, ffn_hidden_size=24, hidden_size=16, kv_channels=4)


def arguments(case, form, data=None):
    from make_hf_names import BASE_ARGS, merged
    tensor, expert, world, further = CASES[case]
    world = tensor * data if data else world
    return argparse.Namespace(**merged(BASE_ARGS, SMALL, dict(
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=1, expert_model_parallel_size=expert, expert_tensor_parallel_size=1 if expert > 1 else tensor,
        context_parallel_size=1, data_parallel_size=world // tensor, world_size=world, use_distributed_optimizer=False, overlap_grad_reduce=False, bf16=True,
        accumulate_allreduce_grads_in_fp32=True, transformer_impl='local', use_precision_aware_optimizer=False, optimizer='muon', muon_scalar_optimizer='adam',
        use_layer_wise_distributed_optimizer=form not in ('chain', 'plain'), use_layer_wise_param_layout=form in ('dpr', 'full'), dist_ckpt_optim_fully_reshardable=form == 'full',
        ckpt_format='torch' if form in RANK_FOLDERS else 'torch_dist', params_dtype=torch.bfloat16), further))


def wrapped(args, model):
    """As megatron/training/training.py wraps a model chunk."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer.layer_wise_optimizer import LayerWiseDistributedOptimizer, tag_params_for_buffer_routing
    config = DistributedDataParallelConfig(use_distributed_optimizer=args.use_layer_wise_param_layout, grad_reduce_in_fp32=True)
    layout = None
    if args.use_layer_wise_param_layout:
        tag_params_for_buffer_routing([model])
        data = args.data_parallel_size
        layout = LayerWiseDistributedOptimizer.compute_full_param_layout(
            list(model.parameters()), None, data, config, expert_data_parallel_world_size=data // args.expert_model_parallel_size)
    return DistributedDataParallel(model.config, config, model, full_param_layout=layout)


class FusedAdam(torch.optim.Optimizer):
    """As those of Transformer Engine and apex keep their state: the step in the groups."""

    def __init__(self, params, lr, betas, eps, weight_decay, adam_w_mode=True, **_):
        super().__init__(params, dict(lr=lr, bias_correction=True, betas=betas, eps=eps, weight_decay=weight_decay))

    def step(self, closure=None):
        for group in self.param_groups:
            group['step'] = group.get('step', 0) + 1
            for param in group['params']:
                self.state[param] = {kind: torch.zeros_like(param) for kind in ('exp_avg', 'exp_avg_sq')}


def use_fused_adam():
    from megatron.core import optimizer
    from megatron.core.optimizer import distrib_optimizer
    optimizer.USING_PYTORCH_OPTIMIZER = False
    optimizer.Adam = FusedAdam
    distrib_optimizer.USING_APEX_OPTIMIZER = distrib_optimizer.HAVE_APEX_OR_TE = True


def values(name, param, kind):
    """Of a rank's parameter, the same on all that hold the same part."""
    from megatron.core import parallel_state
    expert = 'local_experts' in name
    split = getattr(param, 'tensor_model_parallel', False) and not expert
    rank = parallel_state.get_tensor_model_parallel_rank() if split else 0
    rank = rank + 10 * parallel_state.get_expert_model_parallel_rank() if expert else rank
    generator = torch.Generator().manual_seed(zlib.crc32(f'{name} {kind} {rank}'.encode()))
    random = torch.randn(param.shape, generator=generator)
    return {'param': random * 0.1, 'exp_avg_sq': random ** 2 * 1e-5, 'moment2_buffer': random ** 2 * 1e-5}.get(kind, random * 1e-3)


def leaves(optimizer):
    return [leaf for part in optimizer.chained_optimizers for leaf in leaves(part)] if hasattr(optimizer, 'chained_optimizers') else [optimizer]


def initialise(optimizer):
    for one in leaves(optimizer):
        if hasattr(one, 'shard_fp32_from_float16_groups'):
            one._init_optimizer_states_with_dummy_values()
        else:
            one.init_state_fn(one.optimizer, one.config)


def states(ddp, optimizer):
    """(what, tensor, what is to be in it) of the weights, masters and moments of a rank."""
    names = {param: name for name, param in ddp.module.named_parameters()}
    for one in leaves(optimizer):
        distributed = hasattr(one, 'shard_fp32_from_float16_groups')
        halves = one.model_float16_groups if distributed else one.float16_groups
        masters = one.shard_fp32_from_float16_groups if distributed else one.fp32_from_float16_groups
        for half, master in ((h, m) for hs, ms in zip(halves, masters) for h, m in zip(hs, ms)):
            for kind, tensor in {'param': master, **one.optimizer.state[master]}.items():
                if kind == 'step':
                    continue
                expected = values(names[half], half, kind)
                if distributed:
                    place = one._get_model_param_range_map(half)['param']
                    expected = expected.view(-1)[place.start:place.end]
                yield f'{kind} of {names[half]}', tensor, expected
    for param, name in names.items():
        yield name, param, values(name, param, 'param').bfloat16()


def fill(ddp, optimizer):
    initialise(optimizer)
    for one in leaves(optimizer):
        for group in one.optimizer.param_groups:
            group['step'] = 5
    for _, tensor, value in states(ddp, optimizer):
        tensor.data.copy_(value)


def built(args):
    import make_core_checkpoints as core
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    ddp = wrapped(args, core.build(args).bfloat16())
    return ddp, get_megatron_optimizer(OptimizerConfig(
        optimizer=args.optimizer, muon_scalar_optimizer=args.muon_scalar_optimizer, lr=1e-3, bf16=True, params_dtype=torch.bfloat16,
        use_layer_wise_distributed_optimizer=args.use_layer_wise_distributed_optimizer), [ddp])


def folder_of_rank(args):
    from megatron.core import parallel_state as mpu
    return f'mp_rank_{mpu.get_tensor_model_parallel_rank():02d}' + (f'_{mpu.get_expert_model_parallel_rank():03d}' if args.expert_model_parallel_size > 1 else '')


def write_files(folder, args, ddp, optimizer, scheduler, layer_wise):
    """As save_checkpoint in megatron/training/checkpointing.py."""
    from megatron.core import parallel_state as mpu
    name = folder_of_rank(args)
    os.makedirs(f'{folder}/{name}', exist_ok=True)
    if layer_wise:
        optimizer.save_state_dict_to_file(f'{folder}/{name}/layer_wise_optimizer_{mpu.get_data_parallel_rank()}.pt')
    if mpu.get_data_parallel_rank() == 0 or mpu.get_expert_data_parallel_rank() == 0:
        torch.save(dict(args=args, checkpoint_version=3.0, iteration=5, model=ddp.module.state_dict_for_save_checkpoint(), optimizer=optimizer.state_dict(),
                        opt_param_scheduler=scheduler), f'{folder}/{name}/model_optim_rng.pt')


def write(out, case, form, rank):
    from megatron.core import dist_checkpointing
    args = arguments(case, form)
    ddp, optimizer = built(args)
    fill(ddp, optimizer)
    run = os.path.join(out, f'{case}_{form}')
    folder = os.path.join(run, 'iter_0000005')
    os.makedirs(folder, exist_ok=True)
    torch.distributed.barrier()
    scheduler = dict(max_lr=1e-3, lr_warmup_steps=0, num_steps=40, lr_decay_style='linear', lr_decay_steps=80, min_lr=0.0, start_wd=0.01, end_wd=0.01,
                     wd_incr_style='constant', wd_incr_steps=80)
    if form in RANK_FOLDERS:
        write_files(folder, args, ddp, optimizer, scheduler, form == 'files')
    else:
        kind = 'fully_reshardable' if form == 'full' else 'dp_reshardable'
        if form in ('older', 'plain'):  # a form of releases that name no kind beside a layer-wise optimizer, and one without any that is distributed
            kind = None
        metadata = dict(singleton_local_shards=False, chained_optim_avoid_prefix=True)
        if kind:
            metadata.update(distrib_optim_sharding_type=kind)
        if form == 'full':
            metadata.update(distrib_optim_fully_reshardable_mem_efficient=False)
        state = ddp.module.sharded_state_dict(metadata=metadata)
        state['optimizer'] = optimizer.sharded_state_dict(state, metadata=metadata)
        state.update(args=args, iteration=5, checkpoint_version=3.0, opt_param_scheduler=scheduler)
        dist_checkpointing.save(state, folder, content_metadata=metadata)
    if rank == 0:
        with open(os.path.join(run, 'latest_checkpointed_iteration.txt'), 'w') as f:
            f.write('5')


def check(run, case, form, data):
    """Loads a run as Megatron-LM does, at so many data ranks; an error where a value differs."""
    from megatron.core import dist_checkpointing
    from megatron.core import parallel_state as mpu
    args = arguments(case, form, data)
    ddp, optimizer = built(args)
    initialise(optimizer)
    for _, tensor, _ in states(ddp, optimizer):
        tensor.data.fill_(float('nan'))
    folder = os.path.join(run, 'iter_0000005')
    if form in RANK_FOLDERS:
        place = f'{folder}/{folder_of_rank(args)}'
        stored = torch.load(f'{place}/model_optim_rng.pt', weights_only=False)
        ddp.module.load_state_dict(stored['model'])
        if form == 'files':
            optimizer.load_state_dict_from_file(f'{place}/layer_wise_optimizer_{mpu.get_data_parallel_rank()}.pt')
        else:
            optimizer.load_state_dict(stored['optimizer'])
    else:
        metadata = dist_checkpointing.load_content_metadata(folder)
        state = ddp.module.sharded_state_dict(metadata=metadata)
        state['optimizer'] = optimizer.sharded_state_dict(state, is_loading=True, metadata=metadata)
        loaded = dist_checkpointing.load(state, folder)
        optimizer.load_state_dict(loaded.pop('optimizer'))
        ddp.module.load_state_dict({key: value for key, value in loaded.items() if key not in ('args', 'iteration', 'checkpoint_version', 'opt_param_scheduler')}, strict=False)
    wrong = [what for what, tensor, value in states(ddp, optimizer) if not torch.equal(tensor.data, value)]
    steps = {float(group['step']) for one in leaves(optimizer) for group in one.optimizer.param_groups if group['params']}
    assert not wrong and len(steps) == 1, f'{run}: {wrong[:9]} differ, steps {steps}'


def rank_main(rank, world, out, case, form, data=None):
    os.environ.update(TORCHDYNAMO_DISABLE='1', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(20000 + os.getppid() % 10000))
    torch.set_num_threads(1)
    import make_core_checkpoints  # noqa: F401 (makes Core run without a GPU)
    tensor_type = torch.Tensor.type  # Core knows parameters by their type on a GPU
    torch.Tensor.type = lambda self, *a, **k: tensor_type(self, *a, **k) if a or k else tensor_type(self).replace('torch.', 'torch.cuda.')
    from megatron.core import parallel_state
    use_fused_adam()
    torch.distributed.init_process_group('gloo', rank=rank, world_size=world)
    tensor, expert = CASES[case][:2]
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor, expert_model_parallel_size=expert, expert_tensor_parallel_size=1 if expert > 1 else tensor)
    check(out, case, form, data) if data else write(out, case, form, rank)


def truth(run):
    """The state of a run of form `full`, as digests."""
    from checkpoints import digests, iteration_folder, load
    return dict(sorted(digests(load(iteration_folder(run))).items()))


if __name__ == '__main__':
    if sys.argv[1] == '--truth':
        import json
        sys.exit(print(json.dumps(truth(sys.argv[2]), indent=0)))
    if sys.argv[1] == '--check':
        _, _, path, name, data = sys.argv
        case, form = name.split('_')
        world = CASES[case][0] * int(data)
        torch.multiprocessing.spawn(rank_main, (world, path, case, form, int(data)), nprocs=world)
        sys.exit(print(path, 'equal', flush=True))
    for name in sys.argv[2:] or [f'{case}_{form}' for case in CASES for form in FORMS[case]]:
        case, form = name.split('_')
        torch.multiprocessing.spawn(rank_main, (CASES[case][2], sys.argv[1], case, form), nprocs=CASES[case][2])
        print(name, flush=True)
