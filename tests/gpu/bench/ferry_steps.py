"""How long steps of `ferry train` take: what the benches of training on GPUs share."""
import json
import os
import subprocess
import sys

# Gradients and moments in bf16 and of fp32 copies the lower 16 bits: 10 bytes a parameter.
SMALL = ['--use-distributed-optimizer', '--use-precision-aware-optimizer', '--main-grads-dtype', 'bf16', '--exp-avg-dtype', 'bf16', '--exp-avg-sq-dtype', 'bf16']


def median(times):
    """Of the last half of all steps."""
    last = sorted(times[len(times) // 2:])
    return last[len(last) // 2]


def train(work, words):
    """Seconds of the median step of the last half, and what was printed."""
    metrics = os.path.join(work, 'metrics.json')
    if os.path.exists(metrics):
        os.remove(metrics)
    run = subprocess.run([*words, '--metrics-json', metrics], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        sys.exit(run.stdout + 'ferry train failed')
    with open(metrics) as lines:
        return median([json.loads(line)['milliseconds'] / 1000 for line in lines]), run.stdout
