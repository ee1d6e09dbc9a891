#include "ckpt/megatron/optimizer/masters/shifted_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/masters/compare.h"
#include "ckpt/megatron/optimizer/masters/shifted_buffer.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {
namespace {

constexpr size_t kTensorsLookedAt = 8;
constexpr int64_t kElementsLookedAt = 1024;  // of each

// Only a tensor a parameter is stored so, and only where a buffer may have several buckets.
bool may_be_shifted(const Checkpoint& checkpoint) {
  return checkpoint.optimizer == OptimizerLayout::fully_reshardable && checkpoint.args.value &&
         !matrix_optimizer(checkpoint.args.value).any &&
         checkpoint.args.value.get("overlap_grad_reduce").boolean().value_or(false);
}

std::vector<ModelTensor> tensors_of_model(const Catalog& catalog) {
  std::vector<ModelTensor> tensors;
  for (const Entry& entry : catalog.entries) {
    if (entry.role == Role::model) tensors.push_back({entry.name, entry.shape, entry.dtype});
  }
  return tensors;
}

// Nothing where the places of this model's parameters are not known.
std::optional<ModelLayout> known_layout(const Checkpoint& checkpoint) {
  try {
    return ModelLayout(tensors_of_model(checkpoint.catalog),
                       read_run_arguments(checkpoint.args.value));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::mismatch) throw;
    return std::nullopt;
  }
}

// A pair's elements in `box` alone.
MasterPair box_of_pair(const MasterPair& pair, const Box& box) {
  MasterPair part{pair.tensor, box.size, pair.weight_dtype, pair.master, pair.weight};
  const Move move = copy_box(box, Dims(box.size.size(), 0));
  part.master.moves = {move};
  part.weight.moves = {move};
  return part;
}

// Some elements of shifted parts.
std::vector<MasterPair> samples(const std::vector<MasterPair>& pairs, const ShiftedParts& shifted,
                                const std::vector<ModelTensor>& tensors) {
  std::unordered_map<std::string_view, const MasterPair*> by_name;
  for (const MasterPair& pair : pairs) by_name.emplace(pair.tensor, &pair);
  std::vector<MasterPair> some;
  const size_t step = std::max<size_t>(1, shifted.size() / kTensorsLookedAt);
  size_t number = 0;
  for (const auto& [tensor, parts] : shifted) {
    if (number++ % step != 0) continue;
    const auto at = by_name.find(tensors[tensor].name);
    if (at == by_name.end()) continue;
    for (const ShiftedPart& part : parts) {
      if (!part.stored || part.stored->run_begin == part.place.run_begin) continue;
      Shard run = part.place;
      run.run_count = std::min(run.run_count, kElementsLookedAt);
      for (const FilledBox& filled : filled_boxes(run)) {
        some.push_back(box_of_pair(*at->second, filled.box));
      }
      break;
    }
  }
  return some;
}

EngineOptions sample_options() {
  EngineOptions options;
  options.threads = 1;
  options.memory_bytes = uint64_t{16} << 20;
  return options;
}

// The optimizer's state with its parts in their places.
class StateRepair {
 public:
  StateRepair(const RunState& state, const std::vector<ModelTensor>& tensors,
              const ShiftedParts& shifted)
      : state_(state), tensors_(tensors), shifted_(shifted) {
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      positions_.emplace(state.tensors[i].name, i);
    }
    for (uint32_t i = 0; i < tensors.size(); ++i) numbers_.emplace(tensors[i].name, i);
  }

  // New recipes of the state's tensors, by their positions.
  std::vector<std::pair<size_t, Recipe>> recipes() const {
    std::vector<std::pair<size_t, Recipe>> all;
    for (size_t i = 0; i < state_.tensors.size(); ++i) {
      const StateTensor& tensor = state_.tensors[i];
      const auto name = parse_optimizer_entry_name(tensor.name);
      if (tensor.role != Role::optimizer || !name) continue;
      const auto number = numbers_.find(name->key);
      if (number == numbers_.end()) continue;
      const auto parts = shifted_.find(number->second);
      if (parts != shifted_.end()) all.emplace_back(i, recipe(name->state, parts->second));
    }
    return all;
  }

  std::vector<ShiftRepair::Lost> lost() const {
    std::vector<ShiftRepair::Lost> all;
    for (const auto& [tensor, parts] : shifted_) {
      int64_t elements = 0;
      for (const ShiftedPart& part : parts) elements += part.stored ? 0 : part.place.run_count;
      if (elements > 0) all.push_back({tensors_[tensor].name, elements});
    }
    return all;
  }

 private:
  Recipe recipe(std::string_view state, const std::vector<ShiftedPart>& parts) const {
    Recipe made;
    std::unordered_map<uint32_t, uint32_t> inputs;
    const auto input = [&](const std::string& name) {
      const auto at = positions_.find(name);
      if (at == positions_.end()) {
        fail(ErrorKind::mismatch, "{} is missing: other optimizer state is in its place", name);
      }
      const uint32_t entry = state_.tensors[at->second].recipe.inputs.at(0);
      const auto [known, is_new] = inputs.emplace(entry, static_cast<uint32_t>(made.inputs.size()));
      if (is_new) made.inputs.push_back(entry);
      return known->second;
    };
    for (const ShiftedPart& part : parts) {
      const std::string& own = tensors_[part.place.tensor].name;
      if (part.stored) {
        const std::string& from = tensors_[part.stored->tensor].name;
        add_run_moves(*part.stored, part.place, input(optimizer_entry_name(state, from)),
                      made.moves);
      } else if (state == "param") {
        add_run_moves(part.place, part.place, input(own), made.moves);
      } else {
        for (FilledBox& filled : filled_boxes(part.place)) {
          made.zeros.push_back(std::move(filled.box));
        }
      }
    }
    return made;
  }

  const RunState& state_;
  const std::vector<ModelTensor>& tensors_;
  const ShiftedParts& shifted_;
  std::unordered_map<std::string, size_t> positions_;
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

