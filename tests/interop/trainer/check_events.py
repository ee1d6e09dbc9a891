"""check_events.py FOLDER: TensorBoard reads every scalar that tests/write_events wrote there."""
import math
import sys

import numpy

try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError:
    print('skipped: no TensorBoard')
    sys.exit(0)

events = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={'scalars': 0})
events.Reload()
single = lambda value: float(numpy.float32(value))
expected = {
    'lm loss': [(step, single(5 / step)) for step in range(1, 1001)],
    'lm loss vs samples': [(1 << 40, 0.25)],
    'learning-rate': [(3, single(1e-8))],
    'loss-scale': [(0, 4294967296.0)],
    'grad-norm': [(7, math.nan)],
    'n' * 300: [(1, -1.5)],
}
found = {name: [(scalar.step, scalar.value) for scalar in events.Scalars(name)] for name in events.Tags()['scalars']}
assert repr(found) == repr({name: expected[name] for name in found}) and len(found) == len(expected), sorted(found)
print('TensorBoard reads', sum(map(len, found.values())), 'scalars')
