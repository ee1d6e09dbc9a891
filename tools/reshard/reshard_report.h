// What `ferry reshard` says at its end.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ops/reshard.h"

namespace ferry::tool {

std::string to_text(const ReshardReport& report);
nlohmann::json to_json(const ReshardReport& report);

}  // namespace ferry::tool
