#include "ckpt/megatron/optimizer_state.h"

namespace ferry {

OptimizerState describe_optimizer(Catalog& catalog, const Value&, const Value&) {
  OptimizerState state;
  for (Entry& entry : catalog.entries) {
    if (!entry.name.starts_with("optimizer.state.")) continue;
    entry.role = Role::optimizer;
    state.layout = OptimizerLayout::fully_reshardable;
  }
  return state;
}

}  // namespace ferry
