"""Compares the logits of the trainer's forward pass with those that Megatron-LM computed from the same checkpoints, in fp32.

    check_trainer_logits.py WRITE_LOGITS PEERS     PEERS/NAME (a run) and PEERS/NAME.npz (tokens, logits)

WRITE_LOGITS is tests/write_logits of a build, or write_logits_cuda, which computes on a GPU. The largest difference over the mean |logit| may be 8e-6;
3e-3 of Apertus, whose activation Megatron-LM computes in bf16."""
import os
import subprocess
import sys
import tempfile

import numpy as np

program, peers = sys.argv[1:]
worst = 0
for name in sorted(n[:-4] for n in os.listdir(peers) if n.endswith('.npz')):
    file = np.load(os.path.join(peers, name + '.npz'))
    tokens, expected = file['tokens'].astype(np.int32), file['logits']
    with tempfile.TemporaryDirectory() as work:
        tokens.tofile(os.path.join(work, 'tokens'))
        words = ['--load', os.path.join(peers, name), '--use-checkpoint-args', '--finetune', '--mock-data', '--tokenizer-type', 'NullTokenizer',
                 '--vocab-size', '251' if 'apertus' in name else '250', '--make-vocab-size-divisible-by', '32', '--micro-batch-size', str(tokens.shape[0]),
                 '--global-batch-size', str(tokens.shape[0]), '--seq-length', str(tokens.shape[1]), '--train-iters', '1', '--lr', '1e-3',
                 '--transformer-impl', 'local', '--attention-dropout', '0', '--hidden-dropout', '0']
        run = subprocess.run([program, os.path.join(work, 'tokens'), os.path.join(work, 'logits'), *words], capture_output=True, text=True)
        if run.returncode and name.startswith('g_'):  # of families and adapters that ferry says it does not train
            print(f'{name:28} refused: {" ".join(run.stderr.split())[-150:]}')
            continue
        if run.returncode:
            print(f'{name:28} FAILED: {run.stderr.strip()[-300:]}')
            worst = np.inf
            continue
        found = np.fromfile(os.path.join(work, 'logits'), np.float32).reshape(tokens.shape[1], tokens.shape[0], -1).swapaxes(0, 1)
    distance = np.abs(found - expected)[..., :250].max() / np.abs(expected).mean()
    bar = 3e-3 if 'apertus' in name else 8e-6
    worst = max(worst, distance / bar)
    print(f'{name:28} {distance:.1e} {"ok" if distance <= bar else "FAILED"}', flush=True)
sys.exit(0 if worst <= 1 else 1)
