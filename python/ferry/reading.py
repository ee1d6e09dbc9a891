"""Checkpoints of any format as mappings from names to tensors."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Iterable, Iterator, Literal, Mapping, Sequence, Tuple, TypeVar, Union

from ferry import _ferry
from ferry._ferry import Array, ParallelLayout, Tensor
from ferry._frameworks import check_framework, in_framework, is_cpu
from ferry._targets import Target, target_of
from ferry.errors import Invalid, NotFound
from ferry.operations import Iteration, Path, Size
from ferry.progress import Progress, watched

# What open() was called with.
_Asked = Tuple[Path, Union[Iteration, None], bool]

Framework = Union[Literal["np", "numpy", "pt", "torch"], None]

# Bytes of memory through which is read what the host cannot write to, or not in one piece.
_MOST_STAGED = 1 << 30

_Self = TypeVar("_Self", bound="_Tensors")


class Slice:
    """A tensor of which parts are read: slice[0:1024, ..., -1].

    An index takes ints, slices and '...'. Elements that a step other than 1 skips are read, too.
    """

    def __init__(self, tensor: Tensor, framework: Framework, device: Any) -> None:
        self._tensor = tensor
        self._framework = framework
        self._device = device

    def get_shape(self) -> list[int]:
        """Of the whole tensor."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """safetensors' spelling: "BF16"."""
        return self._tensor.dtype

    def __getitem__(self, index: Any) -> Any:
        return in_framework(self._tensor[index], self._framework, self._device)

    def __len__(self) -> int:
        return len(self._tensor)

    def __repr__(self) -> str:
        return f"Slice({self._tensor!r})"


class _Tensors(Mapping[str, Tensor]):
    """What a checkpoint and a model have in common. Safe from several threads at once."""

    _reader: _ferry.Reader
    _cached: dict[str, None] | None = None

    @property
    def _names(self) -> dict[str, None]:
        if self._cached is None:
            self._cached = dict.fromkeys(self._reader.names("model"))
        return self._cached

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Tensor:
        """A tensor by its name, the optimizer's, too. NotFound, a KeyError, if there is none."""
        tensor = self._reader.find(name)
        if tensor is None:
            raise NotFound(f"there is no tensor {name}; keys() has those that there are")
        return tensor

    def get_tensor(
        self, name: str, framework: Framework = None, *, device: Any = None, dtype: Any = None
    ) -> Any:
        """The elements of a tensor: a ferry.Array, or with "np" a NumPy array, "pt" a PyTorch
        tensor.

        Without a copy where a local file has the elements as they are asked for. The memory may be
        written to, which never changes the file; what else was read of the same tensor without a
        copy shares it.

        name: of a model tensor or, as it is stored, of the optimizer.
        device: of PyTorch's: "cuda:0"; None: the CPU.
        dtype: "F32", torch.bfloat16, ...: values are rounded once; None: as they are stored.
        """
        check_framework(framework)
        return in_framework(self[name].read(dtype), framework, device)

    def get_slice(self, name: str, framework: Framework = None, *, device: Any = None) -> Slice:
        """A tensor to read parts of: get_slice(name)[0:1024]. Arguments as get_tensor()'s."""
        check_framework(framework)
        return Slice(self[name], framework, device)

    def load(
        self,
        names: Iterable[str] | None = None,
        *,
        into: Mapping[str, Any] | None = None,
        framework: Framework = None,
        device: Any = None,
        dtype: Any = None,
        memory: Size = "512MiB",
        threads: int = 0,
        progress: Progress = None,
    ) -> dict[str, Any]:
        """Reads several tensors at once, in parallel: {name: tensor}.

        names: which; None: all of the model, or all that `into` has.
        into: {name: memory} to fill in place: NumPy arrays, PyTorch tensors of any device, or
            DTensors, of which this rank's shards are read. Shapes must be the tensors' own; values
            are converted to the dtype of the memory. After an error the memory holds anything.
        framework, device, dtype: as for get_tensor(); not with `into`. dtype is for floating-point
            tensors; others stay as they are.
        memory: for buffers besides the tensors.
        threads: 0: one for each core.
        progress: None, True, or a callable(done, total), in bytes; tensors that are mapped from a
            file do not count.
        """
        options: dict[str, Any] = {"memory": memory, "threads": threads}
        if into is not None:
            if framework is not None or device is not None or dtype is not None:
                raise Invalid("into= has memory of its own framework, device and dtype; leave out theirs")
            return self._load_into(into, names, options, progress)
        check_framework(framework)
        asked = list(self._names if names is None else names)
        if not is_cpu(device) and framework in ("pt", "torch"):
            return self._load_to_device(asked, device, dtype, options, progress)
        with watched(progress, "loading") as call:
            arrays = self._reader.read(asked, dtype, options, call)
        return {name: in_framework(each, framework, device) for name, each in zip(asked, arrays)}

    def _load_into(
        self,
        into: Mapping[str, Any],
        names: Iterable[str] | None,
        options: dict[str, Any],
        progress: Progress,
    ) -> dict[str, Any]:
        asked = {name: into[name] for name in (into if names is None else names)}
        missing = [name for name in asked if self._reader.find(name) is None]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            hint = "give names= to load a part of it"
            raise NotFound(f"into has {missing[0]}{more}, which is not there; {hint}", None, hint)
        with watched(progress, "loading") as call:
            batch: list[Target] = []
            staged = 0
            for name, memory in asked.items():
                batch.append(target_of(name, memory))
                staged += batch[-1].staged_bytes
                if staged >= _MOST_STAGED:
                    self._fill(batch, options, call)
                    batch, staged = [], 0
            self._fill(batch, options, call)
        return asked

    def _fill(self, batch: Sequence[Target], options: dict[str, Any], call: Any) -> None:
        self._reader.read_into([target.row for target in batch], options, call)
        for target in batch:
            if target.finish is not None:
                target.finish()
        for device in {target.device for target in batch if target.device is not None}:
            # Until then the pinned memory must stay.
            import torch

            torch.cuda.synchronize(device)

    def _load_to_device(
        self,
        names: Sequence[str],
        device: Any,
        dtype: Any,
        options: dict[str, Any],
        progress: Progress,
    ) -> dict[str, Any]:
        import torch

        from ferry._frameworks import torch_dtype

        place = f"cuda:{device}" if isinstance(device, int) else device
        made = {}
        for name in names:
            tensor = self[name]
            own = torch_dtype(tensor.dtype)
            kept = dtype if dtype is not None and own.is_floating_point else own
            made[name] = torch.empty(tensor.shape, dtype=torch_dtype(kept), device=place)
        return self._load_into(made, None, options, progress)

    def stream(
        self,
        names: Iterable[str] | None = None,
        *,
        memory: Size = "2GiB",
        rank: int = 0,
        world: int = 1,
        framework: Framework = None,
        device: Any = None,
        threads: int = 0,
    ) -> Iterator[tuple[str, Any]]:
        """Yields (name, tensor) one after the other, in bounded memory, and reads ahead.

        names: which, in this order; None: all of the model, in the order in which they are stored.
        memory: for what is read ahead, the last two tensors that were yielded, and buffers.
            Exhausted where a tensor does not fit.
        rank, world: each tensor goes to one of `world` ranks, which all get about as many bytes.
        framework, device: as for get_tensor().
        threads: 0: one for each core.
        """
        check_framework(framework)
        asked = list(self._names if names is None else names)
        options: dict[str, Any] = {"memory": memory, "threads": threads}
        stream = _ferry.Stream(self._reader, asked, options, rank, world)
        return ((name, in_framework(array, framework, device)) for name, array in stream)

    def close(self) -> None:
        """Drops mappings and locks. Nothing can be read any more; what was read stays."""
        self._reader.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Optimizer(Mapping[str, Tensor]):
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

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._reader.find(self._stored[name]) if name in self._stored else None
        if tensor is None:
            raise NotFound(f"there is no optimizer state {name}; keys() has what there is")
        return tensor

    def states(self, tensor: str) -> dict[str, Tensor]:
        """{state: Tensor} of a tensor of the model; {} where it has none."""
        return {state: self[f"{tensor}.{state}"] for state in self._states.get(tensor, [])}

    def __repr__(self) -> str:
        return f"Optimizer({len(self)} tensors)"


