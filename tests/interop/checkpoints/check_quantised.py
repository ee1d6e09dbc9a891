"""Holds quantised weights that ferry writes and reads against the programs that define the forms (quantised_peers.py).

Usage: check_quantised.py FERRY [FOLDER]
FOLDER: as make_quantised.py writes it; by default tests/fixtures/quantised. Needs compressed-tensors and nvidia-modelopt; without them it is skipped.
Per form:
  codes    every tensor of --quantize FORM is that of the peer, byte for byte
  config   quantization_config is one that compressed-tensors or transformers read, and says the same
  values   --dtype bf16 of that is what the peer makes of its own codes, byte for byte; --dtype float32 is near
  cache    no scheme of a KV cache is written, for which there are no scales
"""
import json, os, shutil, subprocess, sys, tempfile, warnings
warnings.filterwarnings('ignore')
sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'fixtures'))
import safetensors.torch, torch

def call(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout

def load(folder): return safetensors.torch.load_file(os.path.join(folder, 'model.safetensors'))

def same(a, b): return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8))

def config_of(folder):
    with open(os.path.join(folder, 'config.json')) as file: return json.load(file)['quantization_config']

def check_config(form, folder):
    config = config_of(folder)
    assert not config.get('kv_cache_scheme'), (form, config)
    if config['quant_method'] == 'compressed-tensors':
        from compressed_tensors.quantization import QuantizationConfig
        read = QuantizationConfig.model_validate({k: v for k, v in config.items() if k != 'quant_method'})
        expected, scheme = peers.scheme_of(form).weights, read.config_groups['group_0'].weights
        for member in ('num_bits', 'type', 'strategy', 'group_size', 'symmetric', 'dynamic', 'scale_dtype'):
            assert getattr(scheme, member) == getattr(expected, member), (form, member, scheme)
        assert 'lm_head' in read.ignore
    elif config['quant_method'] in ('fp8', 'mxfp4'):
        from transformers.quantizers.auto import AutoQuantizationConfig
        read = AutoQuantizationConfig.from_dict(dict(config))
        if form in ('fp8', 'fp8-ue8m0'): assert (list(read.weight_block_size), read.scale_fmt) == ([128, 128], 'ue8m0' if form == 'fp8-ue8m0' else 'float'), read
        assert 'lm_head' in read.modules_to_not_convert
    elif config['quant_method'] == 'modelopt':
        from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
        with open(os.path.join(folder, 'hf_quant_config.json')) as file: expected = convert_hf_quant_config_format(json.load(file))
        assert expected == config, (expected, config)

def check_form(ferry, form, source, work):
    made, values = os.path.join(work, form), os.path.join(work, form + '-values')
    call(ferry, 'convert', source, made, '--to', 'hf', '--quantize', form)
    call(ferry, 'convert', made, values, '--to', 'hf', '--dtype', 'bf16')
    tensors, written, back = load(source), load(made), load(values)
    count = 0
    for name, weight in tensors.items():
        if form == 'mxfp4-gpt-oss':
            parts = {f'_{end}': part for end, part in peers.gpt_oss_parts(weight).items()} if name.endswith(('_up_proj', '.down_proj')) else None
            base = name
        else:
            parts = peers.quantise(form, weight, make_quantised.others_of(name, tensors)) if make_quantised.is_quantised(form, name, weight) else None
            base = name.removesuffix('weight')
        if not parts:
            assert same(written.pop(name), weight) and same(back[name], weight), (form, name)
            continue
        for end, part in parts.items(): assert same(written.pop(base + end), part), (form, name, end)
        expected = peers.gpt_oss_values({k[1:]: v for k, v in parts.items()}) if form == 'mxfp4-gpt-oss' else peers.values(form, parts)
        result = back[name] + 0.0 if form == 'nvfp4' else back[name]  # ModelOpt's table has one zero
        assert same(result, expected), (form, name, (back[name].float() - expected.float()).abs().max())
        count += 1
    assert not written, (form, list(written))
    check_config(form, made)
    print(f'{form}: codes, config and values of {count} weights are those of its program')

def check_zeros(ferry, source, work):
    """A weight of zeros: compressed-tensors' bits; ModelOpt divides by the largest magnitude and writes NaN, ferry zeros."""
    model, name = os.path.join(work, 'zeros'), 'model.layers.0.mlp.down_proj.'
    shutil.copytree(source, model)
    tensors = load(model)
    tensors[name + 'weight'].zero_()
    safetensors.torch.save_file(tensors, os.path.join(model, 'model.safetensors'), {'format': 'pt'})
    for form in ('nvfp4', 'nvfp4-packed'):
        made, values = os.path.join(work, form + '-zeros'), os.path.join(work, form + '-zeros-values')
        call(ferry, 'convert', model, made, '--to', 'hf', '--quantize', form)
        call(ferry, 'convert', made, values, '--to', 'hf', '--dtype', 'bf16')
        assert not load(values)[name + 'weight'].any(), form
        parts, written = peers.quantise(form, tensors[name + 'weight']), load(made)
        if form == 'nvfp4': assert parts['weight_scale'].float().isnan().all(), 'ModelOpt writes a number now: take its bits'
        else: assert all(same(written[name + end], part) for end, part in parts.items()), form
    print('nvfp4, nvfp4-packed: a weight of zeros stays one')

if __name__ == '__main__':
    try: import compressed_tensors, modelopt
    except ImportError as error:
        print(f'skipped: {error}')
        sys.exit(0)
    import make_quantised, quantised_peers as peers
    ferry = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), '..', '..', 'fixtures', 'quantised')
    work = tempfile.mkdtemp()
    try:
        for form in peers.FORMS: check_form(ferry, form, os.path.join(folder, 'model'), work)
        check_zeros(ferry, os.path.join(folder, 'model'), work)
        check_form(ferry, 'mxfp4-gpt-oss', os.path.join(folder, 'gpt_oss'), work)
    finally: shutil.rmtree(work)