void count_recipe(const Recipe& recipe, int64_t sign, std::vector<Dropped>& dropped) {
  for (const Move& move : recipe.moves) {
    dropped.push_back({recipe.inputs.at(move.input), sign * move.elements()});
  }
}

// The pairs with masters as `recipes` make them.
std::vector<MasterPair> repaired_pairs(std::vector<MasterPair> pairs, const RunState& state,
                                       const std::vector<std::pair<size_t, Recipe>>& recipes) {
  std::unordered_map<std::string_view, const Recipe*> masters;
  for (const auto& [position, recipe] : recipes) {
    const auto name = parse_optimizer_entry_name(state.tensors[position].name);
    if (name->state == "param") masters.emplace(name->key, &recipe);
  }
  for (MasterPair& pair : pairs) {
    if (const auto at = masters.find(pair.tensor); at != masters.end()) pair.master = *at->second;
  }
  return pairs;
}

}  // namespace

std::string shifted_state_problem(const Checkpoint& checkpoint) {
  if (!may_be_shifted(checkpoint)) return {};
  const std::vector<MasterPair> pairs = master_pairs(checkpoint.catalog);
  if (pairs.empty()) return {};
  const auto layout = known_layout(checkpoint);
  if (!layout) return {};
  const ShiftedParts shifted =
      find_shifted_parts(*layout, buffer_candidates(*layout, true).front().choice);
  const auto mismatches = compare_masters(
      checkpoint.catalog, samples(pairs, shifted, layout->tensors()), sample_options());
  if (mismatches.empty()) return {};
  return fmt::format(
      "The optimizer's state of {} of {} parameters is in the wrong places, as Megatron Core "
      "0.15 to 0.19 stores it where gradient buckets are padded: {} does not belong to its "
      "weights. "
      "Resharding with {} puts it back.",
      shifted.size(), layout->tensors().size(), mismatches.front().tensor,
      option("repair_masters"));
}

ShiftRepair repair_shifted_state(const Checkpoint& checkpoint, const EngineOptions& options,
                                 RunState& state) {
  const Catalog& catalog = checkpoint.catalog;
  const std::vector<MasterPair> pairs = master_pairs(catalog);
  if (pairs.empty()) {
    fail(ErrorKind::invalid,
         "{}: holds no fp32 master weights to compare with the weights: it is unknown whether its "
         "optimizer's state is in the right places",
         checkpoint.path);
  }
  const auto found = compare_masters(catalog, pairs, options, CompareUntil::first_mismatch);
  if (found.empty()) return {};
  const auto layout = known_layout(checkpoint);
  if (layout && may_be_shifted(checkpoint)) {
    for (const BufferCandidate& candidate : buffer_candidates(*layout, true)) {
      const ShiftedParts shifted = find_shifted_parts(*layout, candidate.choice);
      if (shifted.empty()) continue;
      const StateRepair repair(state, layout->tensors(), shifted);
      std::vector<std::pair<size_t, Recipe>> recipes = repair.recipes();
      const auto left = compare_masters(catalog, repaired_pairs(pairs, state, recipes), options,
                                        CompareUntil::first_mismatch);
      if (!left.empty()) continue;
      for (auto& [position, recipe] : recipes) {
        count_recipe(state.tensors[position].recipe, 1, state.dropped);
        count_recipe(recipe, -1, state.dropped);
        state.tensors[position].recipe = std::move(recipe);
      }
      return {static_cast<int64_t>(recipes.size()), repair.lost()};
    }
  }
  fail(ErrorKind::mismatch,
       "{}: {}. This is not what Megatron Core 0.15 to 0.19 stores in the wrong places, or the "
       "run's arguments do not say where: it cannot be repaired. {} writes the model without it",
       checkpoint.path, to_string(found.front()), option("optimizer", "none"));
}

}  // namespace ferry
