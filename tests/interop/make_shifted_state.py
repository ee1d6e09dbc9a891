"""Writes runs whose optimizer state Megatron Core 0.15 to 0.19 stores in the wrong places, with that program's own code (pip install
megatron-core==0.16.1), on the CPU (it also wants psutil), for tests/fixtures/megatron_shifted.

A tensor a parameter (fully_reshardable), several gradient buckets, and a bucket that does not end at a multiple of 128 elements: parameters of
later buckets then get what lies further on in the buffer. Masters and moments are random, weights the masters rounded to bf16. Beside each
OUT_DIR/CASE stands the same state in flat buckets, which have their right places, as OUT_DIR/CASE_right.   Usage: make_shifted_state.py OUT_DIR [CASE ...]"""
import argparse
import os
import sys

import torch
import torch.multiprocessing

CASES = {  # tensor and data ranks, further arguments
    'tp1': (1, 1, {}),
    'tp2': (2, 1, dict(qk_layernorm=True)),
    'dp2': (1, 2, dict(add_qkv_bias=True)),
    'experts': (1, 1, dict(num_experts=4, moe_grouped_gemm=False, moe_router_topk=2, moe_ffn_hidden_size=40, moe_layer_freq=1)),
}
BUCKET = 3000  # elements
SMALL = dict(num_layers=2, vocab_size=60, padded_vocab_size=64, ffn_hidden_size=40)


def ranks_model(case):
    import make_core_checkpoints as core
    from make_hf_names import BASE_ARGS, merged
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    tensor, data, further = CASES[case]
    args = argparse.Namespace(**merged(BASE_ARGS, SMALL, dict(
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=1, expert_model_parallel_size=1, expert_tensor_parallel_size=tensor,
        context_parallel_size=1, data_parallel_size=data, world_size=tensor * data, use_distributed_optimizer=True, overlap_grad_reduce=True,
        ddp_bucket_size=BUCKET, bf16=True, accumulate_allreduce_grads_in_fp32=True, transformer_impl='local', use_precision_aware_optimizer=False,
        dist_ckpt_optim_fully_reshardable=True), further))
    torch.manual_seed(sum(map(ord, case)))
    model = core.build(args).bfloat16()
    ddp = DistributedDataParallel(model.config, DistributedDataParallelConfig(
        use_distributed_optimizer=True, overlap_grad_reduce=True, bucket_size=BUCKET, grad_reduce_in_fp32=True), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer='adam', lr=1e-3, bf16=True, use_distributed_optimizer=True, params_dtype=torch.bfloat16), [ddp])
    return args, ddp, optimizer


def fill(optimizer):
    for one in optimizer.chained_optimizers if hasattr(optimizer, 'chained_optimizers') else [optimizer]:
        one._init_optimizer_states_with_dummy_values()
        for group in one.optimizer.param_groups:
            for master in group['params']:
                master.data.copy_(torch.randn(master.shape) * 0.1)
                state = one.optimizer.state[master]
                state['exp_avg'].copy_(torch.randn(master.shape) * 1e-3)
                state['exp_avg_sq'].copy_(torch.rand(master.shape) * 1e-5)
        one._copy_main_params_to_model_params()
        for buffer in one.per_model_buffers[0] if hasattr(one, 'per_model_buffers') else []:
            for bucket in buffer.buckets:
                shard = bucket.param_data.view(one.data_parallel_group.size(), -1)[one.data_parallel_group.rank()].clone()
                torch.distributed.all_gather_into_tensor(bucket.param_data, shard, group=one.data_parallel_group)


def write(out, case, rank):
    from megatron.core import dist_checkpointing
    args, ddp, optimizer = ranks_model(case)
    fill(optimizer)
    for name, kind in ((case, 'fully_reshardable'), (case + '_right', 'dp_reshardable')):
        folder = os.path.join(out, name, 'iter_0000001')
        if rank == 0:
            os.makedirs(folder)
        torch.distributed.barrier()
        metadata = dict(distrib_optim_sharding_type=kind, distrib_optim_fully_reshardable_mem_efficient=False, singleton_local_shards=False,
                        chained_optim_avoid_prefix=True)
        state = ddp.module.sharded_state_dict(metadata=metadata)
        state['optimizer'] = optimizer.sharded_state_dict(state, metadata=metadata)
        state.update(args=args, iteration=1, checkpoint_version=3.0)
        dist_checkpointing.save(state, folder, content_metadata=metadata)
        if rank == 0:
            with open(os.path.join(out, name, 'latest_checkpointed_iteration.txt'), 'w') as f:
                f.write('1')


def rank_main(rank, world, out, case):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(20000 + os.getppid() % 10000))
    torch.set_num_threads(1)
    import make_core_checkpoints  # noqa: F401 (makes Core run without a GPU)
    tensor_type = torch.Tensor.type  # Core knows parameters by their type on a GPU
    torch.Tensor.type = lambda self, *a, **k: tensor_type(self, *a, **k) if a or k else tensor_type(self).replace('torch.', 'torch.cuda.')
    from megatron.core import parallel_state
    torch.distributed.init_process_group('gloo', rank=rank, world_size=world)
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=CASES[case][0])
    write(out, case, rank)


if __name__ == '__main__':
    for case in sys.argv[2:] or CASES:
        world = CASES[case][0] * CASES[case][1]
        torch.multiprocessing.spawn(rank_main, (world, sys.argv[1], case), nprocs=world)
        print(case, flush=True)
