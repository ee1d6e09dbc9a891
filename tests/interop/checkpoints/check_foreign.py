"""Holds what ferry makes of other programs' checkpoints against what PyTorch, transformers and those programs make of them.

Usage: check_foreign.py FERRY [FOLDER]     (FOLDER: as tests/fixtures/foreign, the default)
  state dicts   lightning.ckpt, compiled.pt, dcp: transformers loads the Hugging Face folder, tensors equal the model's
  verl          FSDP's ranks: equal what PyTorch gathered (NAME.safetensors); and, where verl is installed, verl.model_merger's bf16 folder
  deepspeed     equal what zero_to_fp32 gave (NAME.safetensors); and, where DeepSpeed is installed, what it gives now
  universal     what ds_to_universal made, moments too
  optimizer     convert --optimizer --to torch_dist of DeepSpeed and of FSDP's ranks, read by PyTorch: weights, masters and moments in Megatron-LM's
                places, bit for bit; resharded by ferry to two tensor and two pipeline ranks, the same
  counted       convert --optimizer --to torch_dist of a model of every family with the optimizer.pt of Trainer's groups, and with optimizer.bin of one group: moments
                made of the weights are those of the weights next to them; of the Trainer's checkpoint as it saved it: its own, by the names of its own groups
  by name       optimizers in PyTorch's distributed checkpoints: check_dcp_optimizers.py
  training      Accelerate's files of FSDP's ranks: what PyTorch gathered (NAME.safetensors)
  dcp           reshard --to dcp of ranks, read by PyTorch, moments too
  torchtitan    torchtitan's own adapters, where it is installed: the names and orders of llama, qwen3 and deepseek_v3
Prints a line each; fails when anything differs."""
import glob, importlib.util, os, sys, tempfile
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import torch
from check_dcp_optimizers import check_dcp_optimizers
from checkpoints import Report, call, load
from make_hf_names import BASE_CONFIG, CASES, merged
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, Trainer
from transformers.utils import logging

HERE = os.path.dirname(os.path.abspath(__file__))
FSDP, ZERO = ('fsdp2', 'hsdp'), ('zero2', 'zero3', 'zero3_frozen', 'zero2_universal')


def weights(folder):
    return {n: t for file in sorted(glob.glob(f'{folder}/*.safetensors')) for n, t in load_file(file).items()}


def differences(found, expected):
    for name in sorted(found.keys() | expected.keys()):
        if name not in found: yield f'{name}: is missing'
        elif name not in expected: yield f'{name}: should not be there'
        elif found[name].dtype != expected[name].dtype or not torch.equal(found[name], expected[name]): yield f'{name}: differs'


def converted(ferry, source, out, *more):
    call(ferry, 'convert', source, out, '--to', 'hf', *more)
    model = AutoModelForCausalLM.from_pretrained(out, dtype='auto')
    loaded = model.state_dict()
    yield from differences(loaded, {n: t.to(loaded[n].dtype) if n in loaded else t for n, t in weights(out).items()})


def parts(file):
    tensors = load_file(file)
    return {n: t for n, t in tensors.items() if not n.startswith('optimizer.')}, {n: t for n, t in tensors.items() if n.startswith('optimizer.')}


def merged_by_verl(actor, out):
    """What verl's own merger writes, in bf16: all of it but the tokenizer, which the tiny model has not."""
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    class Merger(FSDPModelMerger):
        def save_hf_model_and_tokenizer(self, state_dict): self.merged = state_dict

    merger = Merger(ModelMergerConfig(operation='merge', backend='fsdp', local_dir=actor, target_dir=out, hf_model_config_path=f'{actor}/huggingface'))
    merger.merge_and_save()
    return merger.merged


