#include "ckpt/megatron/fsdp/fsdp_state.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/fsdp/fsdp.h"
#include "ckpt/megatron/fsdp/fsdp_names.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/state/edit.h"

namespace ferry {
namespace {

// A state dict that was taken apart into one object a leaf, put together again.
//
// Source: torch/distributed/checkpoint/_nested_dict.py (flatten_state_dict): dicts and lists are
// taken apart, tuples are not; `planner_data` says which path each key stands for.

/// The path of a key: as planner_data says, else its parts between dots. A number is a position in
/// a list.
struct StatePath {
  struct Part {
    std::string key;
    int64_t position = -1;  // in a list; -1: a key of a dict
  };
  std::vector<Part> parts;
};

class StatePaths {
 public:
  /// From planner_data: a dict of tuples, or none. It must outlive this.
  explicit StatePaths(const Value& paths);
  StatePath of(std::string_view key) const;

 private:
  std::unordered_map<std::string_view, Value> known_;
};

/// The member `name` of the state dict, with the bytes of its storages; none where no object is
/// part of it. Leaves whose path `is_used` rejects are left out. exhausted when it nests too deep.
LoadedValue read_member(const Checkpoint& checkpoint, std::string_view name,
                        const std::function<bool(const StatePath&)>& is_used = {});

constexpr size_t kDeepestPath = 16;

StatePath::Part path_part_of(std::string_view text) {
  StatePath::Part part{std::string(text), -1};
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= 0) {
    part.position = number;
  }
  return part;
}

// A dict, a list or a leaf under construction.
struct StateNode {
  std::vector<std::pair<StatePath::Part, StateNode>> children;
  std::unordered_map<std::string, size_t> numbers;  // of the children, by key
  std::optional<LoadedValue> leaf;

  StateNode& child(const StatePath::Part& part) {
    const auto [at, is_new] = numbers.emplace(part.key, children.size());
    if (is_new) children.emplace_back(part, StateNode());
    return children[at->second].second;
  }
};

Value value_of_node(Draft& draft, StateNode& node) {
  if (node.leaf) return draft.copy(node.leaf->value);
  const bool is_list = std::ranges::all_of(
      node.children, [](const auto& child) { return child.first.position >= 0; });
  if (!is_list) {
    const Value dict = draft.dict();
    for (auto& [part, child] : node.children)
      draft.add(dict, part.key, value_of_node(draft, child));
    return dict;
  }
  std::ranges::stable_sort(node.children, {},
                           [](const auto& child) { return child.first.position; });
  const Value list = draft.list();
  for (auto& [part, child] : node.children) draft.append(list, value_of_node(draft, child));
  return list;
}

StatePaths::StatePaths(const Value& paths) {
  for (size_t i = 0; i < paths.pair_count(); ++i) {
    if (const auto key = paths.pair_key(i).string()) known_.emplace(*key, paths.pair_value(i));
  }
}

StatePath StatePaths::of(std::string_view key) const {
  StatePath path;
  const auto found = known_.find(key);
  const Value known = found == known_.end() ? Value() : found->second;
  for (size_t i = 0; i < known.size(); ++i) {
    if (const auto text = known[i].string()) {
      path.parts.push_back({std::string(*text), -1});
    } else if (const auto position = known[i].integer(); position && *position >= 0) {
      path.parts.push_back({std::to_string(*position), *position});
    } else {
      path.parts.clear();
      break;
    }
  }
  if (!path.parts.empty()) return path;
  for (std::string_view rest = key;;) {
    const size_t dot = rest.find('.');
    path.parts.push_back(path_part_of(rest.substr(0, dot)));
    if (dot == std::string_view::npos) return path;
    rest.remove_prefix(dot + 1);
  }
}

LoadedValue read_member(const Checkpoint& checkpoint, std::string_view name,
                        const std::function<bool(const StatePath&)>& is_used) {
  StateNode root;
  const StatePaths paths(checkpoint.paths.value);
  for (const Object& object : checkpoint.catalog->objects) {
    if (!object.name.starts_with(name)) continue;
    const StatePath path = paths.of(object.name);
    if (path.parts.front().key != name || (is_used && !is_used(path))) continue;
    if (path.parts.size() > kDeepestPath) {
      fail(ErrorKind::exhausted,
           "object {} nests {} deep in the state dict, {} at most are expected", object.name,
           path.parts.size(), kDeepestPath);
    }
    StateNode* node = &root;
    for (const StatePath::Part& part : path.parts) node = &node->child(part);
    node->leaf = read_object_with_storages(checkpoint.catalog, object);
  }
  if (root.children.empty()) return {};
  Draft draft;
  const Value value = value_of_node(draft, root.children.front().second);
  return std::move(draft).finish(value);
}

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
    report_extra_states();
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

  void report_extra_states() {
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
