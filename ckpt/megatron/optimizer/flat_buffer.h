// Where the distributed optimizer puts parameters in its flat buffers.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (_compute_per_buffer_param_layout),
// param_layout.py; before Core 0.18 megatron/core/distributed/param_and_grad_buffer.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ferry {

struct FlatParameter {
  int64_t elements = 0;
  bool own_bucket = false;  // embeddings that the first and a later stage share
};

struct FlatBufferRules {
  int64_t ranks = 1;                         // data-parallel ranks that share the buffer
  std::optional<int64_t> bucket_elements{};  // a bucket is closed at or above this; none: never
  bool pad_for_bandwidth = false;            // ddp_pad_buckets_for_high_nccl_busbw
};

struct FlatPlace {
  size_t bucket = 0;
  int64_t begin = 0, end = 0;  // elements, from the bucket's start
};

struct FlatBucket {
  int64_t elements = 0;  // a multiple of the number of ranks; each rank owns an equal part in turn
  int64_t unpadded = 0;  // up to the end of the last parameter; what checkpoints store
};

struct FlatBuffer {
  std::vector<FlatPlace> places;  // of the parameters, in the order given
  std::vector<FlatBucket> buckets;
};

/// Places the parameters of one buffer, given in order of registration; they are laid out in
/// reverse, each at a multiple of 64 elements. corrupt when the sizes overflow.
FlatBuffer lay_out_flat_buffer(std::span<const FlatParameter> parameters,
                               const FlatBufferRules& rules);

}  // namespace ferry
