#include "ckpt/megatron/optimizer/masters/weights.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {

std::vector<StoredMaster> stored_masters(const Catalog& catalog) {
  std::unordered_map<std::string_view, uint32_t> model;
  for (uint32_t i = 0; i < catalog.entries.size(); ++i) {
    if (catalog.entries[i].role == Role::model) model.emplace(catalog.entries[i].name, i);
  }
  std::vector<StoredMaster> masters;
  for (uint32_t i = 0; i < catalog.entries.size(); ++i) {
    const auto name = parse_optimizer_entry_name(catalog.entries[i].name);
    if (catalog.entries[i].role != Role::optimizer || !name || name->state != "param") continue;
    StoredMaster master{i, std::nullopt};
    if (const auto at = model.find(name->key); at != model.end()) master.weight = at->second;
    masters.push_back(master);
  }
  return masters;
}

void use_masters_as_weights(Checkpoint& checkpoint) {
  if (!checkpoint.optimizer_problem.empty()) {
    fail(ErrorKind::unsupported, "{}: {}", checkpoint.path, checkpoint.optimizer_problem);
  }
  if (!checkpoint.shifted_state.empty()) {
    fail(ErrorKind::mismatch, "{}: {}", checkpoint.path, checkpoint.shifted_state);
  }
  auto& entries = checkpoint.catalog.edit().entries;
  bool any = false;
  for (const StoredMaster& stored : stored_masters(checkpoint.catalog)) {
    Entry& master = entries[stored.master];
    if (!stored.weight || entries[*stored.weight].shape != master.shape) continue;
    std::swap(entries[*stored.weight].name, master.name);
    std::swap(entries[*stored.weight].role, master.role);
    any = true;
  }
  if (any) return;
  fail(ErrorKind::invalid, "{}: the optimizer holds no fp32 master weights of the model",
       checkpoint.path);
}

}  // namespace ferry
