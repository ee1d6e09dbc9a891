// The optimizer state of a flat buffer, gathered from its parameters.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/state/state_parts.h"

namespace ferry {

/// Gathers one buffer bucket by bucket; one kind of state at a time.
class BufferState {
 public:
  /// Both must outlive it.
  BufferState(const ModelBuffer& buffer, StateParts& parts);

  size_t buckets() const noexcept { return buffer_.flat.buckets.size(); }

  /// One kind of state of the buckets [begin, end), one after another without their padded ends:
  /// one axis, zeros between parameters. unsupported when parameters have it in two dtypes.
  StateTensor gather(size_t kind, size_t begin, size_t end, std::string name);

 private:
  void append(size_t kind, size_t parameter, FlatRecipe& flat);
  void agree_on_dtype(const StateParts::Part& part);

  const ModelBuffer& buffer_;
  StateParts& parts_;
  std::vector<std::vector<size_t>> members_;  // parameters by bucket, by rising place
  std::optional<DType> dtype_;                // of the kind being gathered
};

}  // namespace ferry
