"""ferry check says nothing of what transformers itself saves.

Usage: check_folders.py FERRY [--every N] [TYPE ...]       --every N: each N-th type; without names it is all of them
Of each causal type (tiny_types.py), of encoders and of models of several parts (OTHERS): saved by transformers in fp32, bf16 and fp16, in one file and in shards,
next to a tokenizer of a few tokens. Their layers are so many (where a type allows it) that those of one kind can be compared.
Prints the types of which something is said; fails when there are any."""
import json, os, subprocess, sys, tempfile, warnings
warnings.filterwarnings('ignore')
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import torch, transformers
from tiny_types import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, SKIPPED, tiny_config, tiny_model
from transformers.utils import logging

# Types that have no causal class, each with the one that saves it.
OTHERS = {
    'albert': 'AlbertForMaskedLM', 'bert': 'BertModel', 'blip': 'BlipForConditionalGeneration', 'clap': 'ClapModel', 'clip': 'CLIPModel',
    'deberta-v2': 'DebertaV2ForMaskedLM', 'dinov2': 'Dinov2Model', 'distilbert': 'DistilBertForSequenceClassification',
    'electra': 'ElectraForPreTraining', 'gemma3': 'Gemma3ForConditionalGeneration', 'hubert': 'HubertModel', 'idefics3': 'Idefics3ForConditionalGeneration',
    'llava': 'LlavaForConditionalGeneration', 'm2m_100': 'M2M100ForConditionalGeneration', 'mamba': 'MambaModel', 'mbart': 'MBartForConditionalGeneration',
    'mistral3': 'Mistral3ForConditionalGeneration', 'modernbert': 'ModernBertForMaskedLM', 'mt5': 'MT5ForConditionalGeneration', 'opt': 'OPTForSequenceClassification',
    'owlvit': 'OwlViTModel', 'qwen2': 'Qwen2ForTokenClassification', 'qwen2_5_vl': 'Qwen2_5_VLForConditionalGeneration',
    'qwen2_audio': 'Qwen2AudioForConditionalGeneration', 'qwen2_vl': 'Qwen2VLForConditionalGeneration', 'qwen3': 'Qwen3ForSequenceClassification',
    'qwen3_vl': 'Qwen3VLForConditionalGeneration', 'qwen3_vl_moe': 'Qwen3VLMoeForConditionalGeneration', 'segformer': 'SegformerModel',
    'siglip': 'SiglipModel', 't5': 'T5ForConditionalGeneration', 'vit': 'ViTModel', 'wav2vec2': 'Wav2Vec2ForCTC', 'whisper': 'WhisperForConditionalGeneration',
}
TOKENIZER = {'version': '1.0', 'added_tokens': [], 'model': {'type': 'WordLevel', 'vocab': {'<s>': 0, 'a': 1, 'b': 2}, 'unk_token': '<s>'}}


LAYERS = 9

# What is said of a type, and why that is right or cannot be known.
KNOWN = {
    'mtp': 'config.json counts layers that the class neither loads nor saves', 'tie': 'saved though config.json ties it',
    'mllama': 'warning shape: model.embed_tokens.weight: has 264 rows',
    'moshi': 'warning shape: model.embed_tokens.weight: has 257 rows',
}


def is_known(name, finding):
    return finding.startswith(('warning mtp:', 'warning tie:')) or name in KNOWN and finding.startswith(KNOWN[name])


def findings(ferry, folder, *options):
    with open(f'{folder}/tokenizer.json', 'w') as file: json.dump(TOKENIZER, file)
    done = subprocess.run([ferry, 'check', folder, '--json', *options], capture_output=True, text=True)
    if done.returncode not in (0, 4): return [done.stderr.strip()]
    return [f'{each["severity"]} {each["kind"]}: {each["message"][:300]}' for each in json.loads(done.stdout)['findings']]


def deep(make):
    """What make(layers) makes of more layers, or of the usual ones where a type has a list of them."""
    try: return make(LAYERS)
    except Exception: return make(4)


def check(ferry, model):
    for config in model.config, model.generation_config if model.can_generate() else None:
        if isinstance(getattr(config, 'eos_token_id', None), list): config.eos_token_id = 1  # tiny vocabularies lack the others
    with tempfile.TemporaryDirectory() as work:
        model.save_pretrained(f'{work}/one')
        for dtype in 'bfloat16', 'float16':
            type(model).from_pretrained(f'{work}/one', dtype=getattr(torch, dtype)).save_pretrained(f'{work}/{dtype}')
            yield from findings(ferry, f'{work}/{dtype}', '--for', 'transformers')
        model.save_pretrained(f'{work}/shards', max_shard_size='200kB')
        yield from findings(ferry, f'{work}/one')
        yield from findings(ferry, f'{work}/one', '--for', 'transformers')
        yield from findings(ferry, f'{work}/shards', '--for', 'transformers', '--like', f'{work}/one')


def main(ferry, every, names):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    models = {name: (lambda name=name: deep(lambda layers: tiny_model(name, layers=layers))) for name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) if name not in SKIPPED}
    for name, kind in OTHERS.items():
        models[f'{name}:{kind}'] = lambda name=name, kind=kind: deep(lambda layers: getattr(transformers, kind)(tiny_config(name, layers)))
    failed = checked = 0
    for name in names or list(models)[::every]:
        try: model = models[name]()
        except Exception as error:
            print(f'{name}: cannot be made: {type(error).__name__}: {str(error)[:120]}', flush=True)
            continue
        found = [each for each in check(ferry, model) if not is_known(name, each)]
        checked += 1
        failed += bool(found)
        if found: print(f'{name}:\n    ' + '\n    '.join(dict.fromkeys(found)), flush=True)
    print(f'check: nothing said of {checked - failed} of {checked} types')
    return 1 if failed else 0


if __name__ == '__main__':
    arguments = sys.argv[2:]
    every = int(arguments[1]) if arguments[:1] == ['--every'] else 1
    sys.exit(main(sys.argv[1], every, arguments[2 if arguments[:1] == ['--every'] else 0:]))
