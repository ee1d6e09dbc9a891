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

/// Positions of the parameters of each bucket, by rising place.
std::vector<std::vector<size_t>> parameters_of_buckets(const FlatBuffer& buffer);

/// Starts and ends of the parameters of each bucket, in no order: where its chunks end.
std::vector<std::vector<int64_t>> parameter_bounds(const FlatBuffer& buffer);

/// Adds to the bounds of one bucket those of the parts of its data ranks, as far as they are
/// stored, and sorts them, each once.
void add_rank_bounds(const FlatBucket& bucket, int64_t ranks, std::vector<int64_t>& bounds);

/// Where each bucket begins when they are stored one after another without their padded ends, and
/// where the last one ends.
std::vector<int64_t> coalesced_bounds(const FlatBuffer& buffer);

}  // namespace ferry
