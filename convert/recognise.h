// Which family a model is of.
#pragma once

#include <optional>
#include <string>

#include "convert/model/architecture.h"
#include "convert/model/family.h"

namespace ferry {

/// The family named `wanted`, or the first that has no objections to the model. invalid for an
/// unknown name; mismatch with all objections (of the wanted or the nearest family) otherwise.
const Family& choose_family(const Architecture& architecture,
                            const std::optional<std::string>& wanted, const std::string& path);

}  // namespace ferry
