"""check_mnist.py FERRY MNIST [FOLDER]: the MNIST tutorial learns as PyTorch does, and PyTorch reads its checkpoints.

MNIST is the example's program, FOLDER has MNIST's four files (tests/fixtures/mnist by default). The tutorial's own modules are trained by
torch's AdamW from the weights that the program begins with, which a run at a learning rate of 0 saves, on samples that torch's random_split and
Python's random.Random choose. Losses of all iterations agree within 2e-6, and so do weights and Adam's averages at the end, within 2e-5; then a
classifier goes on from the autoencoder on both sides. Checkpoints are read by torch.distributed.checkpoint, and ferry inspect names them."""
import gzip, json, os, random, re, struct, subprocess, sys, tempfile
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import FileSystemReader

BATCH, STEPS, RATE = 32, 50, 1e-3


def read_idx(path, axes):
    with gzip.open(path) as file:
        shape = struct.unpack(f'>{1 + axes}I', file.read(4 * (1 + axes)))[1:]
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).reshape(shape)


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1, self.relu, self.linear2 = nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 3)

    def latent(self, x):
        return self.linear2(self.relu(self.linear1(x)))


class Autoencoder(Trunk):
    def __init__(self):
        super().__init__()
        self.linear3, self.linear4 = nn.Linear(3, 64), nn.Linear(64, 784)

    def loss(self, x, labels):
        return nn.functional.mse_loss(self.linear4(self.relu(self.linear3(self.latent(x)))), x)


class Classifier(Trunk):
    def __init__(self):
        super().__init__()
        self.digit_classifier = nn.Linear(3, 10)

    def loss(self, x, labels):
        return nn.functional.cross_entropy(self.digit_classifier(self.latent(x)), labels)


def run(program, stage, *words):
    printed = subprocess.run([program, stage, *words], check=True, stdout=subprocess.PIPE, text=True).stdout
    return re.search(r'last checkpoint: (\S+)\.ckpt', printed).group(1)


def read(folder):
    """All tensors of a checkpoint, by their names without the module's."""
    reader = FileSystemReader(f'{folder}/weights')
    state = {name: torch.empty(entry.size, dtype=entry.properties.dtype)
             for name, entry in reader.read_metadata().state_dict_metadata.items() if hasattr(entry, 'size')}
    dcp.load(state, storage_reader=reader, no_dist=True)
    return {name.replace('module.', ''): tensor for name, tensor in state.items()}


def batches(folder):
    images = read_idx(f'{folder}/train-images-idx3-ubyte.gz', 3).reshape(-1, 784).float() / 255
    labels = read_idx(f'{folder}/train-labels-idx1-ubyte.gz', 1).long()
    kept = len(labels) - len(labels) // 12
    train, _ = torch.utils.data.random_split(range(len(labels)), [kept, len(labels) - kept], generator=torch.Generator().manual_seed(42))
    draw = random.Random(44)
    order = [train[draw.randint(0, kept - 1)] for _ in range(kept)]
    for step in range(STEPS):
        begin = step % (kept // BATCH) * BATCH
        numbers = order[begin:begin + BATCH]
        yield images[numbers], labels[numbers]


def train(model, weights, folder):
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    groups = [{'params': [p for p in model.parameters() if p.dim() > 1], 'weight_decay': 0.01},
              {'params': [p for p in model.parameters() if p.dim() == 1], 'weight_decay': 0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8)
    losses = []
    for x, labels in batches(folder):
        optimizer.zero_grad()
        loss = model.loss(x, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    state = dict(model.state_dict())
    for name, parameter in model.named_parameters():
        state[f'optimizer.state.param.{name}'] = parameter.detach()
        for kind in ('exp_avg', 'exp_avg_sq'):
            state[f'optimizer.state.{kind}.{name}'] = optimizer.state[parameter][kind]
    return losses, state


def compare(what, model, program, stage, folder, work, begin):
    common = ['--data', folder, '--micro-batch-size', str(BATCH), '--global-batch-size', str(BATCH), '--eval-iters', '0',
              '--save-interval', str(STEPS), *begin]
    first = run(program, stage, '--log-dir', f'{work}/{stage}_begin', '--train-iters', '1', '--lr', '0', *common)
    last = run(program, stage, '--log-dir', f'{work}/{stage}', '--train-iters', str(STEPS), '--lr', str(RATE), *common)
    losses = json.load(open(f'{work}/{stage}/example/metrics.json'))['train']['reduced_train_loss']
    expected, state = train(model, read(first), folder)
    assert len(losses) == len(expected) == STEPS
    error = max(abs(a - b) / b for a, b in zip(losses, expected))
    assert error < 2e-6, (what, error)
    tensors = read(last)
    assert set(tensors) == set(state), (what, set(tensors) ^ set(state))
    apart = max(float((tensors[name] - state[name]).abs().max()) for name in state)
    assert apart < 2e-5, (what, apart)
    print(f'{what}: losses of {STEPS} iterations, {expected[0]:.4f} to {expected[-1]:.4f}, agree within {error:.1e}; '
          f'{len(state)} tensors within {apart:.1e}')
    return last


def main(ferry, program, folder='tests/fixtures/mnist'):
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as work:
        last = compare('autoencoder', Autoencoder(), program, 'pretrain', folder, work, [])
        head = ['--from', last, '--skip-prefix', 'digit_classifier']
        last = compare('classifier', Classifier(), program, 'finetune', folder, work, head)
        text = subprocess.run([ferry, 'inspect', last, '--tensors', '*'], check=True, stdout=subprocess.PIPE, text=True).stdout
        assert 'NeMo' in text and 'digit_classifier.weight' in text, text
        assert not [name for name in os.listdir(os.path.dirname(last)) if 'unfinished' in name]


main(*sys.argv[1:])
