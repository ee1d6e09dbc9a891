"""Saves tensors of a program as checkpoints: at once, or while the program goes on."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple

from ferry import _ferry, _ranks
from ferry._ferry import SaverStatus, Ticket
from ferry._dtensors import Box, box_of_rank
from ferry.errors import Invalid, Mismatch, Unsupported
from ferry.operations import Size
from ferry.progress import Progress, watched
from ferry.reading import Checkpoint, Model, absolute
from ferry.reading import open as open_checkpoint

__all__ = ["AsyncSaver", "SaveReport", "SaverStatus", "Shard", "Ticket", "save"]

SaveFormat = Literal["dcp", "torch_dist", "torch", "safetensors", "hf"]
RunFormat = Literal["dcp", "torch_dist", "torch"]


_PATIENCE = 60.0  # seconds, of a rank that ends without a word, with the others


class Shard:
    """The part of a tensor that this rank holds, where torch's DTensor does not say it already.

    tensor: its elements: a tensor or array; its shape is the part's.
    shape: of the whole tensor.
    offset: of the part's first element, an index along each axis.
    """

    __slots__ = ("offset", "shape", "tensor")

    def __init__(self, tensor: Any, shape: Sequence[int], offset: Sequence[int]) -> None:
        self.tensor = tensor
        self.shape = tuple(shape)
        self.offset = tuple(offset)
        if len(self.shape) != len(self.offset):
            raise Invalid(f"a Shard at {self.offset} of a tensor of shape {self.shape}")

    def __repr__(self) -> str:
        return f"Shard(shape={self.shape}, offset={self.offset})"


class SaveReport(NamedTuple):
    """What save() wrote."""

    path: str
    """The checkpoint's folder; in a run, that of the iteration."""
    iteration: int | None
    warnings: list[str]
    """Warnings of rank 0; empty on the other ranks."""

    def to_dict(self) -> dict[str, Any]:
        """All fields, as what json.dumps() takes."""
        return self._asdict()


