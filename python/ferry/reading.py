"""Checkpoints of any format as mappings from names to tensors."""

from __future__ import annotations

import os
from typing import Any, Iterable, Literal, Mapping, Sequence, Tuple, Union

from ferry import _ferry
from ferry._ferry import ParallelLayout, Tensor
from ferry._frameworks import check_framework
from ferry._names import Closing, Named
from ferry._tensors import Framework, Slice, Tensors
from ferry.errors import Invalid, NotFound
from ferry.operations import Iteration, Path

# What open() was called with.
_Asked = Tuple[Path, Union[Iteration, None], bool]


class Optimizer(Named[Tensor]):
    """The optimizer's state: "<tensor>.<state>" -> Tensor, such as "decoder.weight.exp_avg"."""

    _PREFIX = "optimizer.state."

    def __init__(self, reader: _ferry.Reader) -> None:
        self._reader = reader
        self._stored: dict[str, str] = {}
        self._states: dict[str, list[str]] = {}
        for stored in reader.names("optimizer"):
            state, dot, tensor = stored.removeprefix(self._PREFIX).partition(".")
            if not stored.startswith(self._PREFIX) or not dot:
                self._stored[stored] = stored
                continue
            self._stored[f"{tensor}.{state}"] = stored
            self._states.setdefault(tensor, []).append(state)

    @property
    def _names(self) -> dict[str, str]:
        return self._stored

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._reader.find(self._stored[name]) if name in self else None
        if tensor is None:
            raise NotFound(f"there is no optimizer state {name}; keys() has what there is")
        return tensor

    def states(self, tensor: str) -> dict[str, Tensor]:
        """{state: Tensor} of a tensor of the model; {} where it has none."""
        return {state: self[f"{tensor}.{state}"] for state in self._states.get(tensor, [])}

    def __repr__(self) -> str:
        return f"Optimizer({len(self)} tensors)"


class Objects(Named[Any]):
    """What is stored besides tensors: name -> value, read when it is asked for.

    Values are Python's own; argparse.Namespace is types.SimpleNamespace, tensors are ferry.Array,
    and what is of a class that is not Python's own is as ferry.objects has it: no code is run.
    """

    def __init__(self, opened: _ferry.OpenCheckpoint) -> None:
        self._opened = opened
        self._stored = dict.fromkeys(opened.object_names())

    @property
    def _names(self) -> dict[str, None]:
        return self._stored

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise NotFound(f"there is no object {name}; keys() has those that there are")
        return self._opened.read_object(name)

    def __repr__(self) -> str:
        return f"Objects({list(self)})"


class Model(Tensors):
    """A checkpoint's model under Hugging Face's names: tensors are converted as they are read."""

    def __init__(self, view: _ferry.ModelView) -> None:
        self._view = view
        self._reader = view.reader
        self._files: dict[str, bytes] | None = None

    @property
    def family(self) -> str | None:
        """ "llama", ...; None: unknown, and the tensors are as they are stored."""
        return self._view.family

    @property
    def parameters(self) -> int:
        """How many the model has."""
        return self._view.parameters

    @property
    def warnings(self) -> list[str]:
        """What convert() would warn of."""
        return self._view.warnings

    @property
    def files(self) -> Mapping[str, bytes]:
        """Name -> content of the files next to the weights: config.json, the tokenizer's, ..."""
        if self._files is None:
            self._files = self._view.files
        return self._files

    @property
    def config(self) -> dict[str, Any]:
        """What config.json holds; {} without one."""
        import json

        content = self.files.get("config.json")
        return dict(json.loads(content)) if content is not None else {}

    def __repr__(self) -> str:
        return f"Model(family={self.family!r}, {len(self)} tensors)"


