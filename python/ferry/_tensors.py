"""What an open checkpoint and a model of it have in common: tensors by name, that can be read."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Literal, Mapping, Sequence, Union

from ferry import _ferry
from ferry._ferry import Tensor
from ferry._frameworks import check_framework, in_framework, is_cpu
from ferry._names import Closing, Named
from ferry._targets import fill, target_of
from ferry.errors import Invalid, NotFound
from ferry.operations import Size
from ferry.progress import Progress, watched

Framework = Union[Literal["np", "numpy", "pt", "torch"], None]


class Slice:
    """A tensor of which parts are read: slice[0:1024, ..., -1].

    An index takes ints, slices and '...'. Elements that a step other than 1 skips are read, too.
    """

    def __init__(self, tensor: Tensor, framework: Framework, device: Any) -> None:
        self._tensor = tensor
        self._framework = framework
        self._device = device

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """safetensors' spelling: "BF16"."""
        return self._tensor.dtype

    def __getitem__(self, index: Any) -> Any:
        return in_framework(self._tensor[index], self._framework, self._device)

    def __len__(self) -> int:
        return len(self._tensor)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"Slice({self._tensor!r})"


class Tensors(Named[Tensor], Closing):
    """What a checkpoint and a model have in common. Safe from several threads at once."""

    _reader: _ferry.Reader
    _cached: dict[str, None] | None = None

    @property
    def _names(self) -> dict[str, None]:
        if self._cached is None:
            self._cached = dict.fromkeys(self._reader.names("model"))
        return self._cached

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
        check_framework(framework, device)
        return in_framework(self[name].read(dtype), framework, device)

    def get_slice(self, name: str, framework: Framework = None, *, device: Any = None) -> Slice:
        """A tensor to read parts of: get_slice(name)[0:1024]. Arguments as get_tensor()'s."""
        check_framework(framework, device)
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
        check_framework(framework, device)
        asked = list(self._names if names is None else names)
        if not is_cpu(device):
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
        if not isinstance(into, Mapping):
            raise TypeError(f"into: expected a mapping by name, not {type(into).__name__}")
        asked = {}
        for name in into if names is None else names:
            if name not in into:
                raise NotFound(f"into has no {name}, which names= asks for")
            asked[name] = into[name]
        missing = [name for name in asked if self._reader.find(name) is None]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            hint = "give names= to load a part of it"
            raise NotFound(f"into has {missing[0]}{more}, which is not there; {hint}", None, hint)
        targets = [target_of(name, memory) for name, memory in asked.items()]
        with watched(progress, "loading") as call:
            fill(
                targets, lambda rows, part: self._reader.read_into(rows, options, part), call
            )
        return asked

    def _load_to_device(
        self,
        names: Sequence[str],
        device: Any,
        dtype: Any,
        options: dict[str, Any],
        progress: Progress,
    ) -> dict[str, Any]:
        import torch

        from ferry._frameworks import torch_device, torch_dtype

        place = torch_device(device)
        made = {}
        for name in names:
            tensor = self[name]
            own = torch_dtype(tensor.dtype)
            kept = dtype if dtype is not None and own.is_floating_point else own
            made[name] = torch.empty(tensor.shape, dtype=torch_dtype(kept), device=place)
        if place.type == "meta":
            return made
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
        """Yields (name, tensor) one after the other, in bounded memory, and reads ahead. Goes on
        where the checkpoint is closed meanwhile. Used by one thread at a time.

        names: which, in this order; None: all of the model, in the order in which they are stored.
        memory: for what is read ahead, the last two tensors that were yielded, and buffers.
            Exhausted where a tensor does not fit.
        rank, world: each tensor goes to one of `world` ranks, which all get about as many bytes.
        framework, device: as for get_tensor().
        threads: 0: one for each core.
        """
        check_framework(framework, device)
        asked = list(self._names if names is None else names)
        options: dict[str, Any] = {"memory": memory, "threads": threads}
        stream = _ferry.Stream(self._reader, asked, options, rank, world)
        return ((name, in_framework(array, framework, device)) for name, array in stream)

    def close(self) -> None:
        """Drops mappings and locks. Nothing can be read any more; what was read stays."""
        self._reader.close()
