// What `ferry convert` says at its end.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ops/convert.h"

namespace ferry::tool {

std::string to_text(const ConvertReport& report);
nlohmann::json to_json(const ConvertReport& report);

}  // namespace ferry::tool
