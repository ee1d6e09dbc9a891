// The parts of an estimate.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/model/model_tensors.h"
#include "estimate/estimate.h"
#include "estimate/source.h"
#include "trainer/language/memory_plan.h"

namespace ferry {

/// estimate() of arguments that were read already; `options.model` and `arguments` are not used.
Estimate make_estimate(EstimateSource source, const EstimateOptions& options);

/// Completed for so many ranks; 0: as many as the arguments say.
TrainArguments completed_for(const EstimateSource& source, int64_t ranks,
                             std::vector<std::string>& notes);
kernels::DeviceKind device_kind(const TrainArguments& arguments);
/// The GPU whose measured speeds are used.
std::string gpu_of(const EstimateOptions& options);
/// The stage that takes most memory.
const StagePlan& largest(const std::vector<StagePlan>& stages);

std::vector<CheckpointSize> checkpoint_sizes(const TrainArguments& arguments,
                                             const std::vector<ModelTensor>& tensors,
                                             const std::vector<StagePlan>& stages,
                                             int64_t parameters_without_padding,
                                             std::optional<uint64_t> bandwidth_bytes);

/// From the measurement on that GPU with the nearest number of operations per token; `from` is null
/// where none is near. invalid, with the known names, for a GPU without measurements.
SpeedEstimate speed_for(std::string_view gpu, double operations_per_token);

}  // namespace ferry
