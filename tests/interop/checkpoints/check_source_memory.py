"""Measures the memory that ferry takes for each kind of source beyond Megatron-LM's, on checkpoints that are larger than it may be.

Usage: check_source_memory.py FERRY [--memory MIB] [--compare-cp ROUNDS] [NAME ...]
A Llama of 50 million parameters (150 million in bf16 and fp8), in the form of each program: as PyTorch itself writes it (torch.save, DCP, DTensors on one rank), of DeepSpeed by the rules of its
source (flat fp32 tensors, two ranks), of torchtitan, Accelerate and Trainer with Adam likewise, of Hugging Face with fp8 as ferry writes it, of Megatron-FSDP and of masters as remainders likewise, of Megatron-LM's torch_dcp
as PyTorch saves DTensors. Prints a line each, and fails where the
peak of resident memory is above --memory (64 MiB) and 64 MiB, or where a source is not larger than that. --compare-cp times it, too, without a bound, in turns with `cp -r` of what it wrote, and prints the ratio of the medians."""
import argparse, contextlib, json, os, subprocess, sys, tempfile, time
import torch
from safetensors.torch import save_file

HIDDEN, FFN, LAYERS, VOCAB, HEADS, GROUPS = 1024, 4096, 2, 8000, 8, 4
CONFIG = dict(architectures=['LlamaForCausalLM'], model_type='llama', hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
              num_key_value_heads=GROUPS, vocab_size=VOCAB, max_position_embeddings=2048, rms_norm_eps=1e-6, hidden_act='silu', tie_word_embeddings=False,
              rope_parameters=dict(rope_type='default', rope_theta=10000.0), head_dim=HIDDEN // HEADS, attention_bias=False, mlp_bias=False, torch_dtype='float32')
MIB = 1 << 20


def shapes():
    size = HIDDEN // HEADS * GROUPS
    yield 'model.embed_tokens.weight', (VOCAB, HIDDEN)
    for i in range(LAYERS):
        p = f'model.layers.{i}.'
        for name, shape in (('self_attn.q_proj', (HIDDEN, HIDDEN)), ('self_attn.k_proj', (size, HIDDEN)), ('self_attn.v_proj', (size, HIDDEN)), ('self_attn.o_proj', (HIDDEN, HIDDEN)),
                            ('mlp.gate_proj', (FFN, HIDDEN)), ('mlp.up_proj', (FFN, HIDDEN)), ('mlp.down_proj', (HIDDEN, FFN)), ('input_layernorm', (HIDDEN,)),
                            ('post_attention_layernorm', (HIDDEN,))):
            yield p + name + '.weight', shape
    yield 'model.norm.weight', (HIDDEN,)
    yield 'lm_head.weight', (VOCAB, HIDDEN)


def tensors():
    torch.manual_seed(1)
    return {name: torch.randn(shape) * 0.02 for name, shape in shapes()}


def put_config(folder, **more):
    os.makedirs(folder, exist_ok=True)
    json.dump(CONFIG | more, open(f'{folder}/config.json', 'w'))


def hugging_face(folder, dtype):
    put_config(folder, torch_dtype=str(dtype).removeprefix('torch.'))
    save_file({n: t.to(dtype) for n, t in tensors().items()}, f'{folder}/model.safetensors')


def torch_bin(folder):
    put_config(folder)
    torch.save(tensors(), f'{folder}/pytorch_model.bin')


def plain_dcp(folder):
    import torch.distributed.checkpoint as dcp
    dcp.save({'model': tensors()}, checkpoint_id=folder, no_dist=True)
    put_config(folder)


def adam(parameters):
    """What get_optimizer_state_dict() gives of Adam with one group, flattened; as torchtitan has it, too."""
    group = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    flat = {f'state.{n}.{kind}': value for n, t in parameters.items() for kind, value in (('step', torch.tensor(5.0)), ('exp_avg', t * 0.5), ('exp_avg_sq', t * t))}
    return flat | {f'param_groups.{n}.{member}': value for n in parameters for member, value in group.items()}


def dcp_with_optimizer(folder):
    import torch.distributed.checkpoint as dcp
    parameters = tensors()
    dcp.save(dict(model=parameters, optim=adam(parameters)), checkpoint_id=folder, no_dist=True)
    put_config(folder)


def accelerate(folder):
    import torch.distributed.checkpoint as dcp
    parameters = tensors()
    dcp.save(dict(model=parameters), checkpoint_id=f'{folder}/pytorch_model_fsdp_0', no_dist=True)
    dcp.save(dict(optimizer=adam(parameters)), checkpoint_id=f'{folder}/optimizer_0', no_dist=True)
    put_config(folder)


TITAN = {'model.embed_tokens': 'tok_embeddings', 'model.layers': 'layers', 'model.norm': 'norm', 'self_attn.q_proj': 'attention.wq', 'self_attn.k_proj': 'attention.wk',
         'self_attn.v_proj': 'attention.wv', 'self_attn.o_proj': 'attention.wo', 'mlp.gate_proj': 'feed_forward.w1', 'mlp.up_proj': 'feed_forward.w3', 'mlp.down_proj': 'feed_forward.w2',
         'input_layernorm': 'attention_norm', 'post_attention_layernorm': 'ffn_norm', 'lm_head': 'output'}


def torchtitan(folder):
    import torch.distributed.checkpoint as dcp
    parameters = {}
    for name, tensor in tensors().items():
        for theirs, titan in TITAN.items(): name = name.replace(theirs, titan)
        parameters[name] = tensor
    dcp.save(parameters | dict(optimizer=adam(parameters)), checkpoint_id=folder, no_dist=True)
    put_config(folder)


def trainer(folder):
    """model.safetensors and optimizer.pt, whose two groups count through transformers' order."""
    hugging_face(folder, torch.float32)
    state, parameters = {}, tensors()
    groups = [[t for t in parameters.values() if (t.dim() > 1) == decayed] for decayed in (True, False)]
    for t in groups[0] + groups[1]: state[len(state)] = dict(step=torch.tensor(5.0), exp_avg=t * 0.5, exp_avg_sq=t * t)
    first = len(groups[0])
    torch.save(dict(state=state, param_groups=[dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay, params=params)
                                               for decay, params in ((0.1, list(range(first))), (0.0, list(range(first, len(state)))))]), f'{folder}/optimizer.pt')


