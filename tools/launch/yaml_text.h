// Values as YAML that every parser reads alike: YAML 1.1's booleans, octal and sexagesimal numbers
// among the texts do no harm, as texts that could be taken for something else are quoted.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ferry::tool {

/// Block style; texts of several lines as literal blocks where those can say them. invalid for a
/// text that is not UTF-8.
std::string yaml_text(const nlohmann::ordered_json& value);

}  // namespace ferry::tool