def check_state_dicts(ferry, folder, work, report):
    truth = weights(f'{folder}/model')
    for name in ('lightning.ckpt', 'compiled.pt', 'dcp', 'average.pt'):
        def wrong():
            more = ['--only', 'model.*'] if name == 'average.pt' else []
            out = f'{work}/{name}'
            yield from converted(ferry, f'{folder}/{name}', out, '--config', f'{folder}/model', *more)
            yield from differences(weights(out), truth)
        report.add(name, wrong())


def check_verl(ferry, folder, work, report):
    for name in FSDP:
        def wrong():
            out, actor = f'{work}/{name}', f'{folder}/verl/{name}/global_step_1/actor'
            yield from converted(ferry, f'{folder}/verl/{name}', out)
            model, moments = parts(f'{folder}/verl/{name}.safetensors')
            yield from differences(weights(out), model)
            if glob.glob(f'{actor}/optim_*'):
                call(ferry, 'reshard', actor, f'{work}/{name}_dcp', '--to', 'dcp')
                found = {n: t for n, t in load(f'{work}/{name}_dcp').items() if '.step.' not in n}
                yield from differences(found, model | moments)
            if importlib.util.find_spec('verl'):
                call(ferry, 'convert', actor, f'{work}/{name}_bf16', '--to', 'hf', '--dtype', 'bf16')
                yield from differences(weights(f'{work}/{name}_bf16'), merged_by_verl(actor, work))
        report.add(f'verl {name}', wrong())


def check_deepspeed(ferry, folder, work, report):
    for name in ZERO:
        def wrong():
            source = f'{folder}/ds/{name}'
            yield from converted(ferry, source, f'{work}/{name}', '--config', f'{folder}/model')
            truth = load_file(f'{folder}/ds/{name.removesuffix("_universal")}.safetensors')
            yield from differences(weights(f'{work}/{name}'), truth)
            if importlib.util.find_spec('deepspeed') and os.path.exists(f'{source}/latest'):
                from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
                yield from differences(weights(f'{work}/{name}'), get_fp32_state_dict_from_zero_checkpoint(source))
            if name.endswith('_universal'):
                call(ferry, 'reshard', source, f'{work}/{name}_dcp', '--to', 'dcp')
                found, moments = load(f'{work}/{name}_dcp'), {}
                for file in glob.glob(f'{source}/*/zero/*/exp_avg*.pt'):
                    state = torch.load(file, weights_only=False)
                    kind, parameter = os.path.basename(file)[:-3], os.path.basename(os.path.dirname(file))
                    moments[f'optimizer.state.{kind}.{parameter}'] = (state['param'] if isinstance(state, dict) else state).reshape(truth[parameter].shape)
                yield from differences(found, truth | moments)
        report.add(f'deepspeed {name}', wrong())


