// What `ferry verify` says.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ckpt/integrity/verify.h"

namespace ferry::tool {

/// One line for each problem, then what was checked, at which rate, and what could not be.
std::string to_text(const VerifyReport& report, double seconds);

nlohmann::json to_json(const VerifyReport& report, double seconds);

}  // namespace ferry::tool
