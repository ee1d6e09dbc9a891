"""Writes checkpoints of DeepSpeed's engine, on CPU processes (gloo), after two steps of AdamW, and the same as universal checkpoints.

Usage: make_deepspeed.py OUT MODEL [CASE ...]     (MODEL: a Hugging Face folder; OUT/CASE is what save_checkpoint() and save_pretrained() leave)
  zero1, zero2, zero3   bf16, two ranks, two parameter groups (weights with decay, vectors without)
  zero2_fp32            fp32, three ranks, one group
  zero3_frozen          bf16, three ranks, the embedding frozen
OUT/CASE.safetensors is what DeepSpeed's own zero_to_fp32 makes of it, OUT/CASE_universal what DeepSpeed's own ds_to_universal makes of zero1 to zero3. Needs torch, transformers and deepspeed (with einops, hjson, msgpack,
ninja, psutil, py-cpuinfo beside it)."""
import os, subprocess, sys
import torch
import torch.multiprocessing as mp
from safetensors.torch import save_file

CASES = {'zero1': (1, 2, True), 'zero2': (2, 2, True), 'zero3': (3, 2, True), 'zero2_fp32': (2, 3, False), 'zero3_frozen': (3, 3, True)}
UNIVERSAL = ('zero1', 'zero2', 'zero3')


def rank_main(rank, out, source, case):
    stage, world, bf16 = CASES[case]
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29573', RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), DS_ACCELERATOR='cpu')
    torch.set_num_threads(1)
    import deepspeed
    from transformers import AutoModelForCausalLM
    sys.modules['deepspeed.comm.torch'].build_shm_op = lambda: None  # an extension that is compiled on the spot, to speed up what takes no time here
    deepspeed.init_distributed('gloo')
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16 if bf16 else torch.float32)
    if case == 'zero3_frozen': model.model.embed_tokens.weight.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [dict(params=trained)]
    if bf16: groups = [dict(params=[p for p in trained if p.dim() > 1], weight_decay=0.1), dict(params=[p for p in trained if p.dim() == 1], weight_decay=0.0)]
    config = dict(train_micro_batch_size_per_gpu=1, gradient_clipping=1.0, bf16=dict(enabled=bf16), zero_allow_untested_optimizer=True,
                  zero_optimization=dict(stage=stage, stage3_gather_16bit_weights_on_model_save=False))
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=1e-3), config=config)
    for step in range(2):
        tokens = torch.arange(16).reshape(1, 16) + rank + step
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    engine.save_checkpoint(os.path.join(out, case))
    if rank == 0:
        model.config.save_pretrained(os.path.join(out, case))
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
        save_file({n: t.clone() for n, t in get_fp32_state_dict_from_zero_checkpoint(os.path.join(out, case)).items()}, os.path.join(out, case + '.safetensors'))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == '__main__':
    out, source, *cases = sys.argv[1:]
    for case in cases or CASES:
        mp.spawn(rank_main, (out, source, case), nprocs=CASES[case][1])
        if case not in UNIVERSAL: continue
        folder, tag = os.path.join(out, case), open(os.path.join(out, case, 'latest')).read().strip()
        subprocess.run([sys.executable, '-m', 'deepspeed.checkpoint.ds_to_universal', '--input_folder', os.path.join(folder, tag),
                        '--output_folder', os.path.join(out, case + '_universal', tag), '--num_extract_workers', '1', '--num_merge_workers', '1',
                        '--inject_missing_state'], check=True)
