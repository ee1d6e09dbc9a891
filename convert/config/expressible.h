// What a family can express: what its config.json gives back when it is written and read again.
#pragma once

#include <string>
#include <vector>

#include "convert/model/family.h"

namespace ferry {

/// Why a model is not of a family, one sentence each; empty when it is. What only matters for
/// further training, and sizes that Megatron alone has, are not compared.
std::vector<std::string> unsupported_reasons(const Family& family,
                                             const Architecture& architecture);

/// What two models differ in, by the same features, as "FEATURE is A and not B"; empty: nothing.
std::vector<std::string> different_features(const Architecture& a, const Architecture& b);

}  // namespace ferry