def save(
    tensors: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    iteration: int | None = 0,
    format: SaveFormat = "dcp",
    objects: Mapping[str, Any] | None = None,
    like: Any = None,
    optimizer: str = "fully_reshardable",
    release: str | None = None,
    overwrite: bool = False,
    tracker: str = "forward",
    keep: int | None = None,
    keep_every: int | None = None,
    manifest: bool = True,
    sha256: bool = False,
    files_per_rank: int = 1,
    max_shard_size: Size = "5GB",
    group: Any = None,
    timeout: float = 1800.0,
    memory: Size = "512MiB",
    staging: Size = "8GiB",
    threads: int = 0,
    progress: Progress = None,
) -> SaveReport:
    """Saves tensors as an iteration of a run folder, or as a model's folder; returns when all of it
    is on disk.

    The checkpoint gets its name, `path`/iter_0000000, when it is complete: whatever happens, the
    folder holds either all of it or what was there before.

    tensors: by name, each a torch.Tensor (of the CPU or CUDA), a DTensor, a ferry.Shard, a NumPy
        array, or an object with __dlpack__, __cuda_array_interface__ or the buffer protocol. What
        is not contiguous is copied first. They must not change until this returns.
    path: the run folder, which is made where it is missing.
    iteration: None: `path` is the checkpoint's own folder.
    format: "dcp", what torch.distributed.checkpoint loads; "torch_dist" or "torch", what
        Megatron-LM loads, with arguments, scheduler and so on of the checkpoint `like`;
        "safetensors" or "hf", a folder `path` of model.safetensors, with config.json and tokenizer
        of `like` in "hf": from whole tensors, which rank 0 writes.
    objects: further values of plain data by name (None, bool, int, float, str, bytes, list, tuple,
        set, dict, argparse.Namespace), stored as torch.save would; with "dcp" alone. Rank 0's.
    like: the checkpoint which the run began with: a path or a ferry.Checkpoint.
    optimizer: form of the optimizer's state in torch_dist ("fully_reshardable", "dp_reshardable",
        "plain" or "none"); with "torch", "none" leaves it out.
    release: of Megatron Core that is to load torch_dist, such as "0.16"; None: the newest.
    overwrite: replaces an iteration that is there; else that is an error.
    tracker: whether latest_checkpointed_iteration.txt moves: "forward", "always" or "never".
    max_shard_size: most bytes of tensors in one file of "safetensors" and "hf".
    keep, keep_every: deletes other iterations of the run, but for so many with the highest numbers
        and those whose number keep_every divides.
    manifest: writes ferry.manifest.json, with a digest of every byte.
    sha256: writes SHA-256 sums of all files, too, which reads them once more.
    files_per_rank: that each rank writes its tensors to.
    group: the ranks that save together, each with its part of the tensors, all calling this alike.
        None: torch.distributed's default group, where it is initialised; else this process alone,
        as False says. A part that several ranks hold is written by one of them.
    timeout: seconds for which a rank waits for a sign of another one.
    memory: for buffers. staging: most host memory that tensors of CUDA devices pass through.
    threads: 0 is one for each core.
    progress: None, True, or a callable(done, total), in bytes that this rank writes.

    Raises ferry.Error; on several ranks, all raise what one of them had. Ctrl-C ends the save on
    all. Then the folder is as it was.
    """
    settings = _settings(locals())
    folder = _ferry._path("path", path)
    ranks = _ranks.group_of(group, timeout)
    warnings: list[str] = []
    if format in ("safetensors", "hf"):
        if iteration not in (None, 0):
            raise Invalid(f"iteration= is for runs, and format={format!r} is a model's folder")
        iteration = None
        _refuse(format, optimizer=optimizer, release=release)
        made = _model_format(format, like, max_shard_size, objects, tensors, warnings)
    else:
        _refuse(format, max_shard_size=max_shard_size)
        made = _format(format, like, ranks, optimizer, release, settings, objects)
    if iteration is None and (keep is not None or keep_every is not None):
        raise Invalid("keep= and keep_every= are for iterations of a run")
    with watched(progress, "saving") as call:
        notes = _ferry._save(folder, tensors, iteration, objects, made, ranks, settings, call)
    if iteration is not None:
        folder = os.path.join(folder, f"iter_{iteration:07d}")
    return SaveReport(folder, iteration, warnings + notes)


