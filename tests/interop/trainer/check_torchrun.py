"""check_torchrun.py FERRY: ranks that PyTorch's torchrun starts save what ranks that are threads save, also where one is killed and torchrun starts all of them again."""
import os
import subprocess
import sys
import tempfile

FERRY = os.path.realpath(sys.argv[1])
WORDS = ('--mock-data --tokenizer-type NullTokenizer --vocab-size 256 --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 '
         '--max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 8 --lr 1e-3 --train-iters 200 --eval-iters 0 --save-interval 5 --keep-last 2 '
         '--log-interval 1 --tensor-model-parallel-size 2').split()
# A rank that is killed when the run has saved something, the first time that it is started.
KILLED = '''if [ "$RANK $TORCHELASTIC_RESTART_COUNT" = "1 0" ]; then
    "$@" & until [ -e "$RUN/latest_checkpointed_iteration.txt" ]; do sleep 0.01; done
    kill -9 $!; exit 1
fi
exec "$@"'''


def run(words, **environment):
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, 'OMP_NUM_THREADS': '1', **environment})
    if done.returncode:
        sys.exit(f'{" ".join(words)}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}')
    return done.stdout


with tempfile.TemporaryDirectory() as work:
    place = lambda name: os.path.join(work, name)
    train = lambda name: [FERRY, 'train', *WORDS, '--save', place(name), '--load', place(name)]
    torchrun = [sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node', '4', '--no-python']
    run(train('threads') + ['--data-parallel-size', '2'])
    run(torchrun + ['--master-port', os.environ.get('FERRY_TEST_PORT', '29593')] + train('address'))
    run(torchrun + ['--standalone'] + train('standalone'))
    printed = run(torchrun + ['--standalone', '--max-restarts', '1', 'sh', '-c', KILLED, 'sh'] + train('killed'), RUN=place('killed'))
    assert printed.count('successfully loaded checkpoint') == 1, printed
    for name in ['address', 'standalone', 'killed']:
        run([FERRY, 'diff', place('threads'), place(name), '--quiet'])
print('torchrun: four ranks save what threads save, also after a restart')
