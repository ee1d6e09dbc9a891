"""The operations of the ferry program, as functions.

Every option is a keyword. Sizes are ints, in bytes, or texts such as "2GiB" and "5GB"; paths are
str or os.PathLike. Patterns are those of a shell: '*' matches any characters. All functions raise
ferry.Error; Ctrl-C is KeyboardInterrupt, and then, as after any error, the target is as it was.
"""

from __future__ import annotations

import os
from typing import Any, Iterable, Literal, Mapping, Sequence, Union, overload

from ferry import _ferry, _ranks
from ferry._ferry import (
    CheckReport,
    ConvertReport,
    DiffReport,
    Estimate,
    InspectReport,
    PruneReport,
    ReshardReport,
    RunVerification,
    SealReport,
    VerifyReport,
)
from ferry.progress import Progress, watched

Path = Union[str, "os.PathLike[str]"]
Size = Union[int, str]
Iteration = Union[int, str]
Renames = Union[Mapping[str, str], Iterable["tuple[str, str]"]]


def convert(
    source: Path,
    target: Path,
    *,
    to: Literal["hf", "safetensors", "torch_dist", "torch"] = "hf",
    iteration: Iteration | None = None,
    raw: bool = False,
    family: str | None = None,
    dtype: Any = None,
    from_masters: bool = False,
    optimizer: bool = False,
    base_only: bool = False,
    tokenizer_folder: Path | None = None,
    ignore_index: bool = False,
    vocab_size: int | None = None,
    cut_tokens: bool = False,
    keep_padding: bool = False,
    quantize: str | None = None,
    as_is: bool = False,
    fill_from: Path | None = None,
    max_shard_size: Size = "5GB",
    tensor: int | None = None,
    pipeline: int | None = None,
    virtual_pipeline: int | None = None,
    expert: int | None = None,
    expert_tensor: int | None = None,
    data: int | None = None,
    context: int | None = None,
    first_stage_layers: int | None = None,
    last_stage_layers: int | None = None,
    stage_letters: str | None = None,
    embedding_is_a_layer: bool = False,
    loss_is_a_layer: bool = False,
    make_vocab_size_divisible_by: int = 128,
    transformer_engine: bool | None = None,
    config_folder: Path | None = None,
    only: Sequence[str] = (),
    renames: Renames = (),
    drop_unknown: bool = False,
    ignored_members: Sequence[str] = (),
    release: str = "0.20",
    zstd_level: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    manifest: bool = True,
    sha256: bool = False,
    memory: Size = "512MiB",
    threads: int = 0,
    group: Any = False,
    progress: Progress = None,
) -> ConvertReport:
    """Writes the model of a checkpoint in another format.

    source: a checkpoint of any format: a folder, a file, or the folder of a run.
    target: folder to create; with to="torch_dist" or "torch" the run folder to write a release
        into.
    to: "hf", a Hugging Face model; "safetensors", the tensors as they are stored; "torch_dist" or
        "torch", a run of Megatron-LM.
    iteration: of a run folder, a number or "release"; None: the one that the tracker names.
    raw: with to="safetensors": the tensors as stored, before Megatron-LM's meaning is applied.
    family: of the model, instead of recognizing it: "llama", "deepseek_v3", ...
    dtype: of floating-point tensors: "bf16", torch.float16, ...; None: as they are.
    from_masters: write the optimizer's fp32 master weights instead of the rounded weights.
    optimizer: with to="safetensors", "torch_dist", "torch": the optimizer's state, too.
    base_only: drop the adapter (LoRA) inside the model.
    tokenizer_folder: of tokenizer files to copy; None: the checkpoint's own, if it has some.
    ignore_index: use the shards where a Hugging Face folder's index disagrees with them.
    vocab_size: rows to keep of the embedding and the output layer.
    cut_tokens: let vocab_size cut rows of tokens that the tokenizer or the arguments define.
    keep_padding: keep the padding rows of the vocabulary.
    quantize: linear layers as codes with scales: "fp8", "mxfp4", "nvfp4", "int4", ... (the
        names of the program's --quantize).
    as_is: do not check a Hugging Face model against its config.json.
    fill_from: a Hugging Face model to take missing tensors and files from.
    max_shard_size: most bytes of tensors in a file.
    tensor, pipeline, virtual_pipeline, expert, expert_tensor, data, context: numbers of ranks of a
        run that is made; None: 1.
    first_stage_layers: layers of the first pipeline stage.
    last_stage_layers: layers of the last one.
    stage_letters: --pipeline-model-parallel-layout of Megatron-LM.
    embedding_is_a_layer: --account-for-embedding-in-pipeline-split.
    loss_is_a_layer: --account-for-loss-in-pipeline-split.
    make_vocab_size_divisible_by: the vocabulary of a run is padded to a multiple of this times the
        tensor ranks.
    transformer_engine: modules that load the run: Transformer Engine's, or False for local ones.
    config_folder: of the config.json of a state dict; None: next to it.
    only: patterns of tensors of a state dict that belong to the model.
    renames: {old: new} names of tensors; one '*' on both sides stands for the same text.
    drop_unknown: leave out tensors that the family does not have, instead of refusing them.
    ignored_members: of config.json that are known to have no effect.
    release: of Megatron Core that is to load the run.
    zstd_level: 1 to 19: compress what is stored; torch_dist alone.
    overwrite: what is there may be replaced.
    dry_run: plan and check everything, and write nothing.
    manifest: write ferry.manifest.json, the checksums that verify() uses.
    sha256: write integrity.json, too; reads all files once more.
    memory: for buffers.
    threads: 0: one for each core.
    group: ranks that do it together, each a part, all calling this alike: a ProcessGroup of
        torch.distributed, or None for its default one. False: this process alone.
    progress: None, True, or a callable(done, total), in bytes.
    """
    options = locals()
    options["group"] = _ranks.group_of(group)
    with watched(options.pop("progress"), "converting") as call:
        return _ferry.convert(options, call)


