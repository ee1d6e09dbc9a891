// What `ferry prune` says at its end.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ckpt/store/prune.h"

namespace ferry::tool {

std::string to_text(const std::string& run, const PruneReport& report);
nlohmann::json to_json(const std::string& run, const PruneReport& report);

}  // namespace ferry::tool
