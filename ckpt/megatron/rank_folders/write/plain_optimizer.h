// PyTorch's state of one optimizer of a rank, as rank folders keep it: parameter groups, and by
// number of the parameter its tensors, with fp32 copies of 16-bit parameters.
//
// Source: megatron/core/optimizer/optimizer.py (Float16OptimizerWithFloat16Params.state_dict),
// torch/optim/optimizer.py.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/format/torch/torch_file_plan.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/rank_folders/parameter_kind.h"
#include "ckpt/megatron/rank_folders/write/target.h"

namespace ferry {

void put_grad_scaler(Draft& draft, const Value& optimizer, const LegacyTarget& target);

class PlainOptimizerValue {
 public:
  struct Which {
    RankOptimizer optimizer;
    /// Where matrices have an optimizer of their own: whether this is it. Nothing: one has all.
    std::optional<bool> matrices;
  };

  /// `groups`: its parameter groups. unsupported when a parameter belongs to none. All must outlive
  /// the value.
  PlainOptimizerValue(LegacyTarget& target, const LegacyRankTarget& rank, const Value& groups,
                      Which which);

  /// By rising size within the groups, in which order a layer-wise optimizer spreads them.
  void sort_by_size();
  /// What a layer-wise optimizer spreads, group by group.
  void append_to(std::vector<SpreadParameter>& parameters) const;

  /// The value, of the parameters that the rank has. `owned`: asked once for each, in that order,
  /// by number; nothing: all. `again`: whether the same is written elsewhere, too; nothing: where
  /// another folder is the first to hold the parameter.
  using Owned = std::function<bool(size_t number, const LocalParameter& parameter)>;
  Value make(TorchFilePlan& file, const Owned& owned = nullptr,
             const std::function<bool(const LocalParameter& parameter)>& again = nullptr);

 private:
  Value wrap(Draft& draft, const Value& inner, const Value& masters) const;
  bool holds(const LocalParameter& parameter, const std::string& name) const;
  ParameterKind kind_of(const Value& group) const;
  void sort_into_groups();

  LegacyTarget& target_;
  const LegacyRankTarget& rank_;
  const Value groups_;
  const Which which_;
  std::vector<ParameterKind> kinds_;                         // by group
  std::vector<std::vector<const LocalParameter*>> members_;  // likewise
};

/// Those of a rank where matrices have an optimizer of their own, in the order of the chain.
std::vector<PlainOptimizerValue> optimizers_of_rank(LegacyTarget& target,
                                                    const LegacyRankTarget& rank);

}  // namespace ferry