def reshard(
    source: Path,
    target: Path,
    *,
    to: Literal["torch_dist", "torch", "fsdp_dtensor", "dcp"] = "torch_dist",
    iteration: Iteration | None = None,
    raw: bool = False,
    optimizer: Literal[
        "as_source", "fully_reshardable", "dp_reshardable", "legacy", "none"
    ] = "as_source",
    masters: Literal["as_source", "fp32", "remainders"] = "as_source",
    model: Literal["as_source", "gpt", "hybrid"] = "as_source",
    repair_masters: bool = False,
    config_folder: Path | None = None,
    tensor: int | None = None,
    pipeline: int | None = None,
    virtual_pipeline: int | None = None,
    expert: int | None = None,
    expert_tensor: int | None = None,
    data: int | None = None,
    context: int | None = None,
    first_stage_layers: int | None = None,
    last_stage_layers: int | None = None,
    stage_letters: str | None = None,
    embedding_is_a_layer: bool = False,
    loss_is_a_layer: bool = False,
    vocabulary_divisor: int | None = None,
    transformer_engine: bool | None = None,
    dtype: Any = None,
    only: Sequence[str] = (),
    drop: Sequence[str] = (),
    renames: Renames = (),
    release: str = "0.20",
    zstd_level: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    manifest: bool = True,
    sha256: bool = False,
    memory: Size = "512MiB",
    threads: int = 0,
    group: Any = False,
    progress: Progress = None,
) -> ReshardReport:
    """Writes a training checkpoint, its optimizer included, at another layout or in another format.

    source: a checkpoint of any format that a run of Megatron-LM can be made of, or a run folder.
    target: a run folder; with to="dcp" the checkpoint's own folder.
    to: "torch_dist"; "torch", legacy; "fsdp_dtensor", Megatron-FSDP's; "dcp", plain PyTorch.
    iteration: of a run folder, a number or "release"; None: the one that the tracker names.
    raw: the entries as they are stored.
    optimizer: the form of its state; "as_source": a tensor per parameter where the format can.
    masters: the form of its copies of bf16 parameters; "as_source": remainders where the source has
        them and the target can, else fp32.
    model: the class of Megatron-LM's that is to load it; "hybrid" has layers of attention and MLPs.
    repair_masters: put optimizer state back that Megatron Core 0.15 to 0.19 misplaced.
    config_folder: of config.json, for a run without arguments; None: the run's.
    tensor, pipeline, virtual_pipeline, expert, expert_tensor, data, context: numbers of ranks;
        None: as in the source, or what follows from those that are given.
    first_stage_layers: layers of the first pipeline stage.
    last_stage_layers: layers of the last one.
    stage_letters: --pipeline-model-parallel-layout of Megatron-LM.
    embedding_is_a_layer: --account-for-embedding-in-pipeline-split.
    loss_is_a_layer: --account-for-loss-in-pipeline-split.
    vocabulary_divisor: pad the vocabulary to a multiple of this times the tensor ranks.
    transformer_engine: modules that load it: Transformer Engine's, or False for local ones; None:
        the source's.
    dtype: of the model's floating-point tensors: "bf16", torch.float16, ...; None: as they are.
    only: patterns of tensors to keep, with their optimizer state; none: all.
    drop: patterns of tensors to leave out.
    renames: {old: new} names of tensors; one '*' on both sides stands for the same text.
    release: of Megatron Core that is to load it.
    zstd_level: 1 to 19: compress what is stored; not with to="torch".
    overwrite: the iteration that is there may be replaced.
    dry_run: plan and check everything, and write nothing.
    manifest: write ferry.manifest.json, the checksums that verify() uses.
    sha256: write integrity.json, too; reads all files once more.
    memory: for buffers.
    threads: 0: one for each core.
    group: ranks that do it together, each a part, all calling this alike: a ProcessGroup of
        torch.distributed, or None for its default one. False: this process alone.
    progress: None, True, or a callable(done, total), in bytes.
    """
    options = locals()
    options["group"] = _ranks.group_of(group)
    with watched(options.pop("progress"), "resharding") as call:
        return _ferry.reshard(options, call)


