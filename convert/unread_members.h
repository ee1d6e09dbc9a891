// What a config.json says that a family knows nothing of.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "convert/model/family.h"

namespace ferry {

struct UnreadMember {
  std::string name;   // that of rope_parameters as "rope_parameters.mrope_section"
  std::string value;  // as config.json has it
};

/// Members that the family does not read and that may change what the model computes: not those of
/// names known to have no such effect (tokens, training, sampling), nor those whose value leaves
/// `architecture` as it is (a multiplier of 1, full attention in all layers).
std::vector<UnreadMember> unread_members(const Family& family, const Architecture& architecture,
                                         const nlohmann::json& config);

/// Takes those members out of `config` (nested ones as above), for each a sentence to warn with.
/// invalid for a member that is not there.
std::vector<std::string> remove_members(const std::vector<std::string>& names,
                                        const std::string& path, nlohmann::json& config);

}  // namespace ferry
