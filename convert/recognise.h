// Which family a model is of.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/megatron/model/architecture.h"
#include "convert/model/family.h"

namespace ferry {

/// The family named `requested`, or the first that can express the model. invalid for an
/// unknown name; mismatch with all reasons (of the requested or the nearest family) otherwise.
const Family& choose_family(const Architecture& architecture,
                            const std::optional<std::string>& requested, const std::string& path);

/// The family that a config.json is read as.
struct FamilyChoice {
  enum class How : uint8_t {
    its_own,  // model_type is the family's
    same,     // a type known to compute the same
    forced    // of no known type: the user says so
  };
  const Family* family = nullptr;
  How how = How::its_own;
  std::string_view defaults = "{}";  // of the type's class, over the family's
};

/// `requested`, if any, is the user's word. unsupported for a type that no family is known to
/// compute as; what it suggests is right, or for the user to judge.
FamilyChoice choose_family(const nlohmann::json& config,
                           const std::optional<std::string>& requested, const std::string& path);

/// The family of that name; invalid, with the nearest ones, when there is none.
const Family& named_family(const std::string& name);

}  // namespace ferry
