// PyTorch's DTensor as torch.save pickles it: the part of a tensor that one rank holds, and how the
// tensor is spread over a mesh of ranks. And its ShardedTensor, which FSDP 1 gives without a mesh:
// the part, and its place.
//
// Source: torch/distributed/tensor/{_api,_dtensor_spec,placement_types}.py, device_mesh.py,
// torch/_tensor.py (__reduce_ex__ of subclasses), torch/distributed/_shard/sharded_tensor/api.py
// (__getstate__).
#pragma once

#include <optional>
#include <string>

#include "ckpt/base/box.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

struct DTensorPart {
  const StoredTensor* local = nullptr;  // what this rank holds; null: no part of a ShardedTensor
  Dims shape;                           // of the whole tensor
  Box box;                 // its place in the tensor; without elements: nothing is held
  int64_t mesh_ranks = 0;  // over which it is spread; those outside hold the same; 0: not known
  bool copy = false;       // another rank is the first to hold the same
};

/// Nothing when the value is neither. corrupt, naming `what`, when the part is not of the size that
/// mesh and placements, or the ShardedTensor's own words, give it; unsupported for other placements
/// than Shard, Replicate and FSDP's _StridedShard, and for several parts of a ShardedTensor on one
/// rank.
std::optional<DTensorPart> read_dtensor(const Value& value, const std::string& what);

}  // namespace ferry
