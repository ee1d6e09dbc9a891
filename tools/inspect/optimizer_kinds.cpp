#include "tools/inspect/optimizer_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "ckpt/format/torch/optimizer_facts.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry::tool {

std::vector<OptimizerKind> optimizer_kinds(const Catalog& catalog) {
  std::map<std::string_view, std::vector<std::string>> of_tensors;
  for (const Entry& entry : catalog.entries) {
    if (entry.role != Role::optimizer) continue;
    if (const auto key = parse_optimizer_key(entry.name); key && is_state_of_parameter(*key)) {
      if (key->member != "step") of_tensors[key->parameter].emplace_back(key->member);
    } else if (const auto name = parse_optimizer_entry_name(entry.name)) {
      of_tensors[name->key].emplace_back(name->state);
    }
  }
  std::map<std::vector<std::string>, int64_t> kinds;
  for (auto& [key, states] : of_tensors) {
    std::ranges::stable_sort(states, {},
                             [](const std::string& state) { return usual_rank(state); });
    ++kinds[states];
  }
  std::vector<OptimizerKind> all;
  for (const auto& [states, tensors] : kinds) all.push_back({states, tensors});
  std::ranges::stable_sort(all, {}, [](const OptimizerKind& kind) { return kind.states.size(); });
  return all;
}

std::string optimizer_name(const Checkpoint& checkpoint) {
  const MatrixOptimizer matrices = matrix_optimizer(checkpoint.args.value);
  if (!matrices.any) return "";
  return matrices.name + (matrices.layer_wise ? ", layer-wise" : "");
}

std::string to_text(const std::vector<OptimizerKind>& kinds) {
  if (kinds.size() < 2) return "";
  std::string text;
  for (const OptimizerKind& kind : kinds) {
    std::string states;
    for (const std::string& state : kind.states) {
      if (state != "param") states += (states.empty() ? "" : " and ") + state;
    }
    text += fmt::format("{}{} of {} tensors", text.empty() ? "" : "; ",
                        states.empty() ? "masters alone" : states, kind.tensors);
  }
  return text;
}

}  // namespace ferry::tool
