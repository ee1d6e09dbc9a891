#include "ckpt/megatron/state/lost_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace ferry {
namespace {

// An extra state that says nothing is a list of None: 1.3 kB as torch.save writes it. FP8 scaling
// factors alone are more than this.
constexpr size_t kMostBytesOfNothing = 2048;

bool is_rerun(const KeptObject& object) {
  return object.name.starts_with("rerun_state_machine_state/");
}

bool is_extra_state(const KeptObject& object) {
  return object.name.find("._extra_state/") != std::string::npos &&
         object.archive.size() > kMostBytesOfNothing;
}

}  // namespace

std::string lost_objects(const RunState& state, std::string_view format, bool holds_rng) {
  const auto count = [&](const auto& is_one) {
    return std::count_if(state.objects.begin(), state.objects.end(), is_one);
  };
  std::vector<std::string> lost;
  if (!holds_rng && !state.rng.empty()) {
    lost.push_back(fmt::format("{} random number states", state.rng.size()));
  }
  if (count(is_rerun) > 0) lost.push_back("the state of rerun checks");
  if (const auto extra = count(is_extra_state)) {
    lost.push_back(fmt::format("{} extra states of modules", extra));
  }
  if (lost.empty()) return {};
  return fmt::format("left out, as {} has no place for it: {}; torch_dist keeps it", format,
                     fmt::join(lost, ", "));
}

}  // namespace ferry
