"""Takes tiny models of all causal types of transformers through ferry, and holds every model that comes out against the one that went in.

Usage: check_types.py FERRY [--every N] [TYPE ...]       --every N: each N-th type; without names it is all of them, which takes some minutes
Of each type (tiny_types.py; where it can be made tiny):
  inspect  opens it and counts its parameters;  verify  finds nothing
  bf16     --dtype bf16 loses nothing of such weights: transformers loads all of it and computes the same logits, and diff finds what --dtype fp32 makes of it equal
  fp8      --quantize fp8, and that dequantised: the same logits, nothing missing
  FAMILY   --to torch_dist --family FAMILY, for every family: refused, or back with --to hf transformers computes the same logits
Prints a line a type; fails when logits differ by more than rounding, or a model is incomplete."""
import glob, json, os, sys, tempfile, warnings
warnings.filterwarnings('ignore')
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import torch
from checkpoints import call
from safetensors.torch import load_file
from tiny_types import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, SKIPPED, tiny_model
from transformers import AutoModelForCausalLM
from transformers.utils import logging

BAR = 1e-5  # of the mean size of the logits
FAMILIES = ['apertus', 'deepseek_v2', 'deepseek_v3', 'gemma4_text', 'gpt2', 'llama', 'mistral', 'mixtral', 'qwen2', 'qwen2_moe', 'qwen3', 'qwen3_moe']
TOKENS = torch.arange(1, 33)[None]


class Judge:
    """What transformers computes with a folder, and which keys it misses, held against the original."""

    def __init__(self, folder, model_class):
        self.logits, self.info = self.run(folder, model_class)
        self.model_class = model_class
        if not torch.isfinite(self.logits).all(): raise RuntimeError('the model itself computes no finite logits')

    def run(self, folder, model_class):
        model, info = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager', output_loading_info=True)
        with torch.no_grad(): logits = model.eval()(input_ids=TOKENS, use_cache=False).logits
        return logits, {kind: set(map(str, keys)) for kind, keys in info.items()}

    def problems(self, folder, model_class=None):
        try: logits, info = self.run(folder, model_class or self.model_class)
        except Exception as error: return [f'transformers: {type(error).__name__}: {" ".join(str(error).split())[:200]}']
        found = [f'{kind}: {sorted(keys - self.info.get(kind, set()))[:3]}' for kind, keys in info.items() if keys - self.info.get(kind, set())]
        if logits.shape != self.logits.shape: return found + [f'logits of shape {tuple(logits.shape)}']
        distance = ((logits - self.logits).abs().max() / self.logits.abs().mean()).item()
        return found + ([] if distance <= BAR else [f'logits differ by {distance:.2g} of their mean'])


def attempt(what, steps):
    """(done, problems) of steps, a generator of problems; a refusal by ferry is not a problem but not done."""
    try: return True, [f'{what}: {problem}' for problem in steps]
    except RuntimeError as error: return False, [f'{what}: {error}']


def new_form(ferry, hf, judge, work):
    bf16, again = f'{work}/bf16', f'{work}/again'
    call(ferry, 'convert', hf, bf16, '--to', 'hf', '--dtype', 'bf16')
    yield from judge.problems(bf16)
    call(ferry, 'verify', bf16)
    call(ferry, 'convert', bf16, again, '--to', 'hf', '--dtype', 'fp32')
    call(ferry, 'diff', hf, again, '--quiet')


def fp8_form(ferry, hf, judge, work):
    fp8, plain = f'{work}/fp8', f'{work}/plain'
    call(ferry, 'convert', hf, fp8, '--to', 'hf', '--quantize', 'fp8')
    call(ferry, 'verify', fp8)
    call(ferry, 'convert', fp8, plain, '--to', 'hf', '--dtype', 'bf16')
    yield from judge.problems(plain)


def forced(ferry, hf, judge, family, work):
    run, back = f'{work}/{family}', f'{work}/{family}_back'
    call(ferry, 'convert', hf, run, '--to', 'torch_dist', '--family', family)
    call(ferry, 'verify', run)
    call(ferry, 'convert', run, back, '--to', 'hf')
    yield from judge.problems(back, AutoModelForCausalLM)


def look(ferry, hf):
    call(ferry, 'verify', hf)
    found = json.loads(call(ferry, 'inspect', hf, '--json'))
    expected = sum(t.numel() for file in glob.glob(f'{hf}/*.safetensors') for t in load_file(file).values() if t.is_floating_point())
    if found['parameters'] != expected: yield f'{found["parameters"]} parameters, the files hold {expected}'


def check(ferry, model_type, work):
    """A summary, problems, and refusals."""
    hf = f'{work}/hf'
    model = tiny_model(model_type)
    model.save_pretrained(hf)
    judge = Judge(hf, type(model))
    _, problems = attempt('inspect', look(ferry, hf))
    done = []
    for name, form in ('bf16', new_form), ('fp8', fp8_form):
        made, found = attempt(name, form(ferry, hf, judge, work))
        refused = not made and 'no weight of a linear layer' in found[0]  # those of GPT-2's kind are no such layers
        problems += [] if refused else found
    for family in FAMILIES:
        accepted, found = attempt(family, forced(ferry, hf, judge, family, work))
        if not accepted: continue
        done.append(family)
        problems += found
    return done, problems


def main(ferry, every, names):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    failed = 0
    for model_type in names or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)[::every]:
        if model_type in SKIPPED:
            print(f'{model_type:24} skipped: {SKIPPED[model_type]}')
            continue
        with tempfile.TemporaryDirectory() as work:
            done, problems = check(ferry, model_type, work)
        failed += bool(problems)
        print(f'{model_type:24} {"" if not done else "as " + ", ".join(done) + ": "}{"; ".join(problems) or "ok"}', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    arguments = sys.argv[2:]
    every = int(arguments[1]) if arguments[:1] == ['--every'] else 1
    sys.exit(main(sys.argv[1], every, arguments[2 if arguments[:1] == ['--every'] else 0:]))
