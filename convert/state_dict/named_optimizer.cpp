#include "convert/state_dict/named_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/load_as.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/format/torch/optimizer_facts.h"
#include "ckpt/format/torch/torch_file.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/open_folders.h"
#include "convert/import/counted_optimizer.h"
#include "convert/state_dict/prefix.h"

namespace ferry {
namespace {

constexpr uint64_t kMostNumberBytes = 64;
constexpr std::string_view kMomentMember = "exp_avg", kStepMember = "step";
constexpr std::string_view kMappedStates[] = {"exp_avg", "exp_avg_sq", "step"};

bool is_counted(std::string_view parameter) {
  return parameter.find_first_not_of("0123456789") == std::string_view::npos;
}

// An element, where it is of a type that numbers of an optimizer have.
std::optional<double> read_number(const Catalog& catalog, const Entry& entry) {
  if (entry.elements() != 1) return std::nullopt;
  const std::string bytes = read_tensor(catalog, entry, kMostNumberBytes);
  const auto* at = reinterpret_cast<const std::byte*>(bytes.data());
  switch (entry.dtype) {
    case DType::f32:
      return load_as<float>(at);
    case DType::f64:
      return load_as<double>(at);
    case DType::i32:
      return load_as<int32_t>(at);
    case DType::i64:
      return static_cast<double>(load_as<int64_t>(at));
    default:
      return std::nullopt;
  }
}

// What Megatron-LM's groups can say of one.
struct NamedGroup {
  std::map<std::string, double> numbers;  // by member; those of betas are beta1, beta2
  bool operator==(const NamedGroup&) const = default;
};

class OptimizerNames {
 public:
  explicit OptimizerNames(Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  std::vector<std::string> apply() {
    collect();
    if (moments_.empty()) return {};
    if (!problem().empty()) {
      checkpoint_.optimizer_problem = problem_;
      return {};
    }
    for (const auto& [parameter, optimizer] : moments_) {
      with_moments_.insert(without_wrappers(parameter));
    }
    rename();
    if (!checkpoint_.optimizer_steps) find_steps();
    if (!checkpoint_.param_groups.value) find_groups();
    report_others();
    return std::move(warnings_);
  }

 private:
  Catalog& catalog() { return checkpoint_.catalog.edit(); }

  void collect() {
    for (Entry& entry : catalog().entries) {
      const auto key = parse_optimizer_key(entry.name);
      if (!key) continue;
      entry.role = Role::optimizer;
      if (key->in_groups || key->member != kMomentMember) continue;
      const auto [at, is_new] = moments_.emplace(key->parameter, key->optimizer);
      if (is_new || !problem_.empty()) continue;
      problem_ = fmt::format("the state of {} is there twice, in {} and in {}", key->parameter,
                             at->second, key->optimizer);
    }
    for (const Entry& entry : catalog().entries) {
      if (entry.role == Role::model) stored_.emplace(without_wrappers(entry.name), entry.name);
    }
  }

  const std::string& problem() {
    if (!problem_.empty()) return problem_;
    if (std::ranges::any_of(moments_, [](const auto& of) { return is_counted(of.first); })) {
      problem_ = fmt::format(
          "its optimizer counts parameters and names none ({}.state.{}.exp_avg); what "
          "torch.distributed.checkpoint.state_dict.get_optimizer_state_dict gives names them",
          moments_.begin()->second, moments_.begin()->first);
      return problem_;
    }
    find_prefix();
    return problem_;
  }

  // What stands before a parameter's name in the name of its tensor: "model." of
  // "model.norm.weight".
  void find_prefix() {
    std::map<std::string, size_t> counts;
    for (const auto& [parameter, optimizer] : moments_) {
      const std::string name = without_wrappers(parameter);
      for (const auto& [tensor, stored] : stored_) {
        if (!tensor.ends_with(name)) continue;
        const std::string before = tensor.substr(0, tensor.size() - name.size());
        if (before.empty() || before.ends_with('.')) counts.emplace(before, 0);
      }
      if (!counts.empty()) break;
    }
    for (auto& [before, count] : counts) {
      count = static_cast<size_t>(std::ranges::count_if(moments_, [&](const auto& of) {
        return stored_.contains(before + without_wrappers(of.first));
      }));
    }
    const auto most = [&](const auto& skipped) {
      auto best = counts.end();
      for (auto at = counts.begin(); at != counts.end(); ++at) {
        if (at != skipped && (best == counts.end() || at->second > best->second)) best = at;
      }
      return best;
    };
    const auto best = most(counts.end());
    if (best == counts.end()) {
      problem_ =
          fmt::format("its optimizer holds the state of {}, which is not a tensor of the model",
                      moments_.begin()->first);
      return;
    }
    const auto second = most(best);
    if (second != counts.end() && second->second == best->second) {
      problem_ = fmt::format(
          "its optimizer's state is that of the tensors under '{}' as well as under '{}'",
          best->first, second->first);
      return;
    }
    prefix_ = best->first;
  }

  void rename() {
    std::set<std::string> strangers;
    for (Entry& entry : catalog().entries) {
      const auto key = parse_optimizer_key(entry.name);
      if (!key || key->in_groups || !is_state_of_parameter(*key)) continue;
      const auto tensor = stored_.find(prefix_ + without_wrappers(key->parameter));
      const std::string member(key->member), parameter(key->parameter);
      if (tensor == stored_.end()) {
        strangers.insert(parameter);
        continue;
      }
      if (std::ranges::find(kMappedStates, member) == std::end(kMappedStates)) ++others_[member];
      if (member == kStepMember && !step_)
        step_ = static_cast<size_t>(&entry - catalog().entries.data());
      entry.name = optimizer_entry_name(member, tensor->second);
    }
    if (strangers.empty()) return;
    if (has_tensors_without_state()) {
      checkpoint_.optimizer_problem = fmt::format(
          "its optimizer holds the state of {} parameters that are not tensors of the model ({}{})",
          strangers.size(), *strangers.begin(), strangers.size() > 1 ? ", ..." : "");
      return;
    }
    warnings_.push_back(fmt::format(
        "the optimizer's state of {} parameters that the model has not is left out: {}{}",
        strangers.size(), *strangers.begin(), strangers.size() > 1 ? ", ..." : ""));
  }

  // Next to strangers they may be theirs, under another name.
  bool has_tensors_without_state() const {
    return std::ranges::any_of(stored_, [&](const auto& tensor) {
      return tensor.first.starts_with(prefix_) &&
             !with_moments_.contains(tensor.first.substr(prefix_.size()));
    });
  }

  void find_steps() {
    std::optional<double> steps;
    if (step_) steps = read_number(catalog(), catalog().entries[*step_]);
    for (const Object& object : catalog().objects) {
      if (steps) break;
      const auto key = parse_optimizer_key(object.name);
      if (key && key->member == kStepMember) steps = read_object(catalog(), object).value.real();
    }
    if (steps && *steps >= 0 && *steps <= 1e15) {
      checkpoint_.optimizer_steps = static_cast<int64_t>(*steps);
    }
  }

  void find_groups() {
    if (checkpoint_.format == Format::torch_file) {
      const auto file = catalog().file_system->open(checkpoint_.path);
      OptimizerFacts facts = read_optimizer_facts(read_torch_file(*file), *file);
      checkpoint_.param_groups = std::move(facts.param_groups);
      if (!checkpoint_.optimizer_steps) checkpoint_.optimizer_steps = facts.steps;
      return;
    }
    std::map<std::string, NamedGroup> groups;  // by number or parameter
    for (const Object& object : catalog().objects) {
      const auto key = parse_optimizer_key(object.name);
      if (key && key->in_groups) read_member(object, *key, groups[std::string(key->parameter)]);
    }
    for (const Entry& entry : catalog().entries) {
      const auto key = parse_optimizer_key(entry.name);
      if (!key || !key->in_groups || !is_read(key->member)) continue;
      const auto number = read_number(catalog(), entry);
      if (number) put(groups[std::string(key->parameter)], std::string(key->member), *number);
    }
    std::vector<NamedGroup> different;
    for (auto& [name, group] : groups) {
      const bool known = std::ranges::find(different, group) != different.end();
      if (!group.numbers.empty() && !known) different.push_back(std::move(group));
    }
    if (!different.empty()) checkpoint_.param_groups = as_list(different);
  }

  static bool is_read(std::string_view member) {
    return member == "lr" || member == "eps" || member == "weight_decay" || member == "betas";
  }

  void read_member(const Object& object, const OptimizerKey& key, NamedGroup& group) {
    if (!is_read(key.member)) return;
    const LoadedValue loaded = read_object(catalog(), object);
    if (key.member == "betas") {
      const auto first = loaded.value[0].real(), second = loaded.value[1].real();
      if (first) put(group, "beta1", *first);
      if (second) put(group, "beta2", *second);
    } else if (const auto number = loaded.value.real()) {
      put(group, std::string(key.member), *number);
    }
  }

  static void put(NamedGroup& group, const std::string& name, double number) {
    if (std::isfinite(number)) group.numbers[name] = number;
  }

  static LoadedValue as_list(const std::vector<NamedGroup>& groups) {
    Draft draft;
    const Value list = draft.list();
    for (const NamedGroup& group : groups) {
      const Value dict = draft.dict();
      const auto& numbers = group.numbers;
      for (const auto& [name, number] : numbers) {
        if (!name.starts_with("beta")) draft.put(dict, name, draft.real(number));
      }
      if (numbers.contains("beta1") && numbers.contains("beta2")) {
        draft.put(dict, "betas",
                  draft.tuple({draft.real(numbers.at("beta1")), draft.real(numbers.at("beta2"))}));
      }
      draft.append(list, dict);
    }
    return std::move(draft).finish(list);
  }

  void report_others() {
    for (const auto& [member, count] : others_) {
      warnings_.push_back(
          fmt::format("the optimizer's {} of {} parameters is left out, as Adam of Megatron-LM has "
                      "no such state",
                      member, count));
    }
  }

  Checkpoint& checkpoint_;
  std::map<std::string, std::string, std::less<>> moments_;  // parameter -> optimizer
  std::unordered_map<std::string, std::string> stored_;      // bare name -> stored one
  std::map<std::string, size_t> others_;                     // kinds of state, with parameters
  std::set<std::string> with_moments_;                       // bare names
  std::string prefix_, problem_;
  std::optional<size_t> step_;  // position of an entry
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string> name_optimizer(Checkpoint& checkpoint) {
  return OptimizerNames(checkpoint).apply();
}

std::vector<std::string> add_optimizer_of_folder(Checkpoint& model) {
  if (add_counted_optimizer(model)) return {};
  add_optimizer_next_to(model, model.path, "");
  return name_optimizer(model);
}

}  // namespace ferry
