// The tensors of a run's state by what they are of, ready to be cut into ranks' parts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/core/recipe_cutter.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

class StateParts {
 public:
  struct Part {
    const StateTensor* tensor = nullptr;
    RecipeCutter cutter;
    bool of_model = false;  // the model's own tensor stands in for its fp32 copy
  };

  /// `state` must outlive the parts and stay as it is. mismatch when optimizer state belongs to no
  /// tensor of the model.
  explicit StateParts(const RunState& state);

  /// Tensors of the model, in order; parts are asked for by their number.
  const std::vector<ModelTensor>& tensors() const noexcept { return tensors_; }
  const Part& model(uint32_t tensor) const { return model_.at(tensor); }

  /// Kinds of optimizer state: "param", which there is where there are others, "exp_avg", ...
  const std::vector<std::string>& kinds() const noexcept { return kinds_; }
  /// Whether a tensor has state of that kind: one of several optimizers may keep another one.
  bool has(size_t kind, uint32_t tensor) const { return optimizer_.at(kind).contains(tensor); }
  /// The state of that kind; mismatch when there is none. Where the source keeps no fp32 copy of a
  /// parameter, because the model is in fp32, "param" is the model's tensor.
  const Part& optimizer(size_t kind, uint32_t tensor) const;

  /// Appends a shard of `part` to `flat`. `again`: what is written elsewhere, too (parameters that
  /// several ranks hold); counted, as what stands in for something else.
  void append(const Part& part, const Shard& shard, bool again, FlatRecipe& flat);
  /// What was counted, as a plan lists it.
  std::vector<Dropped> repeated() const;

 private:
  std::map<uint32_t, Part>& by_kind_of(std::string_view kind);
  void add_masters();

  std::vector<ModelTensor> tensors_;
  std::vector<Part> model_;
  std::vector<std::string> kinds_;
  std::vector<std::map<uint32_t, Part>> optimizer_;  // by kind, then tensor
  std::map<uint32_t, int64_t> again_;                // elements by source entry
};

}  // namespace ferry