@overload
def verify(
    path: Path,
    *,
    run: Literal[False] = False,
    iteration: Iteration | None = None,
    masters: bool = True,
    manifests: bool = True,
    values: bool = True,
    memory: Size = "512MiB",
    threads: int = 0,
    progress: Progress = None,
) -> VerifyReport: ...
@overload
def verify(
    path: Path,
    *,
    run: Literal[True],
    masters: bool = True,
    manifests: bool = True,
    values: bool = True,
    memory: Size = "512MiB",
    threads: int = 0,
    progress: Progress = None,
) -> RunVerification: ...
def verify(
    path: Path,
    *,
    run: bool = False,
    iteration: Iteration | None = None,
    masters: bool = True,
    manifests: bool = True,
    values: bool = True,
    memory: Size = "512MiB",
    threads: int = 0,
    progress: Progress = None,
) -> VerifyReport | RunVerification:
    """Checks a checkpoint for damage. What is wrong is in the report and is not raised.

    path: a checkpoint of any format, or the folder of a run.
    run: check every complete iteration of a run folder, and its tracker.
    iteration: of a run folder, a number or "release"; None: the one that the tracker names.
    masters: compare the optimizer's fp32 master weights with the weights.
    manifests: check the files against the checksums next to them.
    values: look for NaN and infinite values; reads tensors that are under no checksum, too.
    memory: for buffers.
    threads: 0: one for each core.
    progress: None, True, or a callable(done, total), in bytes; with run=True for each iteration.
    """
    options = locals()
    options.pop("path")
    if not options.pop("run"):
        with watched(options.pop("progress"), "verifying") as call:
            return _ferry.verify(path, options, call)
    if iteration is not None:
        raise ValueError("run=True checks all iterations; iteration= names one of them")
    with watched(options.pop("progress"), "verifying") as call:
        return _ferry.verify_run(path, options, call)


def check(
    path: Path,
    *,
    loader: Literal["any", "transformers", "vllm", "sglang"] = "any",
    like: Path | None = None,
) -> CheckReport:
    """Checks that a Hugging Face folder is whole and loads where it is to be used, from headers alone.

    path: the folder.
    loader: the program that is to load it; what only this one trips over is a problem.
    like: the folder of the model that it was made from, to compare names, shapes and files with.
    """
    options = locals()
    options.pop("path")
    return _ferry.check(path, options, None)


def seal(
    path: Path,
    *,
    iteration: Iteration | None = None,
    sha256: bool = False,
    dry_run: bool = False,
    memory: Size = "512MiB",
    threads: int = 0,
    progress: Progress = None,
) -> SealReport:
    """Creates or updates the checksums of a checkpoint; Corrupt where it is damaged.

    path: the folder of a checkpoint, or of a run.
    iteration: of a run folder, a number or "release"; None: the one that the tracker names.
    sha256: write integrity.json, too; one that is there is renewed in any case.
    dry_run: compute everything, and write nothing.
    memory: for buffers.
    threads: 0: one for each core.
    progress: None, True, or a callable(done, total), in bytes.
    """
    options = locals()
    options.pop("path")
    with watched(options.pop("progress"), "sealing") as call:
        return _ferry.seal(path, options, call)


