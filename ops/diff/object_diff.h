// What two checkpoints store besides tensors: where arguments, scheduler and so on differ.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ops/diff.h"

namespace ferry {

/// Compares objects of equal names by what inspect --objects prints of them.
ObjectsDiff diff_objects(const Catalog& a, const Catalog& b);

/// Where two values differ: "path: value / value", short.
std::vector<std::string> changes_between(const nlohmann::json& a, const nlohmann::json& b);

}  // namespace ferry
