#include "ckpt/megatron/fsdp/fsdp_state.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/fsdp/fsdp.h"
#include "ckpt/megatron/fsdp/fsdp_names.h"
#include "ckpt/megatron/fsdp/state_dict.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/state/edit.h"

namespace ferry {
namespace {

constexpr uint64_t kMostBytesOfNoState = 2048;  // of an extra state that says nothing

bool is_set(const Value& args, std::string_view name) {
  return args.get(name).boolean().value_or(false);
}

// The run is one of plain data parallelism from here on.
LoadedValue args_without_fsdp(const LoadedValue& args) {
  Draft draft;
  const Value copy = draft.copy(args.value);
  for (const char* name : {"use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2"}) {
    if (is_set(copy, name)) draft.put(copy, name, draft.boolean(false));
  }
  return std::move(draft).finish(copy);
}

// What distinguishes groups when Megatron-LM loads them.
std::string group_identity(const Value& group) {
  std::string text;
  for (const char* name : {"wd_mult", "lr_mult", "is_expert_parallel", "is_decoupled_lr", "max_lr",
                           "min_lr", "start_wd", "end_wd", "optimizer"}) {
    text += to_json(group.get(name)).dump() + ",";
  }
  return text;
}

// Groups of parameters that are alike, in the order of the first of each.
class FsdpGroupCollector {
 public:
  explicit FsdpGroupCollector(RunState& state) : state_(state) {}

  void add(std::string_view parameter, const Value& group) {
    const bool routed = group.get("is_expert_parallel").boolean().value_or(false);
    auto& groups = groups_[routed ? 1 : 0];
    const std::string id = group_identity(group);
    for (const auto& [known, first] : groups) {
      if (known != id) continue;
      if (odd_.empty() && to_json(first) != to_json(group)) odd_ = parameter;
      return;
    }
    groups.emplace_back(id, group);
  }

  void finish() {
    for (const auto& groups : groups_) {
      if (groups.empty()) continue;
      Draft draft;
      const Value list = draft.list();
      for (const auto& [id, group] : groups) draft.append(list, draft.copy(group));
      state_.param_groups.push_back(std::move(draft).finish(list));
    }
    if (odd_.empty()) return;
    state_.warnings.push_back(
        fmt::format("parameter {} has another learning rate, step or the like in its parameter "
                    "group than others of its kind: the group's first parameter's are kept",
                    odd_));
  }

 private:
  RunState& state_;
  std::array<std::vector<std::pair<std::string, Value>>, 2> groups_;  // dense, routed experts
  std::string odd_;
};

// The groups of the optimizers in `value`: one, or a dict or list of several.
std::vector<Value> fsdp_optimizers_in(const Value& value, std::string_view member) {
  if (value.has(member)) return {value};
  std::vector<Value> all;
  for (size_t i = 0; i < value.pair_count(); ++i) all.push_back(value.pair_value(i));
  if (value.kind() == ValueKind::list) {
    for (size_t i = 0; i < value.size(); ++i) all.push_back(value[i]);
  }
  return all;
}

class FsdpStateFiller {
 public:
  FsdpStateFiller(const Checkpoint& checkpoint, RunState& state)
      : checkpoint_(checkpoint), state_(state), run_(state.args.run) {}

  void fill() {
    add_members();
    add_rng();
    if (has_optimizer(state_)) {
      if (checkpoint_.format == Format::fsdp_dtensor) {
        add_groups_of_parameters();
      } else {
        add_groups();
      }
    }
    if (checkpoint_.format == Format::fsdp_dtensor) split_masters();
    tell_of_extra_states();
    state_.args = args_without_fsdp(state_.args);
  }

 private:
  void add_members() {
    for (const char* name :
         {"checkpoint_version", "opt_param_scheduler", "num_floating_point_operations_so_far"}) {
      LoadedValue member = read_member(checkpoint_, name);
      if (member.document) state_.common.emplace_back(name, std::move(member));
    }
  }

