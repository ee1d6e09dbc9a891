// What `ferry report --training` writes: a page, or JSON, about the training of one or more runs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/report/training/run_figures.h"

namespace ferry::tool {

/// The whole page, runs side by side. Its size does not depend on how long the runs are.
std::string training_page(const std::vector<RunFigures>& runs);

nlohmann::json training_json(const std::vector<RunFigures>& runs);

}  // namespace ferry::tool
