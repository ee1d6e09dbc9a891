"""check_precision.py FERRY: what ferry train saves with --use-precision-aware-optimizer is what Megatron-LM and Transformer Engine hold, as PyTorch reads it.

A small Llama trains for some steps in bf16 and saves as fully_reshardable and as dp_reshardable, which holds of masters what Transformer Engine keeps (AdamFunctorMasterParamRemainder in common/multi_tensor/adam.cu): int16 that make
the fp32 masters, added to the bits of the weights. Masters of the one and remainders of the other belong to the same weights, which are the masters rounded to nearest even, as a run
without the option has them. Moments are fp32 on disk, of the values of bf16. Prints a line; exit 1 on a difference."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../checkpoints'))
import torch
from checkpoints import load

RUN = '''--num-layers 2 --hidden-size 64 --ffn-hidden-size 176 --num-attention-heads 4 --group-query-attention --num-query-groups 2 --swiglu --normalization RMSNorm
    --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights --seq-length 64 --max-position-embeddings 64 --attention-dropout 0
    --hidden-dropout 0 --mock-data --tokenizer-type NullTokenizer --vocab-size 256 --make-vocab-size-divisible-by 1 --eval-iters 0 --micro-batch-size 2
    --global-batch-size 4 --train-iters 12 --lr 1e-3 --log-interval 1 --save-interval 12 --bf16 --use-distributed-optimizer --use-precision-aware-optimizer
    --main-grads-dtype bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16'''.split()
MASTER = 'optimizer.state.param.'


def trained(ferry, work, *more):
    subprocess.run([ferry, 'train', *RUN, '--save', work, *more], check=True, stdout=subprocess.DEVNULL)
    return load(f'{work}/iter_0000012')


def bits(tensor, dtype):
    return tensor.reshape(-1).view(dtype).to(torch.int64)


def remainder_of(master, weight):
    return bits(master, torch.int32) - (bits(weight, torch.int16) << 16)


def sorted_but_zeros(values):
    return torch.sort(values[values != 0]).values


ferry = os.path.abspath(sys.argv[1])
problems = []
with tempfile.TemporaryDirectory() as work:
    whole = trained(ferry, f'{work}/whole', '--dist-ckpt-optim-fully-reshardable')
    split = trained(ferry, f'{work}/split')
masters = {name.removeprefix(MASTER): tensor for name, tensor in whole.items() if name.startswith(MASTER)}
remainders = []
for name, master in masters.items():
    weight = whole[name]
    if weight.dtype != torch.bfloat16 or master.dtype != torch.float32 or not torch.equal(master.bfloat16(), weight):
        problems.append(f'{name}: is not its master rounded to bf16')
    if not torch.equal(weight, split[name]):
        problems.append(f'{name}: differs by format')
    remainders.append(remainder_of(master, weight))
for name, tensor in whole.items():
    if '.exp_avg' in name and not (tensor.dtype == torch.float32 and torch.equal(tensor, tensor.bfloat16().float()) and tensor.count_nonzero()):
        problems.append(f'{name}: is not in fp32 what bf16 holds')
stored = [tensor for name, tensor in split.items() if name.endswith('.param')]
if [tensor.dtype for tensor in stored] != [torch.int16]:
    problems.append(f'masters in buckets are {[tensor.dtype for tensor in stored]}')
elif not torch.equal(sorted_but_zeros(stored[0].to(torch.int64)), sorted_but_zeros(torch.cat(remainders))):
    problems.append('remainders in buckets are not those of the masters')
print(f'{len(masters)} masters of {sum(m.numel() for m in masters.values())} parameters:', 'as they should be' if not problems else '; '.join(problems))
sys.exit(bool(problems) or not masters)