class AsyncSaver:
    """Saves tensors while the program goes on.

        with ferry.AsyncSaver("runs/a") as saver:
            for step in range(steps):
                train(model)                                # forward, backward
                ticket.wait()                               # the last snapshot is copied
                optimizer.step()
                ticket = saver.save(model.state_dict(), step)

    save() returns at once. The tensors are copied aside meanwhile, those of CUDA devices by a
    stream of ferry's own after what is queued in torch's current one, and then written. Until
    ticket.wait() returns they must not change. finish() returns when all is on disk.

    Options as save(); besides:
    most_in_flight: snapshots that are copied or being written; one more waits in its ticket.
    staging: most bytes for their copies ("8GiB"). A snapshot that is larger passes through them in
        pieces while it is written, and its ticket waits for that.

    On several ranks, each has one and saves the same iterations in the same order. Errors of a
    save, whichever rank had it, are raised by a later ticket's wait(), by check() or by finish().
    Used by one thread. After a fork, the child must not use it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: RunFormat = "dcp",
        like: Any = None,
        optimizer: str = "fully_reshardable",
        release: str | None = None,
        most_in_flight: int = 1,
        staging: Size = "8GiB",
        overwrite: bool = False,
        tracker: str = "forward",
        keep: int | None = None,
        keep_every: int | None = None,
        manifest: bool = True,
        sha256: bool = False,
        files_per_rank: int = 1,
        group: Any = None,
        timeout: float = 1800.0,
        memory: Size = "512MiB",
        threads: int = 0,
    ) -> None:
        settings = _settings(locals())
        self._path = absolute(_ferry._path("path", path))
        self._process = os.getpid()
        self._format = format
        ranks = _ranks.group_of(group, timeout)
        made = _format(format, like, ranks, optimizer, release, settings, None)
        # A group of its own: threads of the saver use it.
        own = ranks.split_off() if ranks.size > 1 else ranks
        self._saver = _ferry._Saver(self._path, own, made, settings)
        _savers.add(self)

    def save(
        self,
        tensors: Mapping[str, Any],
        iteration: int,
        *,
        objects: Mapping[str, Any] | None = None,
    ) -> Ticket:
        """Begins to take a snapshot. The tensors stay alive until it is taken, and must not change
        before the ticket's wait() has returned."""
        if objects and self._format != "dcp":
            raise _no_objects(self._format)
        return self._saver.save(tensors, iteration, objects)

    def prepare(self, tensors: Mapping[str, Any]) -> None:
        """Allocates memory for snapshots of such tensors in the background, so that the first
        ticket need not wait for it."""
        self._saver.prepare(tensors)

    def check(self) -> None:
        """Raises the error of a save that failed, if it was not raised yet."""
        self._saver.check()

    def finish(self) -> None:
        """Returns when nothing is in flight; raises the error of a save that failed. Ctrl-C
        interrupts it, and the saves go on."""
        self._saver.finish()

    def stop(self, mode: Literal["after_writes", "at_once"] = "after_writes") -> None:
        """Takes no more snapshots: those that come are refused. Those that are copied already are
        written, or given up ("at_once"). For handlers of SIGTERM; call finish() then."""
        if mode not in ("after_writes", "at_once"):
            raise Invalid(f"mode={mode!r} is not 'after_writes' or 'at_once'")
        self._saver.stop(mode == "at_once")

    @property
    def is_stopped(self) -> bool:
        """True after stop(), of any rank as far as this one has heard of it."""
        return self._saver.is_stopped

    def status(self) -> SaverStatus:
        """What is in flight, and what was saved last."""
        return self._saver.status()

    def close(self) -> None:
        """finish(); then the saver ends, which waits until those of all ranks do."""
        if self._saver.is_closed:
            return
        try:
            self._saver.finish()
        finally:
            self._saver.end()

    def __enter__(self) -> AsyncSaver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._close_quietly()

    def _close_quietly(self) -> None:
        # What is in flight still gets to disk; a rank that fails waits for others only so long.
        if self._process != os.getpid() or self._saver.is_closed:
            return
        try:
            self._saver.finish_within(_PATIENCE)
        except Exception as error:
            warnings.warn(f"{self!r}: {error}", RuntimeWarning, stacklevel=3)
        self._saver.end_within(_PATIENCE)

    def __del__(self) -> None:
        saver = getattr(self, "_saver", None)
        if saver is None or self._process != os.getpid() or saver.is_closed:
            return
        if not sys.is_finalizing():
            warnings.warn(
                f"AsyncSaver({self._path!r}) was not closed: its errors are warnings",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )
            self._close_quietly()

    def __repr__(self) -> str:
        return f"AsyncSaver({self._path!r})"


_savers: weakref.WeakSet[AsyncSaver] = weakref.WeakSet()


@atexit.register
def _close_savers() -> None:
    for saver in list(_savers):
        saver._close_quietly()


def _settings(given: Mapping[str, Any]) -> Any:
    """The settings that save() and AsyncSaver have in common, from their keywords."""
    keywords = _ferry._options["save"].values()
    return _ferry._save_settings({name: given[name] for name in keywords if name in given})


def _refuse(format: str, **given: Any) -> None:
    """Refuses what has no effect with a format, where it is given."""
    for name, value in given.items():
        if value != (save.__kwdefaults__ or {})[name]:
            raise Invalid(f"{name}= cannot be used with format={format!r}")


