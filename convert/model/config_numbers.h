// What the numbers of a config.json may be, before anything is computed with them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "convert/model/family.h"

namespace ferry {

/// Members that `family` reads a number from and that hold none it can be, one sentence each with
/// what is found and expected. `config` holds the class's defaults where the file is silent.
std::vector<std::string> wrong_numbers(const Family& family, const nlohmann::json& config);

/// Sizes that the model must have and that `config`, without wrong numbers, does not say.
std::vector<std::string> missing_sizes(const Family& family, const Architecture& architecture,
                                       const nlohmann::json& config);

/// A value in a message: as JSON, or as Python prints NaN and infinities; its beginning when long.
std::string shown(const nlohmann::json& value);

}  // namespace ferry
