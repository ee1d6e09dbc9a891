// Which family a model is of.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "convert/model/architecture.h"
#include "convert/model/family.h"

namespace ferry {

/// The family named `wanted`, or the first that has no objections to the model. invalid for an
/// unknown name; mismatch with all objections (of the wanted or the nearest family) otherwise.
const Family& choose_family(const Architecture& architecture,
                            const std::optional<std::string>& wanted, const std::string& path);

/// The family of that name; invalid, with the nearest ones, when there is none.
const Family& named_family(const std::string& name);

/// Of a config.json of an unknown family, for messages: " (GemmaForCausalLM, 18 layers, hidden
/// 2048)"; empty where it says nothing.
std::string what_config_says(const nlohmann::json& config);

}  // namespace ferry
