"""Lets Megatron-LM itself, on a CPU, load what ferry made and go on from what it resharded.

    check_megatron.py FERRY FOLDER PEERS     FOLDER: what runs Megatron-LM; PEERS: a folder of run folders with logs/, and with ../data

FOLDER holds mlm (a tree of Megatron-LM), te_stub and ssm_stub (stand-ins for Transformer Engine and others), cpu_driver.py (runs jobs with torch.cuda pretended) and
venv/bin/python (3.12 with torch, einops, triton, numpy).
  logits   transformers' tiny models of CASES become runs at each of LAYOUTS; the logits are transformers' to 8e-6 of their mean size (gated delta nets: 1e-4)
  losses   runs are resharded, optimizer included, and continued at each of LAYOUTS: losses (MTP layers' and balancing ones, too) are those of Megatron-LM's own continuation, to 1e-5 in fp32 and 5e-5 in bf16
  trained  `ferry train` continues those of TRAINED at each of LAYOUTS and saves at iteration SAVED, from which Megatron-LM goes on at the same layout: losses as before
Prints a table; fails when anything differs."""
import json, os, re, shlex, subprocess, sys, tempfile
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import numpy as np, torch
from checkpoints import call
from tiny_models import make_model
from transformers import AutoModelForCausalLM

CASES = ['glm4_moe', 'glm4_moe_plain', 'gpt_oss', 'deepseek_v32', 'glm_moe_dsa', 'glm_moe_dsa_shared', 'hy_v3', 'ernie4_5', 'ministral3', 'smollm3_listed', 'seed_oss', 'phi3', 'glm4_moe_lite',
         'qwen3_next', 'qwen3_5_text', 'qwen3_5_moe_text', 'nemotron_h', 'nemotron_h_latent']
# Options of ferry, arguments of Megatron-LM.
LAYOUTS = {'TP2': ('--tp 2', '--tensor-model-parallel-size 2 --sequence-parallel'),
           'EP2': ('--ep 2 --etp 1', '--expert-model-parallel-size 2 --expert-tensor-parallel-size 1'),
           'PP2': ('--pp 2', '--pipeline-model-parallel-size 2')}
STAGES = {part: ' --decoder-first-pipeline-num-layers 3' for part in ('nemotron3', 'dsa_shared')}  # an odd number of layers; a layer with another's indexer, which must be in one stage
BAR = 8e-6
# Models with gated delta nets: transformers' own fp32 is 2.5e-5 to 5.4e-5 away from its fp64.
BARS = {'qwen3_next': 1e-4, 'qwen3_5_text': 1e-4, 'qwen3_5_moe_text': 1e-4}
# In bf16 Megatron-LM's own continuations of a mixture, on one rank and on two, are up to 3.9e-5 apart.
LOSS_BARS = {'g_f32_glm45_mtp': 1e-5, 'g_glm45_mtp': 5e-5, 'g_f32_gptoss': 1e-5, 'g_f32_qwen3next': 1e-5, 'g_f32_nemotron3': 1e-5}
OF_TRAINING = {'glm45': '--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4', 'gptoss': '--no-bias-dropout-fusion --expert-tensor-parallel-size 1 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3',
               'nemotron': '--disable-mamba-mem-eff-path'}  # what a model does not say, by a part of the run's name
PROGRAMS = {'nemotron': 'pretrain_hybrid.py'}
TRAINED = ['g_f32_gptoss', 'g_f32_glm45_mtp']
BEGUN, SAVED, LAST = 5, 8, 12  # iterations: of the runs, of what ferry train saves, of the continuations
IN_FP32 = {'deepseek_v32': ['--no-dsa-indexer-rotate-activation'], 'nemotron_h': ['--disable-mamba-mem-eff-path'], 'nemotron_h_latent': ['--disable-mamba-mem-eff-path']}  # which Megatron-LM has for bf16 alone
ON_CPU = ('--distributed-backend gloo --no-rope-fusion --no-persist-layer-norm --no-gradient-accumulation-fusion --no-masked-softmax-fusion --attention-backend unfused '
          '--ckpt-format torch_dist --vocab-size 250')
