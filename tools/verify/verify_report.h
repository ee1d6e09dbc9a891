// What `ferry verify` says.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ops/verify.h"

namespace ferry::tool {

/// One line for each problem, up to 20, then what was checked, at which rate, and what could not
/// be.
std::string to_text(const VerifyReport& report);
std::string to_text(const RunVerification& run);

nlohmann::json to_json(const VerifyReport& report);
nlohmann::json to_json(const RunVerification& run);

}  // namespace ferry::tool
