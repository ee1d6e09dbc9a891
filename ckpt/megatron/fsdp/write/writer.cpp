#include "ckpt/megatron/fsdp/write/writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/megatron/fsdp/write/objects.h"
#include "ckpt/megatron/fsdp/write/tensors.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/megatron/torch_dist/placement.h"

namespace ferry {
namespace {

bool has_moments(const FsdpTensors& tensors) { return !tensors.optimizer.empty(); }

}  // namespace

PlannedOutput plan_fsdp_dtensor(RunState state, const FsdpOptions& options) {
  const RunArguments& run = state.args.run;
  if (run.pipeline > 1) {
    fail(ErrorKind::invalid,
         "fsdp_dtensor numbers the layers of each pipeline stage alike: it holds runs of one stage "
         "(--pp 1), not of {}",
         run.pipeline);
  }
  FsdpTensors tensors = fsdp_tensors(state, options.optimizer && !state.param_groups.empty());
  if (options.optimizer && state.param_groups.empty() &&
      std::ranges::any_of(state.tensors, [](const StateTensor& tensor) {
        return tensor.role == Role::optimizer;
      })) {
    fail(ErrorKind::unsupported,
         "the optimizer's state has no parameter groups (learning rate, step, ...), without which "
         "Megatron-LM does not load it; leave it out with --optimizer none");
  }
  std::string lost = lost_objects(state, "fsdp_dtensor", true);
  if (!lost.empty()) state.warnings.push_back(std::move(lost));
  if (state.grad_scaler.value) {
    state.warnings.push_back(
        "left out, as fsdp_dtensor has no place for it: the scale of the loss (fp16)");
  }
  FsdpObjects objects(state, tensors, has_moments(tensors));
  std::vector<PlacedObject> placed_objects = objects.take();
  DcpWriteOptions dcp;
  dcp.zstd = options.zstd;
  dcp.planner_data = std::move(objects).paths(tensors);
  std::vector<StateTensor> all = std::move(tensors.model);
  std::ranges::move(tensors.optimizer, std::back_inserter(all));
  PlannedOutput output = lay_out_dcp(
      state.source, {place_whole(std::move(all), run.world_size), std::move(placed_objects)}, dcp);
  output.plan.dropped = std::move(state.dropped);
  std::ranges::move(tensors.dropped, std::back_inserter(output.plan.dropped));
  output.warnings = std::move(state.warnings);
  return output;
}

}  // namespace ferry
