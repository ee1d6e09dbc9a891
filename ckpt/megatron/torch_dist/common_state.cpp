#include "ckpt/megatron/torch_dist/common_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/pickle/values/plain_value.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"

namespace ferry {
namespace {

constexpr double kCheckpointVersion = 3.0;
constexpr std::string_view kVersionMember = "checkpoint_version";

bool is_distributed(ShardedOptimizer optimizer) {
  return optimizer == ShardedOptimizer::fully_reshardable ||
         optimizer == ShardedOptimizer::dp_reshardable;
}

std::string_view sharding_type(ShardedOptimizer optimizer) {
  return optimizer == ShardedOptimizer::fully_reshardable ? "fully_reshardable" : "dp_reshardable";
}

class Builder {
 public:
  Builder(const RunState& state, ShardedOptimizer optimizer, CoreRelease release)
      : state_(state),
        optimizer_(optimizer),
        release_(release),
        matrices_(state.args.run.matrices) {}

  LoadedValue build() && {
    const Value common = draft_.dict();
    draft_.put(common, "args", args());
    draft_.put(common, kVersionMember, draft_.real(kCheckpointVersion));
    draft_.put(common, "iteration", draft_.integer(state_.iteration.value_or(0)));
    if (optimizer_ != ShardedOptimizer::none) draft_.put(common, "optimizer", optimizers());
    for (const auto& [name, member] : state_.common) draft_.put(common, name, member.value);
    if (release_ >= kContentMetadata) draft_.put(common, "content_metadata", content_metadata());
    return std::move(draft_).finish(common);
  }

 private:
  Value args() {
    const Value args = copy_of_args();
    const auto put = [&](std::string_view name, const Value& value) {
      if (args.has(name)) draft_.put(args, name, value);
    };
    draft_.put(args, "ckpt_format", draft_.string("torch_dist"));
    put("use_dist_ckpt", draft_.boolean(true));
    put("dist_ckpt_format", draft_.string("torch_dist"));
    if (optimizer_ != ShardedOptimizer::none) {
      // With a layer-wise one the arguments do not mention the distributed optimizer.
      const bool distributed = is_distributed(optimizer_) && !matrices_.layer_wise;
      draft_.put(args, "use_distributed_optimizer", draft_.boolean(distributed));
      put("dist_ckpt_optim_fully_reshardable",
          draft_.boolean(optimizer_ == ShardedOptimizer::fully_reshardable));
    }
    promise(args, "no_save_optim", optimizer_ != ShardedOptimizer::none);
    promise(args, "no_save_rng", !usable_rng(state_).empty());
    return args;
  }

  // A newer release's arguments hold members of enums that an older one cannot unpickle. Loading
  // uses none of them.
  Value copy_of_args() {
    if (release_ >= kNewestCore) return draft_.copy(state_.args.value);
    return draft_.copy(plain_value(state_.args.value).value);
  }

  // An argument that takes something back.
  void promise(const Value& args, std::string_view negation, bool is_there) {
    if (!is_there) {
      draft_.put(args, negation, draft_.boolean(true));
    } else if (args.get(negation).boolean().value_or(false)) {
      draft_.put(args, negation, draft_.none());
    }
  }

  // One optimizer's state, or those of several by number.
  Value optimizers() {
    if (state_.param_groups.size() == 1) {
      return one_optimizer(state_.param_groups.front().value, form_of(0));
    }
    const Value all = draft_.dict();
    for (size_t i = 0; i < state_.param_groups.size(); ++i) {
      draft_.put(all, draft_.integer(static_cast<int64_t>(i)),
                 one_optimizer(state_.param_groups[i].value, form_of(i)));
    }
    return all;
  }

  // A layer-wise optimizer is none that Megatron-LM calls distributed.
  ShardedOptimizer form_of(size_t number) const {
    const bool plain = matrices_.layer_wise && (number == 0 || !matrices_.split);
    return plain ? ShardedOptimizer::plain : optimizer_;
  }

  Value one_optimizer(const Value& groups, ShardedOptimizer form) {
    const Value state = draft_.dict();
    if (form == ShardedOptimizer::plain && !has_masters()) {
      put_groups(state, groups, form);
      return state;
    }
    // The groups of dp_reshardable are in objects, one a group of ranks.
    if (form != ShardedOptimizer::dp_reshardable) {
      const Value inner = draft_.dict();
      put_groups(inner, groups, form);
      draft_.put(state, "optimizer", inner);
      if (state_.grad_scaler.value) draft_.put(state, "grad_scaler", state_.grad_scaler.value);
    }
    if (is_distributed(form)) {
      draft_.put(state, "param_state_sharding_type", draft_.string(sharding_type(optimizer_)));
    }
    return state;
  }

  // Without a distributed optimizer PyTorch's own Adam keeps its step in the state of parameters.
  void put_groups(const Value& state, const Value& groups, ShardedOptimizer form) {
    const bool torch_adam = groups[0].has("amsgrad") && groups[0].has("step");
    if (form == ShardedOptimizer::plain && torch_adam) {
      const Value inner = draft_.dict();
      draft_.put(inner, "common_step", groups[0].get("step"));
      draft_.put(state, "state", inner);
    }
    draft_.put(state, "param_groups", groups);
  }

