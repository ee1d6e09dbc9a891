// Layouts of a model over GPUs that fit their memory, best first.
//
// Memory is the trainer's plan of each. Which is fastest is estimated: computation at the measured
// rate, what tensor, pipeline, data and expert ranks send each other at the rates below, and the
// bubble of the pipeline. It orders layouts; it is not a promise.
#pragma once

#include "estimate/make_estimate.h"

namespace ferry {

inline constexpr double kNodeBytesPerSecond = 300e9;    // of a GPU, to those of its node
inline constexpr double kNetworkBytesPerSecond = 40e9;  // of a GPU, to other nodes
/// GPU memory that the trainer cannot use: driver, libraries, rounding of allocations.
inline constexpr double kReservedBytes = 1.5e9, kReservedShare = 0.02;

/// options.gpus and options.gpu_memory_bytes are set. Sizes of the arguments' own layout are not
/// kept, all else is: batches, lengths, precision, recomputation where it is said.
LayoutSearch find_layouts(const EstimateSource& source, const EstimateOptions& options);

}  // namespace ferry