@contextlib.contextmanager
def distributed():
    """What makes DTensors of PyTorch's, on a mesh of one."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=os.environ.get('FERRY_TEST_PORT', '29577'), RANK='0', WORLD_SIZE='1')
    dist.init_process_group('gloo')
    mesh = init_device_mesh('cpu', (1,))
    yield lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)])
    dist.destroy_process_group()


def dtensors(folder):
    """As verl."""
    with distributed() as sharded: save_dtensors(folder, {n: sharded(t) for n, t in tensors().items()})


def save_dtensors(folder, parts):
    put_config(f'{folder}/huggingface')
    torch.save(parts, f'{folder}/model_world_size_1_rank_0.pt')
    state = {i: dict(step=torch.tensor(5.0), exp_avg=t * 0.5, exp_avg_sq=t * t) for i, t in enumerate(parts.values())}
    torch.save(dict(state=state, param_groups=[dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, params=list(state))]), f'{folder}/optim_world_size_1_rank_0.pt')


def torch_dcp(folder, args):
    """As Megatron-LM with --use-torch-fsdp2: state by number, counted through the groups; fp32 copies by group. Megatron's names, layer by layer."""
    import torch.distributed.checkpoint as dcp
    rows = HIDDEN + 2 * HIDDEN // HEADS * GROUPS
    of_layer = {'self_attention.linear_proj.weight': (HIDDEN, HIDDEN), 'self_attention.linear_qkv.layer_norm_weight': (HIDDEN,), 'self_attention.linear_qkv.weight': (rows, HIDDEN),
                'mlp.linear_fc1.layer_norm_weight': (HIDDEN,), 'mlp.linear_fc1.weight': (2 * FFN, HIDDEN), 'mlp.linear_fc2.weight': (HIDDEN, FFN)}
    model = {'embedding.word_embeddings.weight': (args.padded_vocab_size, HIDDEN)}
    for layer in range(LAYERS): model |= {f'decoder.layers.{layer}.{name}': shape for name, shape in of_layer.items()}
    model |= {'decoder.final_layernorm.weight': (HIDDEN,), 'output_layer.weight': (args.padded_vocab_size, HIDDEN)}
    vars(args).update(ckpt_format='torch_dcp', use_torch_fsdp2=True, use_distributed_optimizer=False)
    with distributed() as sharded:
        random = lambda shape: sharded(torch.randn(shape) * 0.02)
        groups = [[name for name, shape in model.items() if (len(shape) > 1) == decayed] for decayed in (True, False)]
        numbers = {name: i for i, name in enumerate(groups[0] + groups[1])}
        group = lambda names, decay: dict(is_expert_parallel=False, wd_mult=decay, lr=1e-3, step=7, params=[numbers[name] for name in names])
        masters = {name: random(shape) for name, shape in model.items()}
        state = {number: dict(exp_avg=random(model[name]), exp_avg_sq=random(model[name])) for name, number in numbers.items()}
        dcp.save(dict(args=args, checkpoint_version=3.0, iteration=7, model={name: master.bfloat16() for name, master in masters.items()},
                      optimizer=dict(optimizer=dict(state=state, param_groups=[group(groups[0], 1.0), group(groups[1], 0.0)]),
                                     fp32_from_fp16_params=[[masters[name] for name in names] for names in groups])), checkpoint_id=folder)


