"""Makes tiny random models with transformers and turns them into runs of Megatron-LM with ferry: what run.sh loads there.

Usage: make_models.py FERRY OUT [CASE ...]   (cases of ../interop/fixtures/make_hf_names.py; all by default)
OUT/CASE/logits.npz holds `tokens` and transformers' fp32 `logits`, OUT/CASE/LAYOUT the run, OUT/CASE/LAYOUT.args the arguments that
ferry says to load it with, OUT/CASE/LAYOUT.ranks how many ranks it is for. Needs no GPU."""
import json, os, subprocess, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../interop/fixtures'))
import numpy as np, torch, torch.nn.functional as F
from make_hf_names import CASES
from tiny_models import make_model
from transformers import AutoModelForCausalLM
from transformers.activations import XIELUActivation

TOKENS = (2, 48)
LAYOUTS = {  # name: (ranks, ferry's options); those with experts split want a model that has some
    'tp1': (1, ['--to', 'torch_dist']),
    'tp2': (2, ['--to', 'torch_dist', '--tp', '2']),
    'pp2': (2, ['--to', 'torch_dist', '--pp', '2']),
    'ep2': (2, ['--to', 'torch_dist', '--ep', '2']),
    'tp2ep2': (2, ['--to', 'torch_dist', '--tp', '2', '--ep', '2', '--etp', '1']),
    'vpp2': (2, ['--to', 'torch_dist', '--pp', '2', '--vpp', '2']),
    'torch_tp2': (2, ['--to', 'torch', '--tp', '2']),
}

def activation_of_the_fork(self, x):
    """xIELU as the fork that Apertus comes from has it: its numbers are bf16 in models of any type."""
    alpha_p = F.softplus(self.alpha_p.bfloat16())
    alpha_n = 0.5 + F.softplus(self.alpha_n.bfloat16())
    return torch.where(x > 0, alpha_p * x * x + 0.5 * x, alpha_n * torch.expm1(torch.min(x, self.eps.bfloat16())) - alpha_n * x + 0.5 * x)

def write_logits(folder, path):
    tokens = np.random.RandomState(0).randint(0, 250, TOKENS)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager').eval()
    with torch.no_grad(): np.savez(path, tokens=tokens, logits=model(torch.from_numpy(tokens)).logits.numpy())

def convert(ferry, source, run, arguments):
    done = subprocess.run([ferry, 'convert', source, run, '--json', *arguments], capture_output=True, text=True)
    if done.returncode: sys.exit(done.stderr.strip())
    # The folder may be elsewhere when it is loaded.
    return [flag for flag in json.loads(done.stdout)['load_with'] if not flag.startswith('--load ')]

def main(ferry, out, cases):
    XIELUActivation.forward = activation_of_the_fork
    for case in cases or CASES:
        folder = os.path.join(out, case)
        source = os.path.join(folder, 'hf')
        os.makedirs(source)
        has_experts = make_model(source, case, torch.float32)
        write_logits(source, os.path.join(folder, 'logits.npz'))
        for layout, (ranks, arguments) in LAYOUTS.items():
            if 'ep2' in layout and not has_experts: continue
            if case == 'apertus' and 'torch_dist' in arguments: arguments = [*arguments, '--core-release', '0.11']  # of the swiss-ai fork
            flags = convert(ferry, source, os.path.join(folder, layout), arguments)
            with open(os.path.join(folder, layout + '.args'), 'w') as file: file.write(' '.join(flags) + '\n')
            with open(os.path.join(folder, layout + '.ranks'), 'w') as file: file.write(f'{ranks}\n')
        print(case, flush=True)

if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
