// PyTorch distributed checkpoints: a `.metadata` pickle and `__R_N.distcp` files.
//
// Gives the raw catalog: the keys, shapes and chunks that PyTorch itself reads, nothing of
// Megatron's meaning. Source: torch/distributed/checkpoint/{metadata,filesystem,_extension}.py.
#pragma once

#include <memory>
#include <string>

#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/io/file_system.h"

namespace ferry {

struct DcpCheckpoint {
  Catalog catalog;
  // The whole pickle: planner_data, mcore_data, version. Null for Hugging Face shards.
  std::shared_ptr<const Document> metadata;
};

/// Reads `folder`/.metadata, or the one __R.metadata of a rank that saved alone, or joins the
/// pieces that the Hugging Face writer left (`shard-*.safetensors`). Accepts both TensorProperties
/// modules, missing version, storage_meta or planner_data, foreign classes, transform descriptors
/// (stream.zstd/1) and safetensors items. not_found when data files are missing (names the ranks);
/// corrupt for chunks outside their file, uncovered or doubly covered elements, items that overlap
/// in a file.
DcpCheckpoint open_dcp(std::shared_ptr<const FileSystem> file_system, const std::string& folder);

}  // namespace ferry
