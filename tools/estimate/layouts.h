// Layouts of a model over GPUs that fit their memory, best first.
//
// Memory is the trainer's plan of each. Which is fastest is estimated: computation at the measured
// rate, what tensor, pipeline, data and expert ranks send each other at the rates below, and the
// bubble of the pipeline. It orders layouts; it is no promise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/estimate/estimate.h"

namespace ferry::tool {

inline constexpr double kNodeBytesPerSecond = 300e9;    // of a GPU, to those of its node
inline constexpr double kNetworkBytesPerSecond = 40e9;  // of a GPU, to other nodes
/// Of a GPU's memory, what is not the trainer's: driver, libraries, what allocations round up.
inline constexpr double kReservedBytes = 1.5e9, kReservedShare = 0.02;

struct LayoutChoice {
  int64_t tensor = 1, pipeline = 1, context = 1, expert = 1, data = 1;
  std::string recompute;  // "none", "full"
  int64_t micro_batches = 0;
  int64_t bytes = 0;             // of the stage that takes most
  double bubble = 0;             // part of the time in which a stage waits for others
  double tokens_per_second = 0;  // of a GPU; an order alone where no speed of the model is known
  std::string reason;
};

struct LayoutSearch {
  std::vector<LayoutChoice> fitting;  // best first
  int64_t tried = 0;
  int64_t least_bytes = 0;  // of those that are too large, the smallest's; 0: not known
  std::vector<std::string> notes;
};

/// options.gpus and options.gpu_memory_bytes are set. Sizes of the arguments' own layout are not
/// kept, all else is: batches, lengths, precision, recomputation where it is said.
LayoutSearch find_layouts(const EstimateSource& source, const EstimateOptions& options);

}  // namespace ferry::tool
