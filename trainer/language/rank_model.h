// The model of one rank: its place among the ranks, its memory, and the passes over it. The same
// for a run and for the plan of one.
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

/// The model of a run: from its arguments and, where it has a source, that one's tensors, so that
/// names and stacking stay as they are.
RunModel model_of(const TrainArguments& arguments, const Source* source);

struct RankModel {
  /// Allocates all of it; parameters are zero. mismatch where the tensors are those of the
  /// checkpoint `path`, and not what a model of these arguments has. References must outlive it.
  RankModel(const TrainArguments& arguments, const RunModel& model, int rank, RankDevice& device,
            const std::string& path);

  Grid grid;
  ModelState memory;
  std::unique_ptr<Float8State> float8;  // null: no products are in FP8
  Pipeline pipeline;
};

}  // namespace ferry
