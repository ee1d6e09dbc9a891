"""Writes what transformers' Trainer, Accelerate and Lightning leave of a training run, with their own code, on CPU processes.

Usage: make_trainer.py OUT MODEL [CASE ...]     (MODEL: a Hugging Face folder)
  trainer/          checkpoint-2, checkpoint-4 of Trainer: model, optimizer, scheduler, random numbers, trainer_state.json
  accelerate/       Accelerator.save_state(): model.safetensors without config.json, optimizer.bin, random_states_0.pkl
  accelerate_fsdp/  two ranks: FSDP 2, saved by accelerate.utils.fsdp_utils as SHARDED_STATE_DICT, model and optimizer a DCP each
  accelerate_ranks/ the same with use_dcp=False: a file of DTensors each rank
  fsdp1_sharded/    two ranks: FSDP 1 without a device mesh, use_dcp=False: a file of ShardedTensors each rank
  fsdp1_local/      the same as LOCAL_STATE_DICT: flat parameters
  lightning.ckpt    Lightning's Trainer, where lightning is installed
Needs torch, transformers and accelerate."""
import importlib.util, os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

CASES = ('trainer', 'accelerate', 'accelerate_fsdp', 'accelerate_ranks', 'fsdp1_sharded', 'fsdp1_local', 'lightning')


class Tokens(torch.utils.data.Dataset):
    def __len__(self): return 8

    def __getitem__(self, i):
        tokens = torch.arange(8) + i
        return dict(input_ids=tokens, labels=tokens)


def step(model, optimizer):
    batch = {k: v[None] for k, v in Tokens()[0].items()}
    model(**batch).loss.backward()
    optimizer.step()


def make_trainer(out, source):
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    arguments = TrainingArguments(out, per_device_train_batch_size=2, max_steps=6, save_steps=2, save_total_limit=2, logging_steps=1, report_to='none', use_cpu=True,
                                  disable_tqdm=True)

    class Stop(Exception): pass

    class Stopping(Trainer):
        def _save_checkpoint(self, *args):
            super()._save_checkpoint(*args)
            if self.state.global_step == 4: raise Stop

    try: Stopping(model, arguments, train_dataset=Tokens()).train()
    except Stop: pass


def make_accelerate(out, source):
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    step(model, optimizer)
    accelerator.save_state(out)


def sharded_main(rank, out, source, case):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29575', RANK=str(rank), WORLD_SIZE='2', LOCAL_RANK=str(rank), ACCELERATE_USE_CPU='1')
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=2)
    from accelerate import PartialState
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import save_fsdp_model, save_fsdp_optimizer
    state = PartialState(cpu=True, backend='gloo')
    state.is_fsdp2 = not case.startswith('fsdp1')
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2 if state.is_fsdp2 else 1, state_dict_type='LOCAL_STATE_DICT' if case == 'fsdp1_local' else 'SHARDED_STATE_DICT',
                                            cpu_offload=False)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    if state.is_fsdp2:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh('cpu', (2,))
        for layer in model.model.layers: fully_shard(layer, mesh=mesh)
        model = fully_shard(model, mesh=mesh)
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        model = FSDP(model, device_id=torch.device('cpu'), use_orig_params=False, auto_wrap_policy=ModuleWrapPolicy({type(model.model.layers[0])}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step(model, optimizer)
    use_dcp = case == 'accelerate_fsdp'
    save_fsdp_model(plugin, state, model, out, use_dcp=use_dcp)
    if case == 'accelerate_fsdp': save_fsdp_optimizer(plugin, state, optimizer, model, out)
    if rank == 0:
        model_config = AutoModelForCausalLM.from_pretrained(source).config
        model_config.save_pretrained(out)
    dist.barrier()
    if case != 'fsdp1_local':  # what PyTorch itself makes of the parts
        from safetensors.torch import save_file
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
        if case == 'fsdp1_sharded':
            from torch.distributed.fsdp import StateDictType
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT): whole = model.state_dict()
        else: whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if use_dcp:
            state = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)).get('state', {})  # of rank 0 alone
            whole |= {f'optimizer.state.{kind}.{name}': of[kind] for name, of in state.items() for kind in ('exp_avg', 'exp_avg_sq')}
        if rank == 0: save_file({n: t.contiguous() for n, t in whole.items()}, out + '.safetensors')
        dist.barrier()
    dist.destroy_process_group()


def make_lightning(out, source):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)

        def training_step(self, batch, _): return self.model(**batch).loss

        def configure_optimizers(self): return torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    trainer = lightning.Trainer(max_steps=3, accelerator='cpu', logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Module(), torch.utils.data.DataLoader(Tokens(), batch_size=2))
    trainer.save_checkpoint(out + '.ckpt')


if __name__ == '__main__':
    out, source, *cases = sys.argv[1:]
    for case in cases or CASES:
        torch.manual_seed(1)
        target = os.path.join(out, case)
        if case == 'trainer': make_trainer(target, source)
        elif case == 'accelerate': make_accelerate(target, source)
        elif case == 'lightning':
            if importlib.util.find_spec('lightning'): make_lightning(target, source)
            else: print('without lightning')
        else: mp.spawn(sharded_main, (target, source, case), nprocs=2)
