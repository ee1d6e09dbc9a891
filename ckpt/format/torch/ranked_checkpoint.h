// What the files of a program's ranks hold together: DeepSpeed's, PyTorch FSDP's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/format/torch/optimizer_facts.h"

namespace ferry {

struct RankedCheckpoint {
  /// The model's tensors; the optimizer's are "optimizer.state.<exp_avg, ...>.<parameter>".
  Catalog catalog;
  std::string writer;  // "DeepSpeed 0.19.8, ZeRO stage 2"
  int64_t world_size = 0;
  std::optional<int64_t> steps;
  OptimizerFacts optimizer;       // of the first rank
  std::string optimizer_problem;  // why the optimizer's state is left out; empty: it is not
  std::vector<std::string> notes;
};

}  // namespace ferry
