// What `ferry diff` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ops/diff.h"

namespace ferry::tool {

/// Lists the first few tensors that differ.
std::string to_text(const DiffReport& report, double seconds);
/// Lists all that differ.
nlohmann::json to_json(const DiffReport& report, double seconds);

}  // namespace ferry::tool
