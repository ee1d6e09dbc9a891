// Saves memory as an iteration of a run folder: every rank writes its own part, then one commits.
//
//   const std::vector<float> weight = ...;
//   Snapshot snapshot;
//   snapshot.iteration = 100;
//   snapshot.tensors.push_back(whole_region("weight", DType::f32, {1000, 4096}, weight.data()));
//   save(posix_file_system(), "runs/a", snapshot, *lone_group());
//
// save() returns when the checkpoint is on disk; async_saver.h lets the caller go on meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/integrity/verify.h"
#include "ckpt/io/file_system.h"
#include "ckpt/megatron/model/target_options.h"
#include "ckpt/memory/region.h"
#include "ckpt/store/options.h"

namespace ferry {

struct Checkpoint;  // ckpt/checkpoint.h

/// Something that is not a tensor: the bytes of a torch.save archive, and its name.
struct StoredObject {
  std::string name;
  std::string archive;
};

class SnapshotFormat;  // how snapshots are stored: ckpt/memory/snapshot_format.h

/// Plain PyTorch distributed checkpoint: each name is a key of the state dict; invalid when one has
/// "/shard_" in it, as Megatron-LM's objects do. torch_dist_format() is Megatron-LM's.
std::shared_ptr<const SnapshotFormat> dcp_format();

/// safetensors files, as Hugging Face's libraries load them, with `small_files` (name, content: the
/// model's config.json, say) next to them. Rank 0 writes all; every rank gives all tensors, whole
/// (invalid otherwise), and no objects.
std::shared_ptr<const SnapshotFormat> safetensors_format(
    uint64_t max_shard_bytes = 5'000'000'000,
    std::vector<std::pair<std::string, std::string>> small_files = {});

struct Snapshot {
  int64_t iteration = 0;  // at least 0, the same on all ranks
  /// The parts of tensors that this rank holds. Those of all ranks cover each tensor; an equal part
  /// that several ranks hold (a replica) is written by one of them. Otherwise they do not overlap.
  std::vector<ConstRegion> tensors = {};
  /// Under names that no other rank gives.
  std::vector<StoredObject> objects = {};
  std::shared_ptr<const SnapshotFormat> format = dcp_format();
};

struct SaveOptions {
  EngineOptions engine = {};  // memory besides the regions, threads and cancellation of this rank
  IntegrityOptions integrity = {};  // the manifest, with XXH3-128 of all bytes; SHA-256 on request
  BeginOptions begin = {};  // whether an iteration may be replaced, and what the tracker does
  int files_per_rank = 1;
  /// Which iterations of the run folder stay once this one is there; the others go, as prune() says
  /// (ops/prune.h). What it cannot remove is a warning: the save has succeeded.
  Retention keep = {};
};

/// Called by every rank of the group with its own snapshot; all must see the same file system and
/// give the same `run_folder` (which may be missing; its parent must exist) and options, but for
/// the engine's. The memory must not change until it returns. Rank 0 stages the iteration, each
/// rank writes and syncs its files, rank 0 commits once all have: only then the iteration has its
/// name, and then the tracker moves. Returns warnings (rank 0's).
///
/// Any rank's error fails all, each with the same Error, which names the rank; then the run folder
/// is as it was, unless the message says that the iteration is complete and only the tracker could
/// not be moved. invalid for regions that are malformed, contradict each other or do not cover a
/// tensor exactly once, and for an iteration that is there without `overwrite`; mismatch when ranks
/// disagree on the iteration or the plan; busy when another process saves in the folder; io and
/// exhausted from the file system; cancelled.
std::vector<std::string> save(std::shared_ptr<const FileSystem> file_system,
                              const std::string& run_folder, const Snapshot& snapshot, Group& group,
                              const SaveOptions& options = {});

/// Snapshots of a Megatron-LM run, in torch_dist. Arguments, scheduler, parameter groups and random
/// number states are those of the checkpoint that the run began with, the same on all ranks.
/// Tensors have the names and shapes of a torch_dist checkpoint; those of the optimizer are
/// "optimizer.state.{param,exp_avg,exp_avg_sq}.<name of the model tensor>", fp32 and of its shape,
/// and each rank gives the shards that it holds. unsupported for a checkpoint that is
/// not of a Megatron-LM run.
std::shared_ptr<const SnapshotFormat> torch_dist_format(const Checkpoint& begun_with,
                                                        TorchDistOptions options = {});

/// The same as rank folders (`--ckpt-format torch`), of the layout that the arguments name, whose
/// ranks are the group's. A snapshot without objects. `optimizer`: with its state.
std::shared_ptr<const SnapshotFormat> legacy_format(const Checkpoint& begun_with,
                                                    bool optimizer = true);

}  // namespace ferry
