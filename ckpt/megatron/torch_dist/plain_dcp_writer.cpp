#include "ckpt/megatron/torch_dist/plain_dcp_writer.h"

#include <utility>

#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/format/pickle/values/plain_value.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/megatron/optimizer/optimizer_form.h"
#include "ckpt/megatron/state/edit.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/megatron/torch_dist/placement.h"

namespace ferry {
namespace {

std::vector<PlacedObject> members_of(const LoadedValue& common, bool has_iteration) {
  std::vector<PlacedObject> objects;
  for (size_t i = 0; i < common.value.pair_count(); ++i) {
    const auto key = common.value.pair_key(i).string();
    if (!key || *key == "content_metadata" || *key == "rerun_state_machine") continue;
    if (*key == "iteration" && !has_iteration) continue;  // of a release
    const LoadedValue member = plain_value(common.value.pair_value(i));
    objects.push_back({std::string(*key), write_torch_archive(member.value), 0});
  }
  return objects;
}

// The optimizer's tensors go; the state then is that of the model.
std::vector<PlacedObject> objects_of_run(RunState& state, bool optimizer) {
  if (!optimizer) drop_optimizer(state);
  ShardedOptimizer form = ShardedOptimizer::none;
  if (!state.param_groups.empty()) {
    form = has_distributed_optimizer(state) ? ShardedOptimizer::fully_reshardable
                                            : ShardedOptimizer::plain;
  }
  std::string lost = lost_objects(state, "a plain PyTorch checkpoint", false);
  if (!lost.empty()) state.warnings.push_back(std::move(lost));
  return members_of(common_state(state, form, kNewestCore), state.iteration.has_value());
}

std::vector<PlacedObject> objects_as_they_are(RunState& state) {
  std::vector<PlacedObject> objects;
  for (KeptObject& object : state.objects) {
    objects.push_back({std::move(object.name), std::move(object.archive), 0});
  }
  return objects;
}

}  // namespace

PlannedOutput plan_plain_dcp(RunState state, const PlainDcpOptions& options) {
  const bool is_run = static_cast<bool>(state.args.value);
  std::vector<PlacedObject> objects =
      is_run ? objects_of_run(state, options.optimizer) : objects_as_they_are(state);
  std::vector<PlacedTensor> tensors =
      is_run ? place_state(state) : place_whole(std::move(state.tensors), options.ranks);
  DcpWriteOptions dcp;
  dcp.zstd = options.zstd;
  std::vector<std::string> keys;
  for (const PlacedTensor& placed : tensors) keys.push_back(placed.tensor.name);
  for (const PlacedObject& object : objects) keys.push_back(object.name);
  dcp.planner_data = dcp_paths(keys, state.paths.value);
  PlannedOutput output = lay_out_dcp(state.source, {std::move(tensors), std::move(objects)}, dcp);
  output.plan.dropped = std::move(state.dropped);
  output.warnings = std::move(state.warnings);
  return output;
}

}  // namespace ferry
