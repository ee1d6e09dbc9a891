"""Holds what ferry makes of runs with Muon against PyTorch and, where it can run, Megatron Core's own loader.

    check_muon.py FERRY RUNS [MEGATRON]      RUNS: tests/fixtures/muon: CASE_FORM run folders and CASE.json; MEGATRON: a tree of Megatron-LM, of May 2026 or later

Each run is resharded to LAYOUTS in every form, and from there to a tensor a parameter: PyTorch must find the state of CASE.json, bit by bit, under the names
that Megatron-LM gives it. With MEGATRON (and emerging-optimizers, triton and psutil, see make_muon_runs.py) its own optimizers load what ferry wrote at the layouts
of CORE and hold every value of every rank. Prints a line each; exit 1 on a difference."""
import glob
import json
import os
import subprocess
import sys
import tempfile

from checkpoints import Report, differences, digests, iteration_folder, load, reshard

LAYOUTS = ['--tp 1 --dp 1', '--tp 2 --dp 1', '--tp 2 --dp 3', '--tp 1 --dp 4']
FORMS = {'full': '--optimizer fully_reshardable', 'dpr': '--optimizer dp_reshardable', 'files': '--to torch'}
CHAIN_FORMS = {'plain': '--to torch_dist', 'chain': '--to torch'}  # without a layer-wise optimizer
CORE = {'dense': ('--tp 2 --ep 1', 2, (1, 2)), 'experts': ('--tp 1 --ep 2 --etp 1', 1, (2,))}  # layout, tensor and data ranks


def own_names(path, split):
    """Whether those parameters have state of a plain optimizer, under its names, that have one: matrices alone where the rest has a distributed one."""
    names = load(path)
    plain = {name.split('fp32_param.')[1] for name in names if 'fp32_param.' in name}
    momentum = {name.split('momentum_buffer.')[1] for name in names if 'momentum_buffer.' in name}
    moments = {name for name in names if 'optimizer.state.exp_avg' in name and name.split('.', 3)[3] in plain}
    prefixed = all(name.startswith('chained_0.') for name in names if 'fp32_param.' in name or 'momentum_buffer.' in name)
    if split and (plain != momentum or moments) or not split and not plain > momentum:
        yield f'masters of {sorted(plain ^ momentum)} are not those of their optimizer'
    if split and prefixed != any('bucket_idx' in name for name in names):
        yield 'keys of a chain without buckets, or the other way round'


def main():
    ferry, runs = sys.argv[1:3]
    megatron = sys.argv[3] if len(sys.argv) > 3 else None
    report = Report()
    for run in sorted(glob.glob(f'{runs}/*_*/')):
        name = os.path.basename(run.rstrip('/'))
        case = name.split('_')[0]
        with open(f'{runs}/{case}.json') as file:
            truth = json.load(file)
        with tempfile.TemporaryDirectory() as work:
            chain = name.endswith('chain')
            forms = CHAIN_FORMS if chain else FORMS
            for i, layout in enumerate(LAYOUTS):
                for form, options in forms.items():
                    made = f'{work}/{form}{i}'
                    path = reshard(ferry, run, made, f'{options} {layout} --ep 1')
                    if form not in ('files', 'chain'):
                        report.add(f'{name} as {form} at {layout}, names', own_names(path, name.endswith('dpr')))
                    back = made if form in ('full', 'plain') else f'{work}/back_{form}{i}'
                    if back != made:
                        reshard(ferry, made, back, '--tp 1' if chain else '--optimizer fully_reshardable --tp 1')
                    report.add(f'{name} as {form} at {layout}', differences(digests(load(iteration_folder(back))), truth))
            if not megatron:
                continue
            layout, tensor, all_data = CORE[case]
            for form, options in forms.items():
                older = name.endswith('files') and form != 'files'  # its layer-wise optimizer has all parameters
                if older and form == 'dpr':
                    continue
                for data in all_data:
                    made = f'{work}/core_{form}_{data}'
                    reshard(ferry, run, made, f'{options} {layout} --dp {data}')
                    done = subprocess.run([sys.executable, '-W', 'ignore', f'{os.path.dirname(os.path.abspath(__file__))}/../fixtures/make_muon_runs.py', '--check', made, f'{case}_{"older" if older else form}', str(data)],
                                          capture_output=True, text=True, env={**os.environ, 'PYTHONPATH': f'{megatron}:{os.environ.get("PYTHONPATH", "")}'})
                    report.add(f'{name} as {form} at {layout} --dp {data}, loaded by Megatron Core', done.stderr.strip().splitlines()[-3:] if done.returncode else [])
    report.end()


if __name__ == '__main__':
    main()