def zero(folder, stage, ranks=2):
    """deepspeed/runtime/zero/{stage_1_and_2,stage3}.py: a group of parameters, one after another, cut into as many parts as there are ranks; of stage 3 each parameter is."""
    all_tensors = tensors()
    put_config(folder)
    model = dict(module={} if stage == 3 else {n: t.to(torch.bfloat16) for n, t in all_tensors.items()}, buffer_names=[], param_shapes=[{n: t.shape for n, t in all_tensors.items()}],
                 shared_params={}, frozen_param_shapes=None, frozen_param_fragments=None, global_steps=5, ds_version='0.19.8')
    flats = [[] for _ in range(ranks)]
    if stage == 3:
        for t in all_tensors.values():
            part = -(-t.numel() // ranks)
            padded = torch.cat([t.reshape(-1), torch.zeros(part * ranks - t.numel())])
            for rank in range(ranks): flats[rank].append(padded[rank * part:(rank + 1) * part])
        flats = [torch.cat(parts) for parts in flats]
    else:
        whole = torch.cat([t.reshape(-1) for t in all_tensors.values()])
        whole = torch.cat([whole, torch.zeros(-whole.numel() % (2 * ranks))])
        flats = list(whole.chunk(ranks))
    del all_tensors
    for rank, flat in enumerate(flats):
        flat = flat.clone()
        base = dict(state={0: dict(step=torch.tensor(5.0), exp_avg=flat * 0.5, exp_avg_sq=flat * flat)}, param_groups=[dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)])
        if stage == 3: state = dict(zero_stage=3, partition_count=ranks, fp32_flat_groups=[flat], optimizer_state_dict=base)
        else: state = dict(zero_stage=stage, partition_count=[ranks], single_partition_of_fp32_groups=[flat], base_optimizer_state=base, param_alignment_paddings=None)
        torch.save(dict(optimizer_state_dict=state, ds_config={}, ds_version='0.19.8'), f'{folder}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt')
        if stage == 3 or rank == 0: torch.save(model, f'{folder}/{f"zero_pp_rank_{rank}_" if stage == 3 else ""}mp_rank_00_model_states.pt')


def bytes_below(path):
    if os.path.isfile(path): return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files)


# A process keeps the peak of the one that it was made from: so ferry is begun by a small one.
MEASURE = """import os, sys
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss * 1024)
sys.exit(os.waitstatus_to_exitcode(status))"""


def peak_of(command):
    """Most resident memory of a process of its own, in bytes."""
    done = subprocess.run([sys.executable, '-I', '-S', '-c', MEASURE, *command], capture_output=True, text=True)
    if done.returncode: sys.exit(f'{" ".join(command)}: {done.stderr}')
    return int(done.stdout)


