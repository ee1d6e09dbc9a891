// The one table of the keys of a launch configuration.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/launch/configuration.h"

namespace ferry::tool {

using ConfigurationMember =
    std::variant<std::string LaunchConfiguration::*, bool LaunchConfiguration::*,
                 int64_t LaunchConfiguration::*, std::vector<std::string> LaunchConfiguration::*,
                 Pairs LaunchConfiguration::*>;

struct ConfigurationKey {
  std::string_view name;  // "slurm.time"
  ConfigurationMember member;
  std::string_view meaning;
  /// The words that a text may be ("a b"; empty: any), or the least and the most of a number
  /// ("1 4096").
  std::string_view choices = "";
};

std::span<const ConfigurationKey> configuration_keys();

/// Null when there is none.
const ConfigurationKey* find_key(std::string_view name);
/// The key or section that is most like `name`; empty when none is near.
std::string nearest_key(std::string_view name);

}  // namespace ferry::tool