  // fsdp_dtensor: a dict by "(stage, tensor rank)"; torch_dcp: the first rank's alone.
  void add_rng() {
    const LoadedValue rng = read_member(checkpoint_, "rng_state");
    if (rng.value.kind() == ValueKind::list) {
      if (run_.pipeline == 1 && run_.tensor == 1) {
        state_.rng.push_back({0, 0, 1, 1, rng});
      } else {
        state_.warnings.push_back(
            "the random number state is left out: it is the first rank's alone");
      }
    }
    for (size_t i = 0; i < rng.value.pair_count(); ++i) {
      const std::string key(rng.value.pair_key(i).string().value_or(""));
      int64_t stage = -1, tensor = -1;
      const char* end = key.data() + key.size();
      const auto comma = key.find(", ");
      if (key.starts_with("(") && comma != std::string::npos) {
        std::from_chars(key.data() + 1, end, stage);
        std::from_chars(key.data() + comma + 2, end, tensor);
      }
      if (stage < 0 || tensor < 0) continue;
      state_.rng.push_back(
          {stage, tensor, run_.pipeline, run_.tensor, {rng.document, rng.value.pair_value(i)}});
    }
  }

  void add_groups_of_parameters() {
    const auto is_used = [](const StatePath& path) {
      return std::ranges::any_of(
          path.parts, [](const auto& part) { return part.key == "param_to_group_meta"; });
    };
    const LoadedValue optimizer = read_member(checkpoint_, "optimizer", is_used);
    FsdpGroupCollector collector(state_);
    for (const Value& one : fsdp_optimizers_in(optimizer.value, "param_to_group_meta")) {
      const Value groups = one.get("param_to_group_meta");
      for (size_t i = 0; i < groups.pair_count(); ++i) {
        collector.add(groups.pair_key(i).string().value_or("?"), groups.pair_value(i));
      }
    }
    collector.finish();
  }

  void add_groups() {
    const LoadedValue optimizer = read_member(checkpoint_, "optimizer", [](const StatePath& path) {
      return std::ranges::any_of(path.parts,
                                 [](const auto& part) { return part.key == "param_groups"; });
    });
    const Value inner =
        optimizer.value.has("optimizer") ? optimizer.value.get("optimizer") : optimizer.value;
    const Value groups = inner.get("param_groups");
    if (groups.kind() != ValueKind::list) return;
    Draft draft;
    const Value list = draft.list();
    for (size_t i = 0; i < groups.size(); ++i) {
      const Value group = draft.copy(groups[i]);
      draft.remove(group, "params");
      draft.append(list, group);
    }
    state_.param_groups.push_back(std::move(draft).finish(list));
  }

  void split_masters() {
    const std::optional<DType> dtype = run_.computes_in;
    if (!dtype) return;
    std::unordered_set<std::string> trained;
    for (const StateTensor& tensor : state_.tensors) {
      if (tensor.role == Role::optimizer) trained.emplace(model_name(tensor.name));
    }
    std::vector<StateTensor> masters;
    for (StateTensor& tensor : state_.tensors) {
      if (tensor.role != Role::model || tensor.dtype != DType::f32 || is_buffer(tensor.name)) {
        continue;
      }
      if (trained.contains(tensor.name)) {
        StateTensor master = tensor;
        master.name = optimizer_entry_name("param", tensor.name);
        master.role = Role::optimizer;
        for (const Move& move : master.recipe.moves) {
          state_.dropped.push_back({master.recipe.inputs.at(move.input), -move.elements()});
        }
        masters.push_back(std::move(master));
      }
      tensor.dtype = *dtype;
    }
    std::move(masters.begin(), masters.end(), std::back_inserter(state_.tensors));
  }

  void tell_of_extra_states() {
    const auto count =
        std::ranges::count_if(checkpoint_.catalog->objects, [](const Object& object) {
          return object.name.ends_with("._extra_state") &&
                 object.extent.length > kMostBytesOfNoState;
        });
    if (count == 0) return;
    state_.warnings.push_back(
        fmt::format("left out: {} extra states of modules (scaling factors of FP8)", count));
  }

  const Checkpoint& checkpoint_;
  RunState& state_;
  const RunArguments run_;
};

}  // namespace

void add_fsdp_state(const Checkpoint& checkpoint, RunState& state) {
  FsdpStateFiller(checkpoint, state).fill();
}

}  // namespace ferry
