#include "ckpt/format/torch/optimizer_key.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr std::string_view kState = "state.", kGroups = "param_groups.";
constexpr std::string_view kMembers[] = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq",
                                         "momentum_buffer"};

// "optim", "optimizer", "optimizers", "optimizer_0", "optim_state_dict".
bool names_optimizer(std::string_view part) { return part.starts_with("optim"); }

}  // namespace

std::optional<OptimizerKey> parse_optimizer_key(std::string_view name) {
  for (size_t begin = 0;;) {
    const size_t dot = name.find('.', begin);
    if (dot == std::string_view::npos) return std::nullopt;
    std::string_view rest = name.substr(dot + 1);
    const bool in_groups = rest.starts_with(kGroups);
    if (names_optimizer(name.substr(begin, dot - begin)) &&
        (in_groups || rest.starts_with(kState))) {
      rest.remove_prefix(in_groups ? kGroups.size() : kState.size());
      const size_t last = rest.rfind('.');
      if (last == std::string_view::npos || last == 0 || last + 1 == rest.size()) {
        return std::nullopt;
      }
      return OptimizerKey{name.substr(0, dot), in_groups, rest.substr(0, last),
                          rest.substr(last + 1)};
    }
    begin = dot + 1;
  }
}

bool is_state_of_parameter(const OptimizerKey& key) {
  return !key.in_groups && std::ranges::find(kMembers, key.member) != std::end(kMembers);
}

}  // namespace ferry
