#include "ckpt/memory/load.h"

#include "ckpt/engine/run.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/memory/load_plan.h"
#include "ckpt/memory/run_state_memory.h"

namespace ferry {

void load(const TensorSet& tensors, std::span<const Region> regions, const EngineOptions& options) {
  const TensorSet::State& state = tensors.state();
  LoadPlan plan(state);
  for (const Region& region : regions) plan.add(region);
  const Plan& checked = plan.finish();  // which may add files
  run(checked, plan.files(), options);
  check_reader_locks(state.source()->reader_locks);
}

TensorSet tensors_of(const Checkpoint& checkpoint, const RunState& state) {
  return made_tensors(checkpoint.catalog, state.tensors);
}

}  // namespace ferry
