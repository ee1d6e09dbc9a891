// Megatron-LM's distributed checkpoints (`--ckpt-format torch_dist`): a PyTorch distributed
// checkpoint, metadata.json, and the run's common state (args, scheduler, iteration) either in
// common.pt (Megatron Core up to 0.18) or as the object `common_state/shard_0_1` inside the data
// files (since 0.19).
//
// Source: megatron/core/dist_checkpointing/{core,serialization,mapping}.py.
#pragma once

#include <memory>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// A folder as stored: the raw catalog with its objects, and the common state.
struct StoredTorchDist {
  Checkpoint checkpoint;  // format, path, writer, catalog, metadata, notes
  LoadedValue common;     // the dict of the common state; none where the folder has none
  Object common_object;   // where `common` is stored
};

/// Reads an iteration folder. not_found when it is unfinished (which file is missing), unsupported
/// for another sharded backend (zarr), else as open_dcp.
StoredTorchDist read_torch_dist(std::shared_ptr<const FileSystem> file_system,
                                const std::string& folder);

/// The logical view: the common state's members become objects under their own names (args,
/// opt_param_scheduler, ...), optimizer state becomes per-parameter entries.
void apply_megatron_meaning(StoredTorchDist& stored);

/// Both, with args, iteration and layout filled. With `raw`, entries and objects stay exactly as
/// PyTorch names them. `args` take the place of those that the checkpoint has not, as verl's has
/// none.
Checkpoint open_torch_dist(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                           bool raw, const LoadedValue& args);
inline Checkpoint open_torch_dist(std::shared_ptr<const FileSystem> file_system,
                                  const std::string& folder, bool raw = false) {
  return open_torch_dist(std::move(file_system), folder, raw, {});
}

/// True when `name` is an optimizer's tensor: `optimizer.` with or without `chained_K.` before it.
bool is_optimizer_name(std::string_view name);

}  // namespace ferry
