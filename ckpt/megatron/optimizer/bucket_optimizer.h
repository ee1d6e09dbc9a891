// dp_reshardable: optimizer state as flat gradient buckets.
//
// A checkpoint of this kind records neither which parameters a bucket holds nor in which order.
// Both follow from the run's arguments, the model's tensors and Megatron-LM's construction of
// modules; what those leave open (whether norms live inside the linear layers, how experts are
// grouped) is tried, and kept only if one order predicts every bucket's length and every chunk
// boundary.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (sharded_param_state_dp_reshardable),
// megatron/core/optimizer/__init__.py (groups of buffers).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"

namespace ferry {

/// True for "[chained_K.]optimizer.distributed.dp_group_idx_G.gbuf_idx_B...".
bool is_bucket_entry(std::string_view name);

/// One way in which Megatron-LM may have built a model and its buffers.
struct BufferCandidate {
  BufferChoice choice;
  std::string words;  // for messages
};

/// Those that tensors and arguments leave open; what Megatron-LM would build today comes first.
/// `several_optimizers`: the run may have had one for dense parameters and one for experts.
std::vector<BufferCandidate> buffer_candidates(const ModelLayout& layout, bool several_optimizers,
                                               const std::vector<bool>& elsewhere = {});

struct DecodedBuckets {
  std::vector<Entry> entries;
  ModuleChoice modules;  // in whose order they were found
};

/// The per-parameter entries of all bucket entries of `catalog`. Reads per_bucket_numel objects
/// where they exist, at most 32 of them (a read each; the lengths of the buckets themselves and all
/// chunk boundaries are checked in every group). unsupported or mismatch, with the reason, when no
/// order or more than one fits; corrupt for names or chunks that contradict themselves.
/// `elsewhere`: by number of the layout's tensor, whether its state is in entries of its own (those
/// of a layer-wise optimizer), so that no bucket holds it.
DecodedBuckets decode_buckets(const Catalog& catalog, const ModelLayout& layout,
                              const std::vector<bool>& elsewhere = {});

}  // namespace ferry