class Objects(Mapping[str, Any]):
    """What is stored besides tensors: name -> value, read when it is asked for.

    Values are Python's own; argparse.Namespace is types.SimpleNamespace, tensors are ferry.Array,
    and what is of a class that is not Python's own is as ferry.objects has it: no code is run.
    """

    def __init__(self, opened: _ferry.OpenCheckpoint) -> None:
        self._opened = opened
        self._names = dict.fromkeys(opened.object_names())

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise NotFound(f"there is no object {name}; keys() has those that there are")
        return self._opened.read_object(name)

    def __repr__(self) -> str:
        return f"Objects({list(self)})"


class Model(_Tensors):
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


class Checkpoint(_Tensors):
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
        """ "Megatron Core >= 0.19", "PyTorch DCP", ...; "" where that is not known."""
        return self._opened.writer

    @property
    def iteration(self) -> int | None:
        """Of training; None where it has none."""
        return self._opened.iteration

    @property
    def layout(self) -> ParallelLayout:
        """Ranks that wrote it."""
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
        """Of the model: "llama", ...; None where it is not recognized."""
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
        quantize: Literal["fp8"] | None = None,
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

    path: a folder or a file, or the folder of a run.
    iteration: of a run folder, a number or "release"; None: the one that the tracker names.
    raw: the entries as they are stored, before Megatron-LM's meaning is applied.

    NotFound: nothing is there, or not that iteration; Invalid: it is no checkpoint; Unsupported: a
    form of one that is not read; Corrupt, Mismatch: files are damaged or contradict each other.
    """
    return Checkpoint(_ferry.open(path, iteration, raw), (path, iteration, raw))


def _open_again(asked: _Asked, path: str) -> Checkpoint:
    """What was open at `path`, which a run folder may no longer lead to."""
    given, iteration, raw = asked
    checkpoint = open(given, iteration=iteration, raw=raw)
    return checkpoint if checkpoint.path == path else open(path, raw=raw)


class safe_open:
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

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._checkpoint.close()
