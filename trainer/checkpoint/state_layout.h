// Which tensors a model has, and what of them and of their optimizer state each rank keeps.
#pragma once

#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"

namespace ferry {

/// The same on all ranks.
struct StateLayout {
  ModelLayout layout;
  BufferChoice choice;
};

}  // namespace ferry
