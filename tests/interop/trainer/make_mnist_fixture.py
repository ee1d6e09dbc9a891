"""Cuts the first images out of MNIST's files: tests/fixtures/mnist.

    python3 tests/interop/trainer/make_mnist_fixture.py FOLDER_WITH_THE_FOUR_FILES tests/fixtures/mnist
"""
import gzip
import struct
import sys

source, target = sys.argv[1:]
for part, count in (('train', 720), ('t10k', 120)):
    for kind, axes, size in (('images-idx3', 3, 784), ('labels-idx1', 1, 1)):
        name = f'{part}-{kind}-ubyte.gz'
        with gzip.open(f'{source}/{name}') as file:
            header = struct.unpack(f'>{1 + axes}I', file.read(4 * (1 + axes)))
            data = file.read(count * size)
        header = (header[0], count, *header[2:])
        with open(f'{target}/{name}', 'wb') as file:
            packed = gzip.compress(struct.pack(f'>{1 + axes}I', *header) + data, 9, mtime=0)
            file.write(packed)