def diff(
    a: Path,
    b: Path,
    *,
    iteration_a: Iteration | None = None,
    iteration_b: Iteration | None = None,
    raw_a: bool = False,
    raw_b: bool = False,
    tolerance: float | None = None,
    relative_tolerance: float | None = None,
    ignore_dtype: bool = False,
    only: Sequence[str] = (),
    drop: Sequence[str] = (),
    objects: bool = True,
    order: Literal["catalog", "difference", "size"] = "catalog",
    memory: Size = "512MiB",
    threads: int = 0,
    progress: Progress = None,
) -> DiffReport:
    """Compares two checkpoints of any formats and layouts, tensor by tensor.

    a: a checkpoint, or the folder of a run.
    b: another one.
    iteration_a: of a run folder, a number or "release"; None: the one that the tracker names.
    iteration_b: the same for b.
    raw_a: the entries of a as they are stored.
    raw_b: the same for b.
    tolerance: the largest |a - b| that counts as equal; None: elements must have the same bits.
    relative_tolerance: the same in parts of the larger of |a| and |b|; meeting either is enough.
    ignore_dtype: compare values, whatever the dtypes.
    only: patterns of tensors to compare; none: all.
    drop: patterns of tensors not to compare.
    objects: compare arguments, scheduler and other objects, too.
    order: of the result: as in a; largest difference first; largest tensors first.
    memory: for buffers.
    threads: 0: one for each core.
    progress: None, True, or a callable(done, total), in bytes of a.
    """
    options = locals()
    with watched(options.pop("progress"), "comparing") as call:
        return _ferry.diff(options, call)


def prune(
    path: Path,
    *,
    keep_last: int | None = None,
    keep_every: int | None = None,
    unfinished: bool = False,
    verify: bool = False,
    dry_run: bool = False,
    progress: Progress = None,
) -> PruneReport:
    """Deletes old iterations of a run. Never the last good one, nor what the tracker names.

    path: the folder of a run.
    keep_last: so many good iterations with the highest numbers stay.
    keep_every: those whose number it divides stay, too.
    unfinished: unfinished ones that are older than the last good one go, too.
    verify: check every byte of the last good iteration before anything is removed.
    dry_run: decide, and remove nothing.
    progress: None, True, or a callable(done, total), in bytes: first of what is checked, then of
        what is removed.
    """
    options = locals()
    options.pop("path")
    with watched(options.pop("progress"), "pruning") as call:
        return _ferry.prune(path, options, call)


def inspect(
    path: Path,
    *,
    iteration: Iteration | None = None,
    raw: bool = False,
    tensors: str | None = None,
    stats: str | None = None,
    check_masters: bool = False,
    objects: bool = False,
    memory: Size = "512MiB",
    threads: int = 0,
    progress: Progress = None,
) -> InspectReport:
    """What a checkpoint is and holds: names and sizes, and values where they are asked for.

    path: a checkpoint of any format, or the folder of a run.
    iteration: of a run folder, a number or "release"; None: the one that the tracker names.
    raw: the entries as they are stored.
    tensors: a pattern: list the tensors that match it.
    stats: a pattern: read the tensors that match it, for statistics of their values.
    check_masters: compare the optimizer's fp32 master weights with the weights.
    objects: read stored objects other than tensors.
    memory: for buffers.
    threads: 0: one for each core.
    progress: None, True, or a callable(done, total), in bytes that are read.
    """
    options = locals()
    options.pop("path")
    with watched(options.pop("progress"), "reading") as call:
        return _ferry.inspect(path, options, call)


def estimate(
    model: Path | None = None,
    *,
    arguments: Sequence[str] = (),
    gpus: int = 0,
    gpus_per_node: int = 8,
    gpu_memory: Size | None = None,
    gpu: str | None = None,
    bandwidth: Size | None = None,
    at: Sequence[int] = (),
) -> Estimate:
    """What training a model takes: parameters, memory, operations, checkpoint sizes, time.

    model: a checkpoint, a config.json, or a file of Megatron-LM's arguments; None: arguments alone.
    arguments: Megatron-LM's, word by word, which override those of the model.
    gpus: one rank each; 0: as the arguments say.
    gpus_per_node: within which tensor ranks stay.
    gpu_memory: with it, layouts that fit are searched for.
    gpu: whose measured speed is used: "h100", "h200", "a100"; None: by the memory.
    bandwidth: of the storage, in bytes per second, for times of saving and loading.
    at: iterations whose learning rates to report.
    """
    return _ferry.estimate(locals(), None)