def megatron_names(tensors, heads=2, groups=1, layers=2, rows=128):
    """The tiny Llama's tensors as Megatron-LM has them: queries, keys and values of a group together, gate over up, layers stacked, vocabulary padded."""
    def stacked(parts): return torch.stack([parts(i) for i in range(layers)])
    def layer(i, name): return tensors[f'model.layers.{i}.{name}.weight']
    def qkv(i):
        q, k, v = (layer(i, f'self_attn.{p}_proj') for p in 'qkv')
        size = q.shape[0] // heads
        split = [q.reshape(groups, heads // groups * size, -1), k.reshape(groups, size, -1), v.reshape(groups, size, -1)]
        return torch.cat(split, dim=1).reshape(-1, q.shape[1])
    def padded(tensor): return torch.cat([tensor, tensor.new_zeros(rows - tensor.shape[0], tensor.shape[1])])
    found = {'decoder.final_layernorm.weight': tensors['model.norm.weight'], 'output_layer.weight': padded(tensors['lm_head.weight']),
             'decoder.layers.self_attention.linear_qkv.weight': stacked(qkv), 'decoder.layers.self_attention.linear_qkv.layer_norm_weight': stacked(lambda i: layer(i, 'input_layernorm')),
             'decoder.layers.self_attention.linear_proj.weight': stacked(lambda i: layer(i, 'self_attn.o_proj')),
             'decoder.layers.mlp.linear_fc1.layer_norm_weight': stacked(lambda i: layer(i, 'post_attention_layernorm')),
             'decoder.layers.mlp.linear_fc1.weight': stacked(lambda i: torch.cat([layer(i, 'mlp.gate_proj'), layer(i, 'mlp.up_proj')])),
             'decoder.layers.mlp.linear_fc2.weight': stacked(lambda i: layer(i, 'mlp.down_proj'))}
    if 'model.embed_tokens.weight' in tensors: found['embedding.word_embeddings.weight'] = padded(tensors['model.embed_tokens.weight'])
    return found


def check_optimizer(ferry, folder, work, report):
    """Moments: of verl as PyTorch gathered them, of DeepSpeed as its own ds_to_universal has them (of stage 3, which nobody gathers, as reshard --to dcp has them)."""
    for name in ('ds/zero2', 'ds/zero3', 'ds/zero2_universal', 'verl/fsdp2'):
        def wrong():
            source, run = f'{folder}/{name}', f'{work}/{name.replace("/", "_")}_run'
            model, moments = parts(f'{folder}/{name.removesuffix("_universal")}.safetensors')
            if not moments:
                call(ferry, 'reshard', f'{folder}/ds/zero3' if name == 'ds/zero3' else f'{folder}/ds/zero2_universal', run + '_dcp', '--to', 'dcp')
                moments = {n: t for n, t in load(run + '_dcp').items() if n.startswith('optimizer.state.exp_avg')}
            expected = {n: t.to(torch.bfloat16) for n, t in megatron_names(model).items()}
            expected |= {f'optimizer.state.param.{n}': t for n, t in megatron_names(model).items()}
            for kind in ('exp_avg', 'exp_avg_sq'):
                prefix = f'optimizer.state.{kind}.'
                of_kind = {n.removeprefix(prefix): t for n, t in moments.items() if n.startswith(prefix)}
                expected |= {prefix + n: t for n, t in megatron_names(of_kind).items()}
            call(ferry, 'convert', source, run, '--to', 'torch_dist', '--optimizer', '--dtype', 'bf16', '--config', f'{folder}/model')
            call(ferry, 'reshard', run, run + '_ranks', '--pp', '2', '--tp', '1', '--dp', '2')
            for at in (run, run + '_ranks'):
                yield from differences({n: t for n, t in load(glob.glob(f'{at}/iter_*')[0]).items() if torch.is_tensor(t)}, expected)
        report.add(f'optimizer of {name}', wrong())


def optimizer_of(model, groups):
    """An AdamW of the groups that Trainer makes, or of one, whose moments are made of the weights."""
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    params = list(model.named_parameters())
    if groups == 2:
        parts = [dict(params=[p for n, p in params if n in decayed], weight_decay=0.1), dict(params=[p for n, p in params if n not in decayed], weight_decay=0.0)]
    else: parts = [dict(params=[p for _, p in params], weight_decay=0.1)]
    optimizer = torch.optim.AdamW(parts, lr=1e-3)
    for _, p in params: optimizer.state[p] = dict(step=torch.tensor(7.0), exp_avg=p.detach() * -0.5, exp_avg_sq=p.detach() ** 2)
    return optimizer


def moment_problems(tensors):
    """For moments that are not made of the weights next to them."""
    with_state = 0
    for name, tensor in tensors.items():
        if name.startswith('optimizer.') or name.endswith(('expert_bias', 'layer_scalar')): continue
        moments = [tensors.get(f'optimizer.state.{kind}.{name}') for kind in ('exp_avg', 'exp_avg_sq')]
        if moments[0] is None: yield f'{name}: has no moments'
        elif name.endswith('.out_norm.weight'):  # which Megatron-LM stores less 1, rounded; its moments are those of the whole
            if not torch.allclose(moments[0].float(), (tensor.float() + 1) * -0.5, rtol=0, atol=4e-3): yield f'{name}: moments of another'
        elif not (torch.equal(moments[0], tensor * -0.5) and torch.equal(moments[1], tensor ** 2)): yield f'{name}: moments of another'
        with_state += moments[0] is not None
    if not with_state: yield 'no moments at all'


def check_counted(ferry, folder, work, report):
    for case, (model_type, _, extra) in CASES.items():
        for groups, file in ((2, 'optimizer.pt'), (1, 'optimizer.bin')):
            def wrong():
                torch.manual_seed(groups)
                base = dict(vocab_size=250, bos_token_id=None, eos_token_id=None) if model_type == 'gpt2' else BASE_CONFIG
                model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **merged(base, extra)), dtype=torch.float32)
                with torch.no_grad():
                    for parameter in model.parameters(): parameter.normal_()
                source = f'{work}/{case}_{groups}'
                model.save_pretrained(source)
                torch.save(optimizer_of(model, groups).state_dict(), f'{source}/{file}')
                call(ferry, 'convert', source, source + '_run', '--to', 'torch_dist', '--optimizer')
                yield from moment_problems(load(f'{source}_run/iter_0000007'))
            report.add(f'counted {case}, {file}', wrong())

    def wrong():
        source = f'{folder}/training/trainer/checkpoint-4'
        model = AutoModelForCausalLM.from_pretrained(source)
        stored = torch.load(f'{source}/optimizer.pt')
        decayed = set(Trainer.get_decay_parameter_names(None, model))
        names = sorted((n for n, _ in model.named_parameters()), key=lambda n: n not in decayed)
        call(ferry, 'convert', source, f'{work}/trainer_run', '--to', 'torch_dist', '--optimizer')
        found = load(f'{work}/trainer_run/iter_0000004')
        expected = {n: t for n, t in found.items() if not n.startswith('optimizer.state.exp_avg')}
        for kind in ('exp_avg', 'exp_avg_sq'):
            moments = {name: stored['state'][i][kind].float() for i, name in enumerate(names)}
            expected |= {f'optimizer.state.{kind}.{n}': t for n, t in megatron_names(moments).items()}
        yield from differences(found, expected)
    report.add("counted, Trainer's own", wrong())


