#include "ckpt/megatron/optimizer/masters/weights.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {

void use_masters_as_weights(Checkpoint& checkpoint) {
  if (!checkpoint.optimizer_problem.empty()) {
    fail(ErrorKind::unsupported, "{}: {}", checkpoint.path, checkpoint.optimizer_problem);
  }
  if (!checkpoint.shifted_state.empty()) {
    fail(ErrorKind::mismatch, "{}: {}", checkpoint.path, checkpoint.shifted_state);
  }
  auto& entries = checkpoint.catalog.entries;
  std::unordered_map<std::string, size_t> model;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].role == Role::model) model.emplace(entries[i].name, i);
  }
  bool any = false;
  for (Entry& master : entries) {
    const auto name = parse_optimizer_entry_name(master.name);
    if (master.role != Role::optimizer || !name || name->state != "param") continue;
    const auto at = model.find(std::string(name->key));
    if (at == model.end() || entries[at->second].shape != master.shape) continue;
    std::swap(entries[at->second].name, master.name);
    std::swap(entries[at->second].role, master.role);
    any = true;
  }
  if (any) return;
  fail(ErrorKind::invalid, "{}: the optimizer holds no fp32 masters of the model's weights",
       checkpoint.path);
}

}  // namespace ferry