def _format(
    format: str,
    like: Any,
    ranks: Any,
    optimizer: str,
    release: str | None,
    settings: Any,
    objects: Mapping[str, Any] | None,
) -> Any:
    """The format object for iterations of a run."""
    if format == "dcp":
        _refuse(format, like=like, optimizer=optimizer, release=release)
        return _ferry._dcp_format()
    if format in ("safetensors", "hf"):
        raise Invalid(f"format={format!r} is for save(): an AsyncSaver saves iterations of a run")
    if format not in ("torch_dist", "torch"):
        raise Invalid(
            f"format={format!r} is none; use 'dcp', 'torch_dist', 'torch', 'safetensors' or 'hf'"
        )
    if format == "torch":
        _refuse(format, release=release)
        if optimizer != "none":
            _refuse(format, optimizer=optimizer)
    if objects:
        raise _no_objects(format)
    if like is None:
        raise Invalid(f"format={format!r} needs like=, the checkpoint that the run began with")
    return _ferry._format_like(
        getattr(like, "path", like),
        ranks,
        format == "torch_dist",
        optimizer,
        release,
        settings.files_per_rank,
    )


def _model_format(
    format: str,
    like: Any,
    max_shard_size: Size,
    objects: Mapping[str, Any] | None,
    tensors: Mapping[str, Any],
    warnings: list[str],
) -> Any:
    if objects:
        raise Invalid(f"format={format!r} has no place for objects=")
    if (like is None) == (format == "hf"):
        raise Invalid("format='hf' needs like=, whose config.json it gets; 'safetensors' takes none")
    files: dict[str, bytes] = {}
    if like is not None:
        opened = like if isinstance(like, (Checkpoint, Model)) else open_checkpoint(like)
        try:
            model = opened if isinstance(opened, Model) else opened.hf()
            _compare(tensors, model, warnings)
            files = dict(model.files)
        finally:
            if opened is not like:
                opened.close()
    return _ferry._safetensors_format(_ferry._bytes("max_shard_size", max_shard_size), files)


def _compare(tensors: Mapping[str, Any], model: Model, warnings: list[str]) -> None:
    """What config.json describes is what the model has whose it is."""
    for name, tensor in tensors.items():
        expected = model[name].shape if name in model else None
        if expected is not None and tuple(getattr(tensor, "shape", expected)) != tuple(expected):
            raise Mismatch(
                f"tensor {name} is of shape {list(tensor.shape)}; its config.json, which is that of"
                f" like=, needs {list(expected)}"
            )
    missing = [name for name in model if name not in tensors]
    unknown = [name for name in tensors if name not in model]
    if model.config.get("tie_word_embeddings") and "lm_head.weight" in unknown:
        unknown.remove("lm_head.weight")  # as state_dict() has it
    for names, what in ((missing, "lacks tensors of like="), (unknown, "has tensors unlike like=")):
        if names:
            warnings.append(f"the model {what}: {', '.join(names[:5])} ({len(names)} in all)")


def _no_objects(format: str) -> Invalid:
    return Invalid(f"objects= are for format='dcp'; those of {format!r} are the ones of like=")


# DTensors: which box of the tensor this rank holds.


class _DTensors:
    """Called by the module for each DTensor of a snapshot."""

    def __init__(self) -> None:
        self._boxes: dict[Any, Box | None] = {}

    def __call__(self, name: str, tensor: Any) -> Shard | None:
        """None: this rank holds nothing of it."""
        mesh, placements, shape = tensor.device_mesh, tensor.placements, tensor.shape
        key = mesh, placements, shape
        if key not in self._boxes:
            if any(placement.is_partial() for placement in placements):
                raise Invalid(f"tensor {name} is a sum of parts ({placements}); redistribute() it")
            self._boxes[key] = box_of_rank(name, mesh, placements, shape)
        box = self._boxes[key]
        if box is None:
            return None
        offset, size = box
        local = tensor._local_tensor
        if hasattr(type(local), "wait"):  # a collective is still under way
            local = local.wait()
        if size != local.shape:
            raise Unsupported(
                f"tensor {name}: of its placements {placements} this rank should hold {size}, and it"
                f" holds {tuple(local.shape)}; give a ferry.Shard, which says where that is"
            )
        return Shard(local, shape, offset)
