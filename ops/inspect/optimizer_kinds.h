// Which states an optimizer keeps of which parameters, where they are not the same of all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"

namespace ferry {

struct OptimizerKind {
  std::vector<std::string> states;  // "param", "momentum_buffer", ...
  int64_t tensors = 0;              // of the model, that have these
};

/// By rising number of states.
std::vector<OptimizerKind> optimizer_kinds(const Catalog& catalog);

/// "muon, layer-wise" of a run's arguments; empty for what ferry's own trainer has, too.
std::string optimizer_name(const Checkpoint& checkpoint);

/// "momentum_buffer of 4 tensors; exp_avg and exp_avg_sq of 6", masters not named; empty where all
/// have the same.
std::string to_text(const std::vector<OptimizerKind>& kinds);

}  // namespace ferry
