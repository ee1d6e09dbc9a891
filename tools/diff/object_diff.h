// What two checkpoints store besides tensors: where arguments, scheduler and so on differ.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/catalog.h"

namespace ferry::tool {

struct ObjectsDiff {
  struct Changed {
    std::string name;
    std::vector<std::string> changes;  // "args.lr: 0.1 / 0.2"; the first few
    int64_t more = 0;                  // changes that are not listed
  };

  int64_t equal = 0;
  std::vector<Changed> changed;
  std::vector<std::string> only_in_a, only_in_b;
  std::vector<std::string> problems;  // what could not be read, and why
};

/// Compares objects of equal names by what inspect --objects prints of them.
ObjectsDiff diff_objects(const Catalog& a, const Catalog& b);

/// Where two values differ: "path: value / value", short.
std::vector<std::string> changes_between(const nlohmann::json& a, const nlohmann::json& b);

}  // namespace ferry::tool
