"""Holds what ferry makes of other programs' checkpoints against what PyTorch, transformers and those programs make of them.

Usage: check_foreign.py FERRY [FOLDER]     (FOLDER: as tests/fixtures/foreign, the default)
  state dicts   lightning.ckpt, compiled.pt, dcp: transformers loads the Hugging Face folder, tensors equal the model's
  verl          FSDP's ranks: equal what PyTorch gathered (NAME.safetensors); and, where verl is installed, verl.model_merger's bf16 folder
  deepspeed     equal what zero_to_fp32 gave (NAME.safetensors); and, where DeepSpeed is installed, what it gives now
  universal     what ds_to_universal made, moments too
  dcp           reshard --to dcp of ranks, read by PyTorch, moments too
  torchtitan    torchtitan's own adapters, where it is installed: the names and orders of llama, qwen3 and deepseek_v3
Prints a line each; fails when anything differs."""
import glob, importlib.util, os, sys, tempfile
import torch
from checkpoints import Report, call, load
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
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


def main(ferry, folder):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        check_state_dicts(ferry, folder, work, report)
        check_verl(ferry, folder, work, report)
        check_deepspeed(ferry, folder, work, report)
        if importlib.util.find_spec('torchtitan'):
            from check_torchtitan import check_torchtitan
            check_torchtitan(ferry, work, report)
        else: print('skipped: torchtitan is not installed')
    report.end()


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, '../fixtures/foreign'))
