// Lays out PyTorch distributed checkpoints: from placed tensors and objects to a plan.
//
// A rank R writes the files __R_0.distcp, __R_1.distcp, ...: its objects, then its shards of
// tensors, each an item: one torch.save archive of its own, items one after another without gaps.
// Archives are laid out here to the last byte; the payloads inside them are what the plan moves.
//
// Source: torch/distributed/checkpoint/filesystem.py (_write_files_from_queue,
// _split_by_size_and_type), metadata.py.
#pragma once

#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/core/placed.h"
#include "ckpt/format/dcp/dcp_metadata_writer.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

struct DcpWriteOptions {
  int files_per_rank = 1;    // a rank without anything to write has none
  LoadedValue planner_data;  // as DcpContent
  bool zstd = false;         // the plan is for run_compressed(): .metadata is written after it
};

/// The plan of the data files, and `.metadata` as the one small file (or the late one). `source` is
/// what the recipes' inputs count in. Entries of the plan's target are the tensors, in their order.
/// invalid when files_per_rank is not positive, two keys are equal or one is not UTF-8; mismatch
/// when shards are outside their tensor. Whether they cover it once is left to check() of the plan.
PlannedOutput lay_out_dcp(SharedCatalog source, PlacedState state, const DcpWriteOptions& options);

/// The data files alone, of all ranks or of one that writes its own, and what `.metadata` says of
/// them.
struct DcpFiles {
  Plan plan;
  DcpContent content;  // entries are those of the plan's target, then the objects; no save_id
};
DcpFiles lay_out_dcp_files(SharedCatalog source, PlacedState state, int files_per_rank);

/// What PyTorch's own planner keeps: the path of each key in the state dict, of which the key was
/// made. That of `known` (a dict, or none), else the key itself: of a flat state dict.
LoadedValue dcp_paths(const std::vector<std::string>& keys, const Value& known = {});

}  // namespace ferry
