// The global model of a legacy checkpoint, put together from its ranks' local tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/rank_folders/folder_names.h"
#include "ckpt/megatron/rank_folders/names.h"
#include "ckpt/megatron/rank_folders/rank.h"

namespace ferry {

/// One tensor of a rank's file with its place in the model.
struct LegacyTensor {
  const RankTensor* stored = nullptr;
  struct Part {
    LocalView view;
    LocalParameter parameter;
  };
  std::vector<Part> parts;  // empty: no part of the model (rotary frequencies)

  bool trainable() const { return !parts.empty() && parts.front().parameter.trainable; }
};

/// One model chunk of a rank, in the order of the file, which is that of registration.
using LegacyChunk = std::vector<LegacyTensor>;

struct LegacyModel {
  std::vector<ModelTensor> tensors;
  std::vector<std::vector<LegacyChunk>> ranks;  // by folder, then virtual stage
  ModuleChoice modules;  // by names and sizes, else as Megatron-LM would build them today
};

/// The name of a rank's parameter with the numbers of its layer and expert in the model, as in
/// LocalView.
std::string global_parameter_name(const ModelLayout& layout, const LocalParameter& parameter);

struct LegacyModelOptions {
  bool stacked = true;  // homogeneous layers have one tensor
  bool tied = false;
  int checkpoint_version = 3;
  int64_t latent_q = 0, latent_kv = 0;  // rows of MLA's down-projections; 0: none
};

/// `ranks` must outlive the result. mismatch when the ranks do not fit together, unsupported for
/// names that are not known.
LegacyModel place_legacy_model(const std::vector<RankFolder>& folders,
                               const std::vector<LegacyRank>& ranks, const RunArguments& run,
                               const LegacyModelOptions& options);

/// Calls `give` with every piece of the model that `part` of a tensor is. `base` is the tensor's
/// place; `heads` of this rank matter to checkpoint versions below 2 only.
void give_pieces(const LegacyTensor::Part& part, const RankTensor& base, int64_t heads,
                 const std::function<void(uint32_t tensor, Chunk chunk)>& give);

}  // namespace ferry