  bool has_masters() const {
    return std::any_of(state_.tensors.begin(), state_.tensors.end(), [](const StateTensor& tensor) {
      return tensor.name.starts_with("optimizer.state.param.");
    });
  }

  Value content_metadata() {
    const Value content = draft_.dict();
    if (is_distributed(optimizer_)) {
      draft_.put(content, "distrib_optim_sharding_type", draft_.string(sharding_type(optimizer_)));
    }
    if (optimizer_ == ShardedOptimizer::fully_reshardable) {
      draft_.put(content, "distrib_optim_fully_reshardable_mem_efficient", draft_.boolean(false));
    }
    draft_.put(content, "singleton_local_shards", draft_.boolean(false));
    draft_.put(content, "chained_optim_avoid_prefix", draft_.boolean(true));
    return content;
  }

  const RunState& state_;
  const ShardedOptimizer optimizer_;
  const CoreRelease release_;
  const MatrixOptimizer matrices_;
  Draft draft_;
};

}  // namespace

LoadedValue common_state(const RunState& state, ShardedOptimizer optimizer, CoreRelease release) {
  return Builder(state, optimizer, release).build();
}

namespace {

constexpr std::string_view kExtraState = "._extra_state/shard_", kOutputLayer = "output_layer";

// Axes in front of a module's own: layers, experts. One of 1 where there are none.
using ModuleAxes = std::map<std::string, Dims, std::less<>>;

bool has_extra_state(std::string_view module) {
  const std::string_view name = module.substr(module.rfind('.') + 1);
  return name.starts_with("linear_") || name.ends_with("norm") || name.ends_with("_proj");
}

// Axes of the tensor that stack modules: none, the layers, the experts, or both.
Dims stacked_axes(const StateTensor& tensor) {
  constexpr std::string_view kLayers = "layers.";
  const size_t layers = tensor.name.find(kLayers);
  if (layers == std::string::npos) return {};
  std::string_view suffix = std::string_view(tensor.name).substr(layers + kLayers.size());
  size_t axes = leading_number(suffix, &suffix) ? 0 : 1;
  const auto found = layer_parameter(inside_mtp(suffix).value_or(suffix));
  if (found && found->row->routed && found->expert < 0) ++axes;
  if (axes > tensor.shape.size()) return {};
  return Dims(tensor.shape.begin(), tensor.shape.begin() + static_cast<std::ptrdiff_t>(axes));
}

ModuleAxes modules_of_tensors(const RunState& state) {
  constexpr std::string_view kAttention = ".self_attention.", kOutput = "linear_proj";
  ModuleAxes modules;
  for (const StateTensor& tensor : state.tensors) {
    const size_t dot = tensor.name.rfind('.');
    if (tensor.role != Role::model || dot == std::string::npos) continue;
    const std::string module = tensor.name.substr(0, dot);
    if (!module.starts_with("decoder.") && !module.starts_with("mtp.")) continue;
    const Dims axes = stacked_axes(tensor);
    if (has_extra_state(module)) modules.emplace(module, axes);
    // The attention itself has no parameter to be known by; linear attention is none of its kind.
    const size_t at = module.find(kAttention);
    if (at != std::string::npos && module.substr(at + kAttention.size()) == kOutput) {
      modules.emplace(module.substr(0, at + kAttention.size()) + "core_attention", axes);
    }
  }
  // GPTModel takes its output layer's out of what it saves, HybridModel does not.
  if (state.args.run.hybrid) modules.emplace(kOutputLayer, Dims());
  return modules;
}

std::string shard_name(const Dims& index, const Dims& shape) {
  if (shape.empty()) return "0_1";
  return fmt::format("{}_{}", fmt::join(index, "."), fmt::join(shape, "."));
}

}  // namespace

std::vector<KeptObject> missing_extra_states(const RunState& state) {
  const auto has = [&](std::string_view part) {
    return std::ranges::any_of(state.objects, [&](const KeptObject& object) {
      return object.name.find(part) != std::string::npos;
    });
  };
  ModuleAxes modules = modules_of_tensors(state);
  if (has(kExtraState)) {  // a GPT that became a hybrid model lacks one
    std::erase_if(modules, [](const auto& each) { return each.first != kOutputLayer; });
    if (has(fmt::format("{}{}", kOutputLayer, kExtraState))) modules.clear();
  }
  Draft draft;
  const Value list_of_none = draft.list({draft.none()});
  const std::string nothing = write_torch_archive(std::move(draft).finish(list_of_none).value);
  std::vector<KeptObject> objects;
  for (const auto& [module, shape] : modules) {
    const int64_t count = element_count(shape, module);
    Dims index(shape.size(), 0);
    for (int64_t i = 0; i < count; ++i) {
      objects.push_back({module + std::string(kExtraState) + shard_name(index, shape), nothing});
      for (size_t axis = shape.size(); axis-- > 0 && ++index[axis] == shape[axis];) index[axis] = 0;
    }
  }
  return objects;
}

}  // namespace ferry
