// The drawings of a page about training.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/report/training/run_figures.h"

namespace ferry::tool {

inline constexpr std::string_view kValidation = " validation";  // ends names of such losses

/// Names of losses, and of whatever else a log has under names of its own, as they come.
std::vector<std::string> names_of_losses(const std::vector<RunFigures>& runs);

/// A card with a drawing for each figure, losses first; all runs in each.
std::string training_charts(const std::vector<RunFigures>& runs);

}  // namespace ferry::tool
