"""A dataset in Python that `ferry data check` can check:

    ferry data check --dataset 'python3 examples/dataset/dataset.py'

The program says how many items there are, then answers each line of standard input with one line. It
may import torch or anything else; what it prints besides has to go to standard error."""
import json
import random
import sys


class Dice:
    """Five throws an item, other ones in each epoch. They follow from the index alone: the generator is the item's own."""

    def __len__(self):
        return 1000

    def __getitem__(self, at):
        throws = random.Random(f'{at["epoch"]}-{at["index"]}')
        return [throws.randint(1, 6) for _ in range(5)]


def answer(dataset):
    print(json.dumps({'size': len(dataset)}), flush=True)
    for line in sys.stdin:
        at = json.loads(line)
        before = random.getstate()  # the generator of all: add torch.get_rng_state() where torch is used
        reply = {'item': dataset[at]}  # of a tensor: hashlib.sha256(item.numpy().tobytes()).hexdigest()
        if random.getstate() != before:
            reply['problem'] = 'reading it draws from or seeds the generator that others use'
        print(json.dumps(reply), flush=True)


if __name__ == '__main__':
    answer(Dice())
