"""Holds `ferry runs export --to wandb` against Weights & Biases' own messages: an offline run has what the CSV has, step by step.

check_wandb.py FERRY LOG [LOG ...]

Where the package wandb is missing the program must say so. Python of the environment that runs this must be the first `python3` of PATH."""
import csv
import glob
import io
import json
import os
import struct
import subprocess
import sys
import tempfile


def records(path):
    """The payloads of a run's file: LevelDB's log format after a header of 7 bytes. Each block of 32 KiB has parts of records."""
    data = open(path, 'rb').read()
    assert data[:4] == b':W&B', data[:8]
    at, record = 7, b''
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # no header begins there
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack_from('<HB', data, at + 4)
        record += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b''


def history(folder):
    """What was logged at each step, without the members that the package adds."""
    from wandb.proto import wandb_internal_pb2
    path, = glob.glob(f'{glob.escape(folder)}/wandb/offline-run-*/run-*.wandb')
    steps = {}
    for data in records(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof('record_type') != 'history': continue
        values = {item.key or '/'.join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        steps[values['_step']] = {name: value for name, value in values.items() if not name.startswith('_')}
    return steps


def run(*words):
    environment = dict(os.environ, PATH=os.path.dirname(sys.executable) + ':' + os.environ['PATH'])
    return subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


ferry, logs = sys.argv[1], sys.argv[2:]
try:
    import wandb  # noqa: F401
except ImportError:
    with tempfile.TemporaryDirectory() as folder:
        result = run(ferry, 'runs', 'export', logs[0], '--to', 'wandb', '-o', f'{folder}/out')
        assert result.returncode == 5 and 'no package wandb' in result.stderr, (result.returncode, result.stderr)
    print('wandb: the package is not here, and the program says so')
    sys.exit(0)
for log in logs:
    with tempfile.TemporaryDirectory() as folder:
        table = run(ferry, 'runs', 'export', log, '-o', '-')
        assert table.returncode == 0, table.stderr
        expected = {}
        for row in csv.DictReader(io.StringIO(table.stdout)):
            iteration = int(row.pop('iteration'))
            expected[iteration] = {name: float(value) for name, value in row.items() if value}
        written = run(ferry, 'runs', 'export', log, '--to', 'wandb', '-o', f'{folder}/out', '--name', 'a name')
        assert written.returncode == 0, written.stderr
        assert '.partial' not in written.stderr + written.stdout, written.stderr
        found = history(f'{folder}/out')
        assert found == expected, (log, found, expected)
        print(f'{os.path.basename(log)}: {len(found)} steps, equal')