TRAINING = ('--use-checkpoint-args --split 99,1,0 --seq-length 64 --micro-batch-size 2 --global-batch-size 8 --lr 1e-3 --min-lr 1e-4 --lr-decay-iters 100 --lr-warmup-iters 5 '
            '--lr-decay-style cosine --weight-decay 0.1 --adam-beta2 0.95 --tokenizer-type NullTokenizer --make-vocab-size-divisible-by 32 --log-interval 1 --attention-dropout 0 '
            '--hidden-dropout 0 --train-iters 30 --eval-iters 0 --eval-interval 1000 --transformer-impl transformer_engine --seed 1234')
HERE = os.path.dirname(os.path.abspath(__file__))

def run_jobs(folder, jobs, work):
    """Whether each went well, by name."""
    with open(f'{work}/jobs', 'w') as file: file.writelines(json.dumps(job) + '\n' for job in jobs)
    environment = {**os.environ, 'G': folder, 'MLM': f'{folder}/mlm', 'PYTHONPATH': ':'.join(f'{folder}/{part}' for part in ('te_stub', 'ssm_stub', 'mlm')),
                   'CUDA_DEVICE_MAX_CONNECTIONS': '1', 'TORCHDYNAMO_DISABLE': '1'}
    out = subprocess.run([f'{folder}/venv/bin/python', f'{folder}/cpu_driver.py', f'{work}/jobs', '2'], capture_output=True, text=True, env=environment)
    done = dict(re.findall(r'^(\S+) (ok|FAILED|skip)', out.stdout, re.M))
    return {job['name']: done.get(job['name']) == 'ok' for job in jobs}

def job(name, work, words, environment={}, ranks=2):
    return dict(name=name, np=ranks, log=f'{work}/{name}.log', env=environment, after=[], argv=words)

def logits_jobs(ferry, work):
    for case in CASES:
        model = f'{work}/{case}'
        has_experts = make_model(model, case)
        tokens = np.random.RandomState(0).randint(0, 250, (2, 48))
        with torch.no_grad(): logits = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()(torch.tensor(tokens)).logits.numpy()
        np.savez(f'{work}/{case}.npz', tokens=tokens, logits=logits)
        for layout, (options, _) in LAYOUTS.items():
            if layout == 'EP2' and not has_experts: continue
            if layout == 'PP2': options += by_run(STAGES, case)
            name = f'{case}_{layout}'
            said = call(ferry, 'convert', model, f'{work}/{name}', '--to', 'torch_dist', '--dtype', 'fp32', *options.split())
            words = shlex.split(re.search(r'^load with (.*)$', said, re.M)[1]) + IN_FP32.get(case, [])
            yield job(name, work, [f'{HERE}/megatron_logits.py', *words, '--micro-batch-size', '1', '--seq-length', '48', '--max-position-embeddings', '64', *ON_CPU.split()],
                      {'TOKENS': f'{work}/{case}.npz', 'LOGITS': f'{work}/{name}'})

def distance(work, case, layout):
    """The largest difference of all logits, over their mean size."""
    right = np.load(f'{work}/{case}.npz')['logits']
    parts = [np.load(f'{work}/{case}_{layout}.{rank}.npz')['logits'] for rank in ((1,) if layout == 'PP2' else (0, 1))]
    wholes = [np.concatenate(parts, -1)] if layout == 'TP2' else parts
    return max(float(np.abs(whole[..., :250] - right).max() / np.abs(right).mean()) for whole in wholes)

def by_run(table, run, otherwise=''): return next((value for part, value in table.items() if part in run), otherwise)

def model_flags(ferry, run, work):
    """What the command line must say of the model besides --use-checkpoint-args, as ferry says it of its Hugging Face form."""
    call(ferry, 'convert', run, f'{work}/hf', '--to', 'hf', '--overwrite')
    said = call(ferry, 'convert', f'{work}/hf', f'{work}/again', '--to', 'torch_dist', '--overwrite')
    words = shlex.split(re.search(r'^load with (.*)$', said, re.M)[1])
    words = words[words.index('--use-checkpoint-args') + 1:]
    if '--hybrid-layer-pattern' in words:  # which the run has, with its stages
        at = words.index('--hybrid-layer-pattern')
        del words[at:at + 2]
    return words

