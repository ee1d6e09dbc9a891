// fully_sharded_model_space: optimizer state of Megatron Core up to 0.14, per parameter, as
// flattened fragments.
//
// A parameter of shape [X, Y] that is split into pieces of [x, y] is stored as a tensor
// [X/x, Y/y, x*y]: which piece, then the piece's elements in row-major order, cut where
// data-parallel ranks were.
//
// Source: megatron/core/dist_checkpointing/strategies/torch.py at core_v0.12.0
// (sharded_tensor_to_torch_sharded_tensor).
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {

/// Adds the chunks of `stored`, the `state` of model tensor number `tensor`, whose shape is either
/// the tensor's or that of its fragments. mismatch when it is neither.
void add_fragments(const Entry& stored, std::string_view state, const ModelTensor& model,
                   uint32_t tensor, OptimizerEntries& entries);

}  // namespace ferry
