// Angles of rotary position embeddings.
//
// Source: Su et al. 2021; Megatron-LM, models/common/embeddings/{rotary_pos_embedding,
// yarn_rotary_pos_embedding}.py; Peng et al. 2023 (YaRN); Llama 3.1's scaling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckpt/megatron/model/architecture.h"

namespace ferry {

/// A row of dim / 2 elements for each position.
struct RopeTable {
  int64_t dim = 0;
  std::vector<float> cosine, sine;
};

/// The table for these positions, with the architecture's base and scaling; empty without rotary
/// embeddings.
RopeTable rope_table(const Architecture& architecture, std::span<const int64_t> positions);

/// The factor of attention scores.
double attention_scale(const Architecture& architecture);

}  // namespace ferry
