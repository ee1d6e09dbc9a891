// Names of a legacy rank's tensors, turned into those of torch_dist with one name a layer and
// expert, whatever release wrote them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/model/pipeline_layout.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/rank_folders/rank.h"

namespace ferry {

/// How a rank's tensor, laid out row-major, is seen as a tensor of the name that torch_dist gives.
struct LocalView {
  std::string name;  // "decoder.layers.7.mlp.experts.experts.3.linear_fc1.weight": global numbers
  Dims shape;
  Dims strides;         // elements
  int64_t offset = 0;   // elements
  int qkv_version = 2;  // checkpoint_version: how rows of query, key and value are interleaved
};

struct LegacyNaming {
  const RunArguments* run = nullptr;
  StageContents stage;
  int64_t first_expert = 0;  // of this rank
  int64_t local_experts = 0;
  bool tied = false;  // the last stage's output layer is a copy of the word embeddings
  int checkpoint_version = 3;
};

/// The views of each tensor of one model chunk: one, or several where old releases kept all experts
/// in one tensor. None for what is not a parameter or buffer of the model (rotary frequencies).
std::vector<std::vector<LocalView>> name_tensors(const std::vector<RankTensor>& tensors,
                                                 const LegacyNaming& naming);

/// What a rank's names show of the modules; the rest stays as it is.
void detect_modules(const std::vector<RankTensor>& tensors, ModuleChoice& modules);

}  // namespace ferry
