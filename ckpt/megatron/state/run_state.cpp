#include "ckpt/megatron/state/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ferry {
namespace {

constexpr std::array<std::string_view, 3> kUsualOrder = {"param", "exp_avg", "exp_avg_sq"};

constexpr std::string_view kPrefix = "optimizer.state.";

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

size_t usual_rank(std::string_view state) {
  return std::find(kUsualOrder.begin(), kUsualOrder.end(), state) - kUsualOrder.begin();
}

std::string optimizer_entry_name(std::string_view state, std::string_view key) {
  if (state == "fp32_param") state = "param";
  return std::string(kPrefix) + std::string(state) + "." + std::string(key);
}

std::optional<OptimizerEntryName> parse_optimizer_entry_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const size_t dot = name.find('.');
  if (dot == 0 || dot == std::string_view::npos || dot + 1 == name.size()) return std::nullopt;
  return OptimizerEntryName{name.substr(0, dot), name.substr(dot + 1)};
}

std::vector<const RngState*> usable_rng(const RunState& state) {
  if (state.rng.empty()) return {};
  const RunArguments& run = state.args.run;
  const int64_t data = run.world_size / run.tensor / run.pipeline / run.context;
  const auto count = static_cast<size_t>(run.random_by_data_rank && data > 1 ? data : 1);
  std::vector<const RngState*> usable(run.pipeline * run.tensor);
  for (const RngState& rng : state.rng) {
    if (rng.stages != run.pipeline || rng.tensor_ranks != run.tensor) continue;
    const bool inside =
        rng.stage >= 0 && rng.stage < run.pipeline && rng.tensor >= 0 && rng.tensor < run.tensor;
    if (inside && rng.value.value.size() == count) {
      usable[rng.stage * run.tensor + rng.tensor] = &rng;
    }
  }
  const bool complete = std::find(usable.begin(), usable.end(), nullptr) == usable.end();
  return complete ? usable : std::vector<const RngState*>();
}

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
