"""Converts Megatron checkpoints with ferry and compares the logits that transformers computes with Megatron's own.

Usage: check_logits.py FERRY [--golden OUT_DIR] [FOLDER ...]
A FOLDER holds NAME (a Megatron run folder) and NAME.npz (`tokens`, and the `logits` that Megatron-LM computed in fp32 from that
checkpoint, perhaps those of MTP layers: `further_logits` or `mtp_logits_0`). Every NAME is converted, loaded with eager attention in fp32 (no key may be missing or unexpected, no shape may differ), and the
largest difference on the vocabulary columns that both have is held against the mean |logit|. Prints a table; fails when any is above its bar. --golden records what was
written, as OUT_DIR/NAME.json (config, and dtype, shape and XXH3-128 of every tensor): the C++ tests hold ferry against those files."""
import glob, json, os, struct, subprocess, sys, tempfile
import numpy as np, torch, xxhash
from transformers import AutoModelForCausalLM
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3PreTrainedModel
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoePreTrainedModel
from transformers.utils import logging

# What a right conversion gives is 1e-6 to 5e-6: looser bars hide dropped biases, norms, epsilons, rope scaling. Apertus: Megatron takes the
# softplus of its activation's parameters in bf16. gpt-oss with large weights: rounding alone, by which transformers' logits in fp32 differ from its own in
# fp64, is more than that, and the bar is that.
BAR, APERTUS_BAR = 8e-6, 3e-3

OF_FURTHER_FAMILIES = 'g_'  # names of runs of which some are of families, or hold adapters, that ferry says it does not convert

def refusal(ferry, folder, out):
    """Why ferry converts no such model, if it says so in a line; else empty."""
    done = subprocess.run([ferry, 'convert', folder, out, '--to', 'hf', '--dry-run'], capture_output=True, text=True)
    return ' '.join(done.stderr.split())[:150] if done.returncode in (5, 6) else ''

def rounding(out, tokens, logits, mean):
    """By how much the same model's logits in fp64 differ."""
    exact = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float64, attn_implementation='eager', experts_implementation='eager').eval()
    with torch.no_grad(): return float(np.abs(exact(tokens).logits.numpy() - logits).max()) / mean

def check(ferry, folder, out):
    subprocess.run([ferry, 'convert', folder, out, '--to', 'hf'], check=True, stdout=subprocess.DEVNULL)
    config = json.load(open(os.path.join(out, 'config.json')))
    if config.get('num_nextn_predict_layers'):  # transformers knows the places of the MTP layers of published models only
        first = config['num_hidden_layers']
        numbers = '|'.join(str(first + k) for k in range(config['num_nextn_predict_layers']))
        for of_class in DeepseekV3PreTrainedModel, Glm4MoePreTrainedModel: of_class._keys_to_ignore_on_load_unexpected = [rf'model\.layers\.({numbers})\.']
    model, info = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation='eager', output_loading_info=True)
    problems = [f'{kind}: {sorted(map(str, keys))[:4]}' for kind, keys in info.items() if keys]
    for name, module in model.named_modules():  # transformers fixes the epsilon of the latent norms, as ferry's note says
        if name.endswith('_a_layernorm'): module.variance_epsilon = config['rms_norm_eps']
        if hasattr(module, 'time_step_limit'): module.time_step_limit = (0.0, float('inf'))  # as Megatron, as ferry's note says
    reference = np.load(folder + '.npz')
    tokens = torch.from_numpy(reference['tokens']).long()
    with torch.no_grad():
        logits = [model.eval()(tokens).logits.float().numpy()]
        expected = [reference['logits']]
        mtp = list(reference.get('further_logits', [])) or [reference[name] for name in sorted(reference.files) if name.startswith('mtp_logits_')]
        if mtp:
            logits += mtp_logits(model, tokens, out)
            expected += mtp
        if len(logits) != len(expected): problems.append(f'logits of {len(logits) - 1} MTP layers, not of {len(expected) - 1}')
    columns = min(logits[0].shape[-1], expected[0].shape[-1])
    difference = relative = 0
    for k, (ours, theirs) in enumerate(zip(logits, expected)):
        rows = theirs.shape[1] - k  # what was rolled in at the end is of no sequence
        theirs = theirs[:, :rows, :columns]
        distance = float(np.abs(ours[:, :rows, :columns] - theirs).max())
        difference, relative = max(difference, distance), max(relative, distance / float(np.abs(theirs).mean()))
    bar = APERTUS_BAR if config['model_type'] == 'apertus' else BAR
    if relative > bar and config['model_type'] == 'gpt_oss': bar = rounding(out, tokens, logits[0], float(np.abs(expected[0]).mean()))
    if not relative <= bar: problems.append('logits differ')
    return config['model_type'], columns, difference, relative, problems