def check_training(ferry, folder, work, report):
    for name in ('accelerate_ranks', 'fsdp1_sharded', 'accelerate_fsdp'):
        def wrong():
            out = f'{work}/{name}'
            yield from converted(ferry, f'{folder}/training/{name}', out, '--config', f'{folder}/model')
            model, moments = parts(f'{folder}/training/{name}.safetensors')
            yield from differences(weights(out), model)
            if not moments: return
            call(ferry, 'convert', f'{folder}/training/{name}', out + '_run', '--to', 'torch_dist', '--optimizer')
            found = {n: t for n, t in load(f'{out}_run/iter_0000001').items() if n.startswith('optimizer.state.exp_avg')}
            expected = {}
            for kind in ('exp_avg', 'exp_avg_sq'):
                prefix = f'optimizer.state.{kind}.'
                of_kind = megatron_names({n.removeprefix(prefix): t for n, t in moments.items() if n.startswith(prefix)})
                expected |= {prefix + n: t for n, t in of_kind.items()}
            yield from differences(found, expected)
        report.add(f'training {name}', wrong())


def main(ferry, folder):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        check_state_dicts(ferry, folder, work, report)
        check_verl(ferry, folder, work, report)
        check_deepspeed(ferry, folder, work, report)
        check_optimizer(ferry, folder, work, report)
        check_counted(ferry, folder, work, report)
        check_training(ferry, folder, work, report)
        if importlib.util.find_spec('torchtitan'):
            from check_torchtitan import check_torchtitan
            check_torchtitan(ferry, work, report)
        else: print('skipped: torchtitan is not installed')
        check_dcp_optimizers(ferry, work, report, moment_problems, differences)
    report.end()


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, '../../fixtures/foreign'))
