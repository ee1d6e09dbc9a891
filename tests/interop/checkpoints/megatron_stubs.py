"""Importing this makes every class of Megatron-LM importable: an empty one stands for each, to read what was saved with any release."""
import argparse
import importlib
import importlib.abc
import importlib.machinery
import io
import pathlib
import signal
import sys
import types

import numpy
import torch


class Stub:
    """An enum member or an object."""

    def __init__(self, *values):
        self.values = values

    def __setstate__(self, state):
        self.__dict__.update(state)

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds any module megatron.*, with any class in it."""

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split('.')[0] == 'megatron' else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []

        def attribute(name):
            if name.startswith('__'):
                raise AttributeError(name)
            setattr(module, name, type(name, (Stub,), {'__module__': spec.name}))
            return getattr(module, name)

        module.__getattr__ = attribute
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Stubs())


def safe_classes():
    """Those that Megatron-LM lets checkpoints hold (megatron/core/safe_globals.py)."""
    enums, optimizer, rerun, transformer = (
        importlib.import_module(f'megatron.core.{name}') for name in ('enums', 'optimizer', 'rerun_state_machine', 'transformer.enums'))
    reconstruct = (numpy.core if numpy.__version__ < '2' else numpy._core).multiarray._reconstruct
    return [types.SimpleNamespace, pathlib.PosixPath, reconstruct, numpy.ndarray, numpy.dtype, numpy.dtypes.UInt32DType, argparse.Namespace,
            transformer.AttnBackend, transformer.CudaGraphModule, transformer.CudaGraphScope, transformer.InferenceCudaGraphScope,
            enums.ModelType, optimizer.OptimizerConfig, rerun.RerunDiagnostic, rerun.RerunMode, rerun.RerunState, io.BytesIO, signal.Signals,
            torch._C.Generator]
