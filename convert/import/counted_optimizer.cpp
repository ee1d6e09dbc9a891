#include "convert/import/counted_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/optimizer_facts.h"
#include "ckpt/format/torch/torch_file.h"
#include "ckpt/io/file_system.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "convert/import/parameter_order.h"
#include "convert/model/family.h"

namespace ferry {
namespace {

constexpr std::string_view kCountedFiles[] = {"optimizer.pt", "optimizer.bin"};
constexpr std::string_view kCountedState = "state.", kCountedMoment = "exp_avg";

// "state.<number>.<kind>"
struct CountedName {
  int64_t number = 0;
  std::string_view kind;
};

std::optional<CountedName> parse_counted_name(std::string_view name) {
  if (!name.starts_with(kCountedState)) return std::nullopt;
  CountedName parsed;
  const auto number = leading_number(name.substr(kCountedState.size()), &parsed.kind);
  if (!number || parsed.kind.empty()) return std::nullopt;
  parsed.number = *number;
  return parsed;
}

using CountedGroups = std::vector<std::vector<int64_t>>;  // of numbers

class CountedState {
 public:
  CountedState(Checkpoint& model, std::string path)
      : model_(model),
        path_(std::move(path)),
        catalog_(open_torch_file(model.catalog->file_system, path_)) {
    const auto file = model.catalog->file_system->open(path_);
    facts_ = read_optimizer_facts(read_torch_file(*file), *file);
  }

  // Whether it counts parameters, rather than to name them.
  bool counts() const {
    const Value first = facts_.param_groups.value[0].get("params")[0];
    return !first.string();
  }

  void add() {
    read_groups();
    for (const Entry& entry : catalog_.entries) {
      const auto name = parse_counted_name(entry.name);
      if (name && name->kind == kCountedMoment) shapes_[name->number] = entry.shape;
    }
    if (shapes_.empty()) refuse("holds no exp_avg, which the state of Adam has");
    const std::vector<std::string> names = find_names();
    Catalog& all = model_.catalog.edit();
    const auto first = static_cast<uint32_t>(all.files.size());
    for (const auto& file : catalog_.files) all.files.push_back(file);
    for (Entry& entry : catalog_.entries) {
      const auto name = parse_counted_name(entry.name);
      if (!name || name->kind == "step" || name->number >= static_cast<int64_t>(names.size())) {
        continue;
      }
      for (Chunk& chunk : entry.chunks) chunk.extent.file += first;
      entry.name = optimizer_entry_name(name->kind, names[static_cast<size_t>(name->number)]);
      entry.role = Role::optimizer;
      all.entries.push_back(std::move(entry));
    }
    model_.param_groups = std::move(facts_.param_groups);
    model_.optimizer_steps = facts_.steps;
    model_.optimizer = OptimizerLayout::plain;
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::unsupported, "{}: {}; without {} the model alone is written", path_,
         fmt::format(format, std::forward<Args>(args)...), option("optimizer"));
  }

  void read_groups() {
    const Value groups = facts_.param_groups.value;
    std::set<int64_t> seen;
    double first_decay = 0, last_decay = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      const Value numbers = groups[g].get("params");
      std::vector<int64_t>& group = groups_.emplace_back();
      for (size_t i = 0; i < numbers.size(); ++i) {
        const auto number = numbers[i].integer();
        if (!number || !seen.insert(*number).second) {
          refuse("param_groups[{}] does not count its parameters", g);
        }
        group.push_back(*number);
      }
      const double decay = groups[g].get("weight_decay").real().value_or(0);
      (g == 0 ? first_decay : last_decay) = decay;
    }
    count_ = static_cast<int64_t>(seen.size());
    if (groups_.empty() || groups_.size() > 2) {
      refuse(
          "has {} parameter groups; one of all parameters, or one that is decayed and one of "
          "biases and norms, would say which is which",
          groups_.size());
    }
    if (count_ == 0 || *seen.begin() != 0 || *seen.rbegin() != count_ - 1) {
      refuse("its parameter groups do not count from 0 on");
    }
    if (groups_.size() == 2 && first_decay == 0 && last_decay != 0) {
      std::swap(groups_[0], groups_[1]);
    }
  }

  // The name of each number, of the one order that fits.
  std::vector<std::string> find_names() const {
    std::vector<CountedParameter> stored;
    for (const Entry& entry : model_.catalog->entries) {
      if (entry.role == Role::model) stored.push_back({entry.name, entry.shape});
    }
    const auto fitting = fitting_names(stored);
    if (fitting.size() == 1) return *fitting.begin();
    if (fitting.empty()) {
      refuse(
          "its {} parameters, in {}, are not those of the {} tensors next to it in the order in "
          "which transformers lists them",
          count_, groups_.size() == 1 ? "one group" : "two groups", stored.size());
    }
    refuse("its {} parameters are those of the model in several orders", count_);
  }

  using Names = std::vector<std::string>;  // by number

  std::set<Names> fitting_names(const std::vector<CountedParameter>& stored) const {
    std::set<Names> fitting;
    // Old files may hold an output layer that is the embedding's copy.
    std::vector<CountedParameter> tied = stored;
    std::erase_if(tied, [](const auto& one) { return one.name == kOutputLayerName; });
    for (const std::vector<CountedParameter>* parameters : {&stored, &std::as_const(tied)}) {
      for (const ListingForm form : {ListingForm{true, true}, ListingForm{true, false},
                                     ListingForm{false, true}, ListingForm{false, false}}) {
        const auto listed = listed_parameters(*parameters, form, path_);
        for (const bool by_name : {true, false}) {
          if (auto names = names_by(listed, by_name)) fitting.insert(std::move(*names));
        }
      }
    }
    return fitting;
  }

  std::optional<Names> names_by(const std::vector<CountedParameter>& listed, bool by_name) const {
    std::vector<size_t> next(groups_.size(), 0);
    Names names(static_cast<size_t>(count_));
    for (const CountedParameter& parameter : listed) {
      const bool decayed =
          by_name ? is_decayed_by_name(parameter.name) : parameter.shape.size() > 1;
      const size_t g = groups_.size() == 2 && !decayed ? 1 : 0;
      if (next[g] == groups_[g].size()) return std::nullopt;
      const int64_t number = groups_[g][next[g]++];
      const auto shape = shapes_.find(number);
      if (shape != shapes_.end() && shape->second != parameter.shape) return std::nullopt;
      names[static_cast<size_t>(number)] = parameter.name;
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (next[g] != groups_[g].size()) return std::nullopt;
    }
    return names;
  }

  Checkpoint& model_;
  std::string path_;
  Catalog catalog_;
  OptimizerFacts facts_;
  CountedGroups groups_;
  int64_t count_ = 0;               // of parameters
  std::map<int64_t, Dims> shapes_;  // of first moments, by number
};

}  // namespace

bool add_counted_optimizer(Checkpoint& model) {
  const FileSystem& files = *model.catalog->file_system;
  for (const std::string_view name : kCountedFiles) {
    const std::string path = join(model.path, std::string(name));
    if (files.status(path).kind != PathKind::file) continue;
    CountedState state(model, path);
    const bool counts = state.counts();
    if (counts) state.add();
    return counts;
  }
  return false;
}

}  // namespace ferry
