"""A training loop that saves while it goes on, and resumes at any number of ranks.

    torchrun --nproc-per-node 4 train_and_resume.py RUN 20      # and with another number: it goes on
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

import ferry

run, steps, done, ticket = sys.argv[1], int(sys.argv[2]), 0, None
dist.init_process_group("gloo")  # "nccl" with GPUs, and their mesh
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
torch.distributed.fsdp.fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
flat = StateDictOptions(flatten_optimizer_state_dict=True)
if os.path.exists(run):
    weights, state = get_state_dict(model, optimizer, options=flat)
    with ferry.open(run) as checkpoint:  # fills this rank's shards, whatever ranks saved them
        checkpoint.load(into={k: v for k, v in {**weights, **state}.items() if torch.is_tensor(v)})
        done = checkpoint.iteration
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state, options=flat)
with ferry.AsyncSaver(run, most_in_flight=2, keep=3) as saver:
    for step in range(done + 1, done + steps + 1):
        batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (loss := (model(batch) - batch).square().mean()).backward()
        _ = ticket and ticket.wait()  # the last snapshot is copied: the weights may change
        optimizer.step()
        if step % 5 == 0:
            weights, state = get_state_dict(model, optimizer, options=flat)
            ticket = saver.save({k: v for k, v in {**weights, **state}.items() if torch.is_tensor(v)}, step)
print(f"rank {dist.get_rank()}: iterations {done + 1} to {done + steps}, loss {loss.item():.6f}")