def compare_cp(ferry, command, work, rounds):
    """Medians of the seconds that ferry and cp take to write the same bytes, in turns."""
    def timed(*words):
        begin = time.monotonic()
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.monotonic() - begin
    times = {'ferry': [], 'cp': []}
    for _ in range(rounds):
        for folder in ('again', 'copy'): subprocess.run(['rm', '-rf', f'{work}/{folder}'], check=True)
        times['ferry'].append(timed(ferry, command[0], f'{work}/source', f'{work}/again', *command[1:]))
        times['cp'].append(timed('cp', '-r', f'{work}/again', f'{work}/copy'))
    own, cp = (sorted(times[who])[rounds // 2] for who in ('ferry', 'cp'))
    return f'speed  {bytes_below(f"{work}/again") / MIB:.0f} MiB written in {own:.3f} s, by cp in {cp:.3f} s: {cp / own:.2f} of cp'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('ferry')
    parser.add_argument('names', nargs='*')
    parser.add_argument('--memory', type=int, default=64)
    parser.add_argument('--compare-cp', type=int, default=0)
    options = parser.parse_args()
    ferry = os.path.abspath(options.ferry)
    torch.set_num_threads(1)

    def made(work, *command): subprocess.run([ferry, *command], check=True, stdout=subprocess.DEVNULL)

    def from_run(work, form):
        zero(f'{work}/ds', 2)
        made(work, 'convert', f'{work}/ds', f'{work}/run', '--to', 'torch_dist', '--optimizer', '--dtype', 'bf16')
        made(work, 'reshard', f'{work}/run', f'{work}/source', *form)
        subprocess.run(['rm', '-rf', f'{work}/ds', f'{work}/run'], check=True)

    def from_args(work):
        hugging_face(f'{work}/hf', torch.bfloat16)
        made(work, 'convert', f'{work}/hf', f'{work}/run', '--to', 'torch_dist', '--core-release', '0.16')
        torch_dcp(f'{work}/source', torch.load(f'{work}/run/release/common.pt', weights_only=False)['args'])
        subprocess.run(['rm', '-rf', f'{work}/hf', f'{work}/run'], check=True)

    def larger():  # for types of one byte and two; of the process that makes the source alone
        global LAYERS
        LAYERS = CONFIG['num_hidden_layers'] = 8

    def bf16(folder):
        larger()
        hugging_face(folder, torch.bfloat16)

    def fp8(work):
        larger()
        hugging_face(f'{work}/bf16', torch.bfloat16)
        made(work, 'convert', f'{work}/bf16', f'{work}/source', '--to', 'hf', '--quantize', 'fp8')
        subprocess.run(['rm', '-rf', f'{work}/bf16'], check=True)

    to_run = ('--to', 'torch_dist', '--optimizer', '--dtype', 'bf16')
    cases = {
        'deepspeed ZeRO 2 to hf': (lambda w: zero(f'{w}/source', 2), ('convert', '--to', 'hf', '--dtype', 'bf16')),
        'deepspeed ZeRO 2 to torch_dist, optimizer': (lambda w: zero(f'{w}/source', 2), ('convert', *to_run)),
        'deepspeed ZeRO 3 to hf': (lambda w: zero(f'{w}/source', 3), ('convert', '--to', 'hf')),
        'deepspeed ZeRO 3 to torch_dist, optimizer': (lambda w: zero(f'{w}/source', 3), ('convert', *to_run)),
        'verl FSDP to hf': (lambda w: dtensors(f'{w}/source'), ('convert', '--to', 'hf')),
        'verl FSDP to torch_dist, optimizer': (lambda w: dtensors(f'{w}/source'), ('convert', *to_run)),
        'PyTorch DCP to hf': (lambda w: plain_dcp(f'{w}/source'), ('convert', '--to', 'hf')),
        'PyTorch DCP to torch_dist, optimizer': (lambda w: dcp_with_optimizer(f'{w}/source'), ('convert', *to_run)),
        'PyTorch DCP to dcp': (lambda w: dcp_with_optimizer(f'{w}/source'), ('reshard', '--to', 'dcp')),
        "Accelerate's FSDP to torch_dist, optimizer": (lambda w: accelerate(f'{w}/source'), ('convert', *to_run)),
        'torchtitan to torch_dist, optimizer': (lambda w: torchtitan(f'{w}/source'), ('convert', *to_run)),
        "Trainer's to torch_dist, optimizer": (lambda w: trainer(f'{w}/source'), ('convert', *to_run)),
        'pytorch_model.bin to hf': (lambda w: torch_bin(f'{w}/source'), ('convert', '--to', 'hf')),
        'hf to fp8': (lambda w: bf16(f'{w}/source'), ('convert', '--to', 'hf', '--quantize', 'fp8')),
        'fp8 to hf': (fp8, ('convert', '--to', 'hf', '--dtype', 'bf16')),
        'fsdp_dtensor to hf': (lambda w: from_run(w, ('--to', 'fsdp_dtensor')), ('convert', '--to', 'hf')),
        'fsdp_dtensor to torch_dist': (lambda w: from_run(w, ('--to', 'fsdp_dtensor')), ('reshard',)),
        'torch_dcp to hf': (from_args, ('convert', '--to', 'hf')),
        'torch_dcp to torch_dist': (from_args, ('reshard',)),
        'masters of remainders to hf': (lambda w: from_run(w, ('--optimizer', 'dp_reshardable', '--masters', 'remainders')), ('convert', '--to', 'hf', '--from-masters'))}
    limit, wrong = (options.memory + 64) * MIB, []
    for name, (make, command) in cases.items():
        if options.names and not any(part in name for part in options.names): continue
        with tempfile.TemporaryDirectory(dir=os.environ.get('TMPDIR')) as work:
            if os.fork() == 0:  # so that making it takes memory of a process that ends
                make(work)
                sys.stdout.flush()
                os._exit(0)
            if os.wait()[1] != 0: sys.exit(f'{name}: its source could not be made')
            source = bytes_below(f'{work}/source')
            begin = time.time()
            peak = peak_of([ferry, command[0], f'{work}/source', f'{work}/out', *command[1:], '--memory', f'{options.memory}MiB'])
            fine = peak <= limit and source > limit
            print(f'{"memory" if fine else "MEMORY"} {name}: {peak / MIB:.0f} MiB of {limit // MIB} for a source of {source / MIB:.0f} MiB, {time.time() - begin:.1f} s', flush=True)
            if not fine: wrong.append(name)
            if options.compare_cp: print(compare_cp(ferry, command, work, options.compare_cp), flush=True)
    if wrong: sys.exit(f'too much memory, or too small a source: {", ".join(wrong)}')


if __name__ == '__main__':
    main()