def mtp_tensors(out, prefix):
    """Those under a prefix, without it, in fp32 and with fused experts."""
    from safetensors import safe_open
    with safe_open(os.path.join(out, 'model.safetensors'), 'pt') as file:
        tensors = {name[len(prefix):]: file.get_tensor(name).float() for name in file.keys() if name.startswith(prefix)}
    for module in {name[:name.index('experts.0.')] for name in tensors if '.experts.0.' in name and '.layers.' not in name and not name.startswith('layers.')}:
        parts = [part for part in ('gate_proj', 'up_proj', 'down_proj') if f'{module}experts.0.{part}.weight' in tensors]
        count = sum(name.startswith(f'{module}experts.') and name.endswith('down_proj.weight') for name in tensors)
        stacks = {part: torch.stack([tensors.pop(f'{module}experts.{e}.{part}.weight') for e in range(count)]) for part in parts}
        if 'gate_proj' in stacks: stacks['gate_up_proj'] = torch.cat([stacks.pop('gate_proj'), stacks.pop('up_proj')], 1)
        tensors.update({f'{module}experts.{part}': stack for part, stack in stacks.items()})
    return tensors

def rms_norm(x, weight, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight

def causal_mask(config, x, positions):
    from transformers.masking_utils import create_causal_mask
    return create_causal_mask(config=config, inputs_embeds=x, attention_mask=None, past_key_values=None, position_ids=positions)

def qwen3_next_mtp_logits(model, tokens, out):
    """Those of the MTP layer, which transformers leaves out: built of its classes by hand."""
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextDecoderLayer
    config, tensors = model.config, mtp_tensors(out, 'mtp.')
    config.layer_types = [*config.layer_types, 'full_attention']
    layer = Qwen3NextDecoderLayer(config, config.num_hidden_layers).float().eval()
    layer.load_state_dict(mtp_tensors(out, 'mtp.layers.0.'))
    def norm(name, x): return rms_norm(x, 1 + tensors[name + '.weight'], config.rms_norm_eps)
    embedded = model.model.embed_tokens(torch.roll(tokens, -1, dims=1))
    hidden = model.model(tokens, use_cache=False).last_hidden_state
    x = torch.cat([norm('pre_fc_norm_embedding', embedded), norm('pre_fc_norm_hidden', hidden)], -1) @ tensors['fc.weight'].T
    positions = torch.arange(tokens.shape[1])[None]
    x = layer(x, position_embeddings=model.model.rotary_emb(x, positions), attention_mask=causal_mask(config, x, positions), position_ids=positions)
    return [model.lm_head(norm('norm', x[0] if isinstance(x, tuple) else x)).float().numpy()]

def nemotron_mtp_logits(model, tokens, out):
    """Likewise, of one MTP layer that holds several."""
    from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHBlock
    config = model.config
    kinds = config.mtp_layers_block_type
    first, last = mtp_tensors(out, 'mtp.layers.0.'), mtp_tensors(out, f'mtp.layers.{len(kinds) - 1}.')
    config.layers_block_type = [*config.layers_block_type, *kinds]
    def norm(x, weight): return rms_norm(x, weight, config.layer_norm_epsilon)
    embedded = model.model.embeddings(torch.roll(tokens, -1, dims=1))
    hidden = model.model(tokens, use_cache=False).last_hidden_state
    x = torch.cat([norm(embedded, first['enorm.weight']), norm(hidden, first['hnorm.weight'])], -1) @ first['eh_proj.weight'].T
    positions = torch.arange(tokens.shape[1])[None]
    for k, kind in enumerate(kinds):
        block = NemotronHBlock(config, len(config.layers_block_type) - len(kinds) + k).float().eval()
        block.load_state_dict({name: tensor for name, tensor in mtp_tensors(out, f'mtp.layers.{k}.').items() if name.startswith(('norm.', 'mixer.'))})
        x = block(x, attention_mask=causal_mask(config, x, positions) if kind == 'full_attention' else None, position_ids=positions)
    return [model.lm_head(norm(x, last['final_layernorm.weight'])).float().numpy()]

def mtp_logits(model, tokens, out):
    """Those of the MTP layers, as transformers' speculative decoding runs them."""
    if model.config.model_type == 'qwen3_next': return qwen3_next_mtp_logits(model, tokens, out)
    if model.config.model_type == 'nemotron_h': return nemotron_mtp_logits(model, tokens, out)
    from transformers.cache_utils import MtpCache
    from transformers.modeling_layers import MtpModel
    mtp = MtpModel.from_pretrained(model).float().eval()
    hidden, cache = model.model(tokens).last_hidden_state, MtpCache(config=model.config.get_mtp_config())
    result = []
    for k in range(model.config.num_nextn_predict_layers):
        positions = torch.arange(tokens.shape[1])[None] + k + 1
        hidden = mtp.forward_layer(k, hidden, positions, cache, input_ids=torch.roll(tokens, -(k + 1), dims=1))
        result.append(model.lm_head(hidden).float().numpy())
    return result

def record(out, path):
    tensors = {}
    for file in sorted(glob.glob(os.path.join(out, '*.safetensors'))):
        data = open(file, 'rb').read()
        start = 8 + struct.unpack('<Q', data[:8])[0]
        for name, t in json.loads(data[8:start]).items():
            if name != '__metadata__':
                begin, end = t['data_offsets']
                tensors[name] = dict(dtype=t['dtype'], shape=t['shape'], xxh3_128=xxhash.xxh3_128_hexdigest(data[start + begin:start + end]))
    with open(path, 'w') as f:
        json.dump(dict(config=json.load(open(os.path.join(out, 'config.json'))), tensors=tensors), f, indent=1, sort_keys=True)
        f.write('\n')

def main(ferry, folders, golden):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    failed = 0
    print(f'{"checkpoint":24} {"family":12} {"columns":>7} {"max |diff|":>10} {"/ mean |logit|":>14}')
    for reference in sorted(r for folder in folders for r in glob.glob(os.path.join(folder, '*.npz'))):
        folder = reference[:-len('.npz')]
        with tempfile.TemporaryDirectory() as temporary:
            out = os.path.join(temporary, 'hf')
            if os.path.basename(folder).startswith(OF_FURTHER_FAMILIES) and (reason := refusal(ferry, folder, out)):
                print(f'{os.path.basename(folder):24} refused: {reason}', flush=True)
                continue
            family, columns, difference, relative, problems = check(ferry, folder, out)
            if golden: record(out, os.path.join(golden, os.path.basename(folder) + '.json'))
        failed += bool(problems)
        print(f'{os.path.basename(folder):24} {family:12} {columns:7} {difference:10.2e} {relative:14.2e} {"; ".join(problems) or "ok"}', flush=True)
    return 1 if failed else 0

if __name__ == '__main__':
    here = os.path.dirname(os.path.abspath(__file__))
    arguments = sys.argv[2:]
    golden = arguments[1] if arguments[:1] == ['--golden'] else None
    known = ('../../fixtures/megatron', '../../fixtures/core', '../../../../shared/peers/megatron')
    folders = arguments[2 if golden else 0:] or [f for f in (os.path.join(here, k) for k in known) if os.path.isdir(f)]
    sys.exit(main(sys.argv[1], folders, golden))
