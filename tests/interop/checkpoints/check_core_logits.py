"""Lets Megatron Core (0.16, CPU, its local modules) load what ferry made of Hugging Face models, and compute.

Usage: check_core_logits.py FOLDER      FOLDER/NAME/: run_0_16 (a run) and logits.npz (tokens, logits and perhaps further_logits), as check_import.py makes them
The model is built from the arguments in the checkpoint, which Megatron Core's own reader loads under the names of its local modules: no tensor of the model may be missing, and its
logits must be those of the file to 8e-6 of their mean size. Prints a table; fails when one is not."""
import os, sys, warnings
warnings.filterwarnings('ignore')
os.environ.setdefault('TORCHDYNAMO_DISABLE', '1')  # what Megatron Core compiles on the way is computed as it stands
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import make_core_checkpoints as core
import numpy as np, torch
from megatron.core import dist_checkpointing, parallel_state

BAR = 8e-6

def load(folder):
    args = dist_checkpointing.load_common_state_dict(folder)['args']
    for name in ('tensor_model_parallel_size', 'pipeline_model_parallel_size'): setattr(args, name, 1)
    args.bf16 = False  # it is to compute in fp32
    model = core.build(args).float().eval()
    for name, buffer in model.named_buffers():
        if name.endswith('expert_bias'): buffer.data = buffer.data.float()
    state = model.sharded_state_dict(metadata={'singleton_local_shards': False})
    state = {name: part for name, part in state.items() if not name.endswith('_extra_state')}
    missing = model.load_state_dict(dist_checkpointing.load(state, folder), strict=False).missing_keys
    assert not [n for n in missing if not n.endswith('_extra_state')], missing
    return model

def distance(folder):
    """The largest of all logits, over the mean size."""
    file = np.load(os.path.join(folder, 'logits.npz'))
    core.TOKENS = file['tokens'].shape
    with torch.no_grad(): first, further = core.all_logits(load(os.path.join(folder, 'run_0_16', 'release')), file['tokens'])
    found, expected = [first, *further], [file['logits'], *file.get('further_logits', [])]
    assert len(found) == len(expected)
    return max(float(np.abs(a.numpy()[..., :250] - b[..., :250]).max() / np.abs(b).mean()) for a, b in zip(found, expected))

def main(work):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=os.environ.get('FERRY_TEST_PORT', '29589'))
    torch.distributed.init_process_group('gloo', rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    print(f'{"model":28} logits / mean |logit|')
    failed = 0
    for name in sorted(os.listdir(work)):
        if not os.path.exists(os.path.join(work, name, 'logits.npz')): continue
        found = distance(os.path.join(work, name))
        failed += not found <= BAR
        print(f'{name:28} {found:.2e} {"ok" if found <= BAR else "FAILED"}', flush=True)
    torch.distributed.destroy_process_group()
    return 1 if failed else 0

if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
