#include "ckpt/megatron/torch_dist/common_state.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/pickle/values/plain_value.h"
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

}  // namespace ferry
