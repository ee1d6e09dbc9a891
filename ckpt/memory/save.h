// Saves memory as an iteration of a run folder: every rank writes its own part, then one commits.
//
//   std::vector<float> weight = ...;
//   Snapshot snapshot;
//   snapshot.iteration = 100;
//   snapshot.tensors.push_back(whole_region("weight", DType::f32, {1000, 4096}, weight.data()));
//   save(posix_file_system(), "runs/a", snapshot, *lone_group());
//
// save() returns when the checkpoint is on disk; async_saver.h lets the caller go on meanwhile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/integrity/integrity_options.h"
#include "ckpt/io/file_system.h"
#include "ckpt/memory/snapshot.h"
#include "ckpt/store/begin_options.h"

namespace ferry {

struct SaveOptions {
  EngineOptions engine;        // memory besides the regions, threads and cancellation of this rank
  IntegrityOptions integrity;  // the manifest, with XXH3-128 of all bytes; SHA-256 on request
  BeginOptions begin;          // whether an iteration may be replaced, and what the tracker does
  int files_per_rank = 1;
};

/// Called by every rank of the group with its own snapshot; all must see the same file system and
/// give the same `run_folder` (which may be missing; its parent must exist) and options, but for
/// the engine's. The memory must not change until it returns. Rank 0 stages the iteration, each
/// rank writes and syncs its files, rank 0 commits once all have: only then the iteration has its
/// name, and then the tracker moves. Returns warnings (rank 0's).
///
/// Any rank's error fails all, each with the same Error, which names the rank; then the run folder
/// is as it was, unless the message says otherwise (StagedIteration::commit). invalid for
/// regions that are none, contradict each other or do not cover a tensor exactly once; mismatch
/// when ranks disagree on the iteration or the plan; otherwise as RunStore::begin and the engine.
std::vector<std::string> save(std::shared_ptr<const FileSystem> file_system,
                              const std::string& run_folder, const Snapshot& snapshot, Group& group,
                              const SaveOptions& options = {});

}  // namespace ferry
