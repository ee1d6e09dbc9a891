#include "ckpt/megatron/fsdp/write/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/core/placed.h"
#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/megatron/fsdp/write/tensors.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/megatron/torch_dist/placement.h"

namespace ferry {
namespace {

// What is next to the tensors in fsdp_dtensor: every leaf of the state dict as an object.

/// Objects, and for each key that is none of a flat state dict its path (planner_data).
class FsdpObjects {
 public:
  /// Args, iteration, scheduler and the like, random number states and, with `optimizer`, the
  /// parameter group of each parameter. mismatch when a parameter has no group.
  FsdpObjects(const RunState& state, const FsdpTensors& tensors, bool optimizer);

  std::vector<PlacedObject> take() { return std::move(objects_); }
  /// A dict of tuples by key, of these objects and of the tensors.
  LoadedValue paths(const FsdpTensors& tensors) &&;

 private:
  void add_args(const RunState& state, bool optimizer);
  void add_groups(const RunState& state, const FsdpTensors& tensors);
  void add_rng(const RunState& state);
  void add(std::vector<Value> path, std::string key, const Value& value, int depth = 0);

  std::vector<PlacedObject> objects_;
  Draft draft_;
  Value paths_;
};

constexpr int kDeepestLeaf = 16;
constexpr std::string_view kGroupPrefix = "module.module.module.";

std::string archive_of(const Value& value) {
  Draft draft;
  const Value copy = draft.copy(value);
  return write_torch_archive(std::move(draft).finish(copy).value);
}

bool group_decays(const Value& group) {
  const Value factor = group.has("wd_mult") ? group.get("wd_mult") : group.get("pre_wd_mult");
  return factor.real().value_or(1) != 0;
}

// The group that Megatron-LM would put the parameter in, by what makes groups differ.
Value group_of(const FsdpParameter& parameter, const std::vector<LoadedValue>& optimizers) {
  Value found;
  int best = -1;
  for (const LoadedValue& groups : optimizers) {
    for (size_t i = 0; i < groups.value.size(); ++i) {
      const Value group = groups.value[i];
      if (group_decays(group) != parameter.decayed) continue;
      const bool routed = group.get("is_expert_parallel").boolean().value_or(false);
      const bool decoupled = group.get("is_decoupled_lr").boolean().value_or(false);
      if (decoupled && !parameter.embedding) continue;
      const int fit = 2 * (routed == parameter.routed_expert) + (decoupled == parameter.embedding);
      if (fit <= best) continue;
      best = fit;
      found = group;
    }
  }
  if (!found.document()) {
    fail(ErrorKind::mismatch, "the optimizer has no parameter group {} weight decay, for {}",
         parameter.decayed ? "with" : "without", parameter.name);
  }
  return found;
}

FsdpObjects::FsdpObjects(const RunState& state, const FsdpTensors& tensors, bool optimizer) {
  paths_ = draft_.dict();
  add_args(state, optimizer);
  const auto leaf = [&](const char* name, const Value& value) {
    add({draft_.string(name)}, name, value);
  };
  leaf("iteration", draft_.integer(state.iteration.value_or(0)));
  bool has_version = false;
  for (const auto& [name, member] : state.common) {
    if (name == "rerun_state_machine") continue;
    has_version |= name == "checkpoint_version";
    leaf(name.c_str(), member.value);
  }
  if (!has_version) leaf("checkpoint_version", draft_.real(3.0));
  if (optimizer) add_groups(state, tensors);
  add_rng(state);
}

void FsdpObjects::add_args(const RunState& state, bool optimizer) {
  Draft draft;
  const Value args = draft.copy(state.args.value);
  const auto put = [&](std::string_view name, const Value& value) {
    if (args.has(name)) draft.put(args, name, value);
  };
  draft.put(args, "ckpt_format", draft.string("fsdp_dtensor"));
  draft.put(args, "use_megatron_fsdp", draft.boolean(true));
  draft.put(args, "use_distributed_optimizer", draft.boolean(true));
  if (args.get("data_parallel_sharding_strategy").string().value_or("no_shard") == "no_shard") {
    draft.put(args, "data_parallel_sharding_strategy", draft.string("optim_grads_params"));
  }
  put("use_custom_fsdp", draft.boolean(true));
  put("use_torch_fsdp2", draft.boolean(false));
  put("no_save_optim", optimizer ? draft.none() : draft.boolean(true));
  put("no_save_rng", usable_rng(state).empty() ? draft.boolean(true) : draft.none());
  const LoadedValue finished = std::move(draft).finish(args);
  add({draft_.string("args")}, "args", finished.value);
}

void FsdpObjects::add_groups(const RunState& state, const FsdpTensors& tensors) {
  for (const FsdpParameter& parameter : tensors.parameters) {
    if (!parameter.trainable) continue;
    const std::string name = std::string(kGroupPrefix) + parameter.name;
    add({draft_.string("optimizer"), draft_.string("param_to_group_meta"), draft_.string(name)},
        "optimizer.param_to_group_meta." + name, group_of(parameter, state.param_groups));
  }
}

void FsdpObjects::add_rng(const RunState& state) {
  for (const RngState* rng : usable_rng(state)) {
    const std::string grid = fmt::format("({}, {})", rng->stage, rng->tensor);
    add({draft_.string("rng_state"), draft_.string(grid)}, "rng_state." + grid, rng->value.value);
  }
}

// Dicts and lists are taken apart, as PyTorch does it; empty ones are leaves.
void FsdpObjects::add(std::vector<Value> path, std::string key, const Value& value, int depth) {
  const bool is_dict = value.kind() == ValueKind::dict && value.pair_count() > 0;
  const bool is_list = value.kind() == ValueKind::list && value.size() > 0;
  if (depth == kDeepestLeaf || (!is_dict && !is_list)) {
    draft_.add(paths_, key, draft_.tuple(path));
    objects_.push_back({std::move(key), archive_of(value), 0});
    return;
  }
  path.emplace_back();
  for (size_t i = 0; is_list && i < value.size(); ++i) {
    path.back() = draft_.integer(static_cast<int64_t>(i));
    add(path, fmt::format("{}.{}", key, i), value[i], depth + 1);
  }
  for (size_t i = 0; is_dict && i < value.pair_count(); ++i) {
    const Value name = value.pair_key(i);
    const std::string text =
        name.string() ? std::string(*name.string()) : fmt::format("{}", name.integer().value_or(0));
    path.back() = draft_.string(text);
    add(path, fmt::format("{}.{}", key, text), value.pair_value(i), depth + 1);
  }
}

LoadedValue FsdpObjects::paths(const FsdpTensors& tensors) && {
  for (const StateTensor& tensor : tensors.model) {
    draft_.add(
        paths_, tensor.name,
        draft_.tuple({draft_.string("model"),
                      draft_.string(tensor.name.substr(std::string_view("model.").size()))}));
  }
  for (const StateTensor& tensor : tensors.optimizer) {
    constexpr std::string_view kState = "optimizer.state.";
    const std::string_view rest = std::string_view(tensor.name).substr(kState.size());
    const size_t dot = rest.rfind('.');
    draft_.add(
        paths_, tensor.name,
        draft_.tuple({draft_.string("optimizer"), draft_.string("state"),
                      draft_.string(rest.substr(0, dot)), draft_.string(rest.substr(dot + 1))}));
  }
  return std::move(draft_).finish(paths_);
}

bool has_moments(const FsdpTensors& tensors) { return !tensors.optimizer.empty(); }

}  // namespace

PlannedOutput plan_fsdp_dtensor(RunState state, const FsdpOptions& options) {
  const RunArguments& run = state.args.run;
  if (run.pipeline > 1) {
    fail(ErrorKind::invalid,
         "fsdp_dtensor numbers the layers of each pipeline stage alike: it holds runs of one stage "
         "({}), not of {}",
         option("pipeline", "1"), run.pipeline);
  }
  FsdpTensors tensors = fsdp_tensors(state, options.optimizer && !state.param_groups.empty());
  if (options.optimizer && state.param_groups.empty() &&
      std::ranges::any_of(state.tensors, [](const StateTensor& tensor) {
        return tensor.role == Role::optimizer;
      })) {
    fail(ErrorKind::unsupported,
         "the optimizer's state has no parameter groups (learning rate, step, ...), without which "
         "Megatron-LM does not load it; leave it out with {}",
         option("optimizer", "none"));
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