def trained(ferry, load, save, words, ranks):
    """Continues a run with ferry train, all ranks in one process."""
    call(ferry, 'train', '--device', 'cpu', '--load', load, '--save', save, '--save-interval', '100', *words, '--exit-interval', str(SAVED), *ranks.split())

def training_jobs(ferry, peers, work):
    data = os.path.realpath(f'{peers}/../data/corpus_a_text_document')
    for run in LOSS_BARS:
        precision = [] if 'f32' in run else ['--use-distributed-optimizer']
        flags = [*model_flags(ferry, f'{peers}/{run}', work), *by_run(OF_TRAINING, run).split()]
        program = by_run(PROGRAMS, run, 'pretrain_gpt.py')
        def continued(name, load, more, ranks):
            return job(name, work, [program, '--load', load, '--data-path', data, '--data-cache-path', f'{work}/cache_{name}', *TRAINING.split(), *flags, *ON_CPU.split(),
                                    *precision, '--exit-interval', str(LAST), *more.split()], ranks=ranks)
        yield continued(f'{run}_alone', f'{peers}/{run}', '', 1)
        for layout, (options, arguments) in LAYOUTS.items():
            if layout == 'PP2': options += by_run(STAGES, run)
            if 'gptoss' in run and layout == 'TP2': options += ' --etp 1'  # biases of experts stay whole
            call(ferry, 'reshard', f'{peers}/{run}', f'{work}/{run}_{layout}', *options.split(), *(['--dp', '2'] if layout == 'EP2' else []))
            yield continued(f'{run}_{layout}', f'{work}/{run}_{layout}', arguments, 2)
            if run not in TRAINED: continue
            name, ranks = f'{run}_trained_{layout}', f'{arguments} --data-parallel-size 2' if layout == 'EP2' else arguments
            trained(ferry, f'{peers}/{run}', f'{work}/{name}', ['--data-path', data, '--data-cache-path', f'{work}/cache_{name}', *TRAINING.split(), *flags, '--vocab-size', '250'], ranks)
            yield continued(name, f'{work}/{name}', arguments, 2)

def losses(work, name):
    """All losses that the line of an iteration has, by its number. The second line of a job has the means of its first two iterations."""
    with open(f'{work}/{name}.log') as log:
        found = {int(n): [float(loss) for loss in re.findall(r'loss: (\S+)', rest)] for n, rest in re.findall(r'iteration +(\d+)/ (.*)', log.read())}
    if len(found) > 1:
        first, second = list(found)[:2]
        found[second] = [2 * mean - before for before, mean in zip(found[first], found[second])]
    return found

def main(ferry, folder, peers):
    failed = 0
    def report(name, good, text):
        nonlocal failed
        failed += not good
        print(f'{name:28} {text} {"ok" if good else "FAILED"}', flush=True)
    with tempfile.TemporaryDirectory() as work:
        done = run_jobs(folder, [*logits_jobs(ferry, work), *training_jobs(ferry, peers, work)], work)
        for case in CASES:
            for layout in LAYOUTS:
                name = f'{case}_{layout}'
                if name not in done: continue
                found = distance(work, case, layout) if done[name] else float('nan')
                report(name, found <= BARS.get(case, BAR), f'logits {found:.2e} of their mean size')
        for run, bar in LOSS_BARS.items():
            alone = losses(work, f'{run}_alone')
            for name in [f'{run}{kind}_{layout}' for kind in ('', '_trained') for layout in LAYOUTS]:
                if name not in done: continue
                ours = losses(work, name) if done[name] else {}
                found = max((abs(b - a) / (abs(a) or 1) for i in ours for a, b in zip(alone[i], ours[i], strict=True)), default=float('nan'))
                first = SAVED if '_trained_' in name else BEGUN
                report(name, list(ours) == list(range(first + 1, LAST + 1)) and found <= bar, f'{len(ours)} iterations: losses {found:.1e}')
        if failed:
            for name, good in done.items():
                if not good:
                    with open(f'{work}/{name}.log') as log: print(f'{name}:\n{log.read()[-600:]}')
    return 1 if failed else 0

if __name__ == '__main__':
    sys.exit(main(os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2]), os.path.realpath(sys.argv[3])))
