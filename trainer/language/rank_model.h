// The model of one rank: its place among the ranks, its memory, and its passes. Used by runs and by
// memory plans.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trainer/communicator/links.h"
#include "trainer/language/options.h"
#include "trainer/language/source.h"
#include "trainer/loop/rank_setup.h"
#include "trainer/model/float8/float8_linear.h"
#include "trainer/optimizer/optimizer.h"

namespace ferry {

/// The model of a run: from its arguments and, if it has a source, from the source's tensors, so
/// that names and stacking are kept.
RunModel model_of(const TrainArguments& arguments, const Source* source);

struct RankModel {
  /// Allocates everything; parameters are zero. mismatch if the tensors, read from the checkpoint
  /// `path`, are not those of a model with these arguments. References must outlive it.
  RankModel(const TrainArguments& arguments, const RunModel& model, int rank, RankDevice& device,
            const std::string& path);

  Grid grid;
  ModelState memory;
  std::unique_ptr<Float8State> float8;  // null without FP8
  Pipeline pipeline;
};

}  // namespace ferry