class Checkpoint(Tensors):
    """A checkpoint that is open: its model's tensors by name, and the rest as attributes.

    Pickled, it is opened again where it is unpickled, as by workers of a DataLoader.
    """

    def __init__(self, opened: _ferry.OpenCheckpoint, asked: _Asked) -> None:
        self._opened = opened
        self._asked = asked
        self._reader = opened.reader
        self._lazy: dict[str, Any] = {}

    @property
    def path(self) -> str:
        """The folder or file that holds the data: of a run folder, the iteration's."""
        return self._opened.path

    @property
    def format(self) -> str:
        """ "torch_dist", "dcp", "fsdp_dtensor", "torch_dcp", "torch", "nemo", "hf", "safetensors",
        "pt", "fsdp" or "deepspeed"."""
        return self._opened.format

    @property
    def writer(self) -> str:
        """ "Megatron Core 0.19 or later", "PyTorch DCP", ...; "" where that is not known."""
        return self._opened.writer

    @property
    def iteration(self) -> int | None:
        """The training iteration; None where the checkpoint has none."""
        return self._opened.iteration

    @property
    def layout(self) -> ParallelLayout:
        """The parallel layout of the ranks that wrote it."""
        return self._opened.layout

    @property
    def notes(self) -> list[str]:
        """Warnings: a stale tracker, dropped objects, ..."""
        return self._opened.notes

    @property
    def damage(self) -> list[str]:
        """Files that are missing, or are not what was saved, though tensors can be read."""
        return self._opened.damage

    @property
    def family(self) -> str | None:
        """The model's family: "llama", ...; None where it is not recognized."""
        if "family" not in self._lazy:
            self._lazy["family"] = self._opened.family()
        family: str | None = self._lazy["family"]
        return family

    @property
    def args(self) -> Any:
        """Megatron-LM's arguments: an object with an attribute for each; None without any."""
        if "args" not in self._lazy:
            self._lazy["args"] = self._opened.args
        return self._lazy["args"]

    @property
    def objects(self) -> Objects:
        """What is stored besides tensors: scheduler, random number states, ..."""
        if "objects" not in self._lazy:
            self._lazy["objects"] = Objects(self._opened)
        objects: Objects = self._lazy["objects"]
        return objects

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer's state by tensor; empty where it has none, or where it cannot be read
        (`optimizer_problem`)."""
        if "optimizer" not in self._lazy:
            self._lazy["optimizer"] = Optimizer(self._reader)
        optimizer: Optimizer = self._lazy["optimizer"]
        return optimizer

    @property
    def optimizer_problem(self) -> str | None:
        """Why optimizer state that is on disk is not in `optimizer`; None: it is."""
        return self._opened.optimizer_problem

    def metadata(self) -> dict[str, str]:
        """The texts that safetensors files hold next to tensors; {} for other formats."""
        return self._opened.metadata()

    def hf(
        self,
        *,
        family: str | None = None,
        dtype: Any = None,
        from_masters: bool = False,
        base_only: bool = False,
        tokenizer_folder: Path | None = None,
        ignore_index: bool = False,
        vocab_size: int | None = None,
        cut_tokens: bool = False,
        keep_padding: bool = False,
        quantize: str | None = None,
        as_is: bool = False,
        fill_from: Path | None = None,
        config_folder: Path | None = None,
        only: Sequence[str] = (),
        renames: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        drop_unknown: bool = False,
        ignored_members: Sequence[str] = (),
    ) -> Model:
        """The model as convert(to="hf") would write it, read and converted on the fly.

        Keywords are convert()'s, errors too. The model stays readable when the checkpoint is closed.
        Reads what decides on names and shapes; functions that read tensors take memory and threads.
        """
        options = locals()
        del options["self"]
        return Model(self._opened.hf(options))

    def close(self) -> None:
        """Drops mappings and locks. Nothing can be read any more; what was read stays."""
        self._opened.close()

    def __reduce__(self) -> tuple[Any, tuple[_Asked, str]]:
        return _open_again, (self._asked, self.path)

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r}, format={self.format!r}, {len(self)} tensors)"


def open(path: Path, *, iteration: Iteration | None = None, raw: bool = False) -> Checkpoint:
    """Opens a checkpoint of any format. Reads names and shapes; no tensor before it is asked for.

    path: a folder or a file, or the folder of a run. A relative one stays what it is now when the
        program changes its folder.
    iteration: of a run folder, a number or "release"; None: the one that the tracker names.
    raw: the entries as they are stored, before Megatron-LM's meaning is applied.

    NotFound: nothing is there, or not that iteration; Invalid: it is not a checkpoint; Unsupported: a
    form of one that is not read; Corrupt, Mismatch: files are damaged or contradict each other.
    """
    place = absolute(_ferry._path("path", path))
    return Checkpoint(_ferry.open(place, iteration, raw), (place, iteration, raw))


def absolute(path: str) -> str:
    """The path from the root, in the folder where the program is now."""
    if not path or "://" in path:  # no path, and none of a file system here
        return path
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        return path
    # Over a link, ".." is not what stands before it.
    return os.path.join(here, path) if ".." in path.split("/") else os.path.abspath(path)


def _open_again(asked: _Asked, path: str) -> Checkpoint:
    """What was open at `path`, which a run folder may no longer lead to."""
    given, iteration, raw = asked
    checkpoint = open(given, iteration=iteration, raw=raw)
    return checkpoint if checkpoint.path == path else open(path, raw=raw)


class safe_open(Closing):
    """safetensors.safe_open for checkpoints of any format: a context manager.

    filename: a file, or a folder of any format.
    framework: "pt" or "np".
    device: of PyTorch's tensors.
    backend: "mmap" or "pread", as safetensors has them; ferry chooses itself.
    """

    def __init__(
        self,
        filename: Path,
        framework: str,
        device: Any = "cpu",
        *,
        backend: Literal["mmap", "pread"] = "mmap",
    ) -> None:
        if backend not in ("mmap", "pread"):
            raise Invalid(f"backend={backend!r} is none that is known; use 'mmap' or 'pread'")
        if framework not in ("np", "numpy", "pt", "torch"):
            raise Invalid(f"framework={framework!r} is none that is known; use 'np' or 'pt'")
        self._framework: Framework = "np" if framework in ("np", "numpy") else "pt"
        check_framework(self._framework, device)
        self._device = device
        self._checkpoint = open(filename)

    def keys(self) -> list[str]:
        """Names of all tensors, in the order of the alphabet."""
        return sorted(self._checkpoint)

    def offset_keys(self) -> list[str]:
        """Names of all tensors, in the order in which they are stored."""
        return list(self._checkpoint)

    def metadata(self) -> dict[str, str] | None:
        """The texts next to the tensors; None where there are none."""
        return self._checkpoint.metadata() or None

    def get_tensor(self, name: str) -> Any:
        """A tensor in the framework, on the device."""
        return self._checkpoint.get_tensor(name, self._framework, device=self._device)

    def get_tensors(self) -> dict[str, Any]:
        """All tensors, read in parallel."""
        return self._checkpoint.load(framework=self._framework, device=self._device)

    def get_slice(self, name: str) -> Slice:
        """A tensor to read parts of."""
        return self._checkpoint.get_slice(name, self._framework, device=self._device)

    def close(self) -> None:
        """What the end of a with statement does."""
        self._checkpoint.close()
