// Parameters as runs of elements of the flat tensors that ZeRO's ranks hold.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/format/torch/archive/torch_archive.h"

namespace ferry {

/// A flat tensor: elements of one type, one after another.
struct FlatTensor {
  Extent extent;
  DType dtype = DType::f32;
  int64_t elements = 0;
};

/// corrupt, naming `what`, when it is not a contiguous tensor of one axis.
FlatTensor flat_tensor(const TorchArchive& archive, uint32_t file, const Value& value,
                       const std::string& what);

struct ZeroParameter {
  std::string name;
  Dims shape;
  int64_t gap = 0;  // elements between its end and the begin of the next
};
using ZeroGroup = std::vector<ZeroParameter>;  // in the order of the flat tensors

/// By rank, then group (of stage 3: any pieces).
using FlatTensors = std::vector<std::vector<FlatTensor>>;

/// Stages 1 and 2: the flat tensors of a group's ranks, one after another, hold the group's
/// parameters, one after another. `sizes` are those that the ranks' parts were cut by. Entries have
/// the names prefix + parameter. corrupt, naming `what`, when the numbers of elements contradict.
std::vector<Entry> join_groups(const std::vector<ZeroGroup>& groups, const FlatTensors& flats,
                               const FlatTensors& sizes, const std::string& prefix, Role role,
                               const std::string& what);

/// Stage 3: each rank holds its part of every parameter, one after another.
std::vector<Entry> join_parts(const std::vector<ZeroGroup>& groups, const FlatTensors& flats,
                              const std::string& prefix, Role role, const std::string& what);

/// Stage 3's part of rank `rank` of `ranks`: a run of a parameter of so many elements.
Shard rank_part(const Dims& shape, int64_t elements, int64_t ranks, int64_t rank);

}  // namespace ferry
