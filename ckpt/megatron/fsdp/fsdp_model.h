// The model of a checkpoint in which every tensor has its module's own name, put together into the
// tensors of a torch_dist checkpoint: layers and experts stacked, the halves of gated projections
// (`weight_w`, `weight_v`) joined.
//
// Source: megatron/core/transformer/fsdp_dtensor_checkpoint.py, megatron/training/checkpointing.py
// (preprocess_fsdp_dtensor_state_dict).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {

/// Where a stored tensor is in the model: a sub-tensor, or rows of one, of a tensor of the model.
struct FsdpPlace {
  uint32_t tensor = 0;
  Dims at;          // leading coordinates: layer, expert
  int64_t row = 0;  // first row, on the axis after those
  Dims shape;       // of the stored tensor
  bool trainable = true;
};

class FsdpModel {
 public:
  /// `stored` are the model's tensors under their modules' names ("decoder.layers.0.mlp...",
  /// without wrappers), in the order of the state dict. mismatch when halves, layers or experts are
  /// missing or differ in shape; unsupported for names that give no place.
  FsdpModel(const std::vector<ModelTensor>& stored, const RunArguments& run);

  const std::vector<ModelTensor>& tensors() const noexcept { return tensors_; }
  const ModuleChoice& modules() const noexcept { return modules_; }
  bool decays_qk_norms() const noexcept { return decays_qk_norms_; }  // RunArguments
  const FsdpPlace* find(std::string_view stored_name) const;  // null when it is not of the model

  /// A chunk of a stored tensor as one of the model's tensor.
  static Chunk placed(const Chunk& chunk, const FsdpPlace& place);

 private:
  std::vector<ModelTensor> tensors_;
  ModuleChoice modules_;
  bool decays_qk_norms_;
  std::unordered_map<std::string, FsdpPlace> places_;
};

}  // namespace ferry
