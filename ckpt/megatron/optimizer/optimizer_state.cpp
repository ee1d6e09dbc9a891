#include "ckpt/megatron/optimizer/optimizer_state.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/optimizer/bucket_optimizer.h"
#include "ckpt/megatron/optimizer/fragment_optimizer.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {
namespace {

// "optimizer.distributed..." of "chained_1.optimizer.distributed..."; empty when it is no
// optimizer's name.
std::string_view without_chain(std::string_view name) {
  if (name.starts_with("chained_")) {
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos) return {};
    name.remove_prefix(dot + 1);
  }
  return name.starts_with("optimizer.") ? name : std::string_view();
}

// "optimizer.state.exp_avg.decoder..." -> exp_avg, decoder...
std::optional<OptimizerEntryName> parse_state_name(std::string_view name) {
  return parse_optimizer_entry_name(without_chain(name));
}

std::vector<ModelTensor> model_tensors(const Catalog& catalog) {
  std::vector<ModelTensor> tensors;
  for (const Entry& entry : catalog.entries) {
    if (without_chain(entry.name).empty())
      tensors.push_back({entry.name, entry.shape, entry.dtype});
  }
  return tensors;
}

// Replaces every entry of the optimizer whose name `is_one` by `entries`, where the first stood.
template <typename Predicate>
void replace_entries(Catalog& catalog, Predicate is_one, std::vector<Entry> entries) {
  std::vector<Entry> all;
  all.reserve(catalog.entries.size() + entries.size());
  bool inserted = false;
  for (Entry& entry : catalog.entries) {
    if (!is_one(entry.name)) {
      all.push_back(std::move(entry));
    } else if (!inserted) {
      std::move(entries.begin(), entries.end(), std::back_inserter(all));
      inserted = true;
    }
  }
  catalog.entries = std::move(all);
}

std::string left_out(std::string_view layout, const std::string& reason) {
  return fmt::format("The optimizer's state is stored as {} and left out: {}.", layout, reason);
}

// The model's tensors whose state is stored per parameter, next to buckets: a layer-wise
// optimizer's, as Muon's. Empty: none.
std::vector<bool> with_own_state(const Catalog& catalog, const std::vector<ModelTensor>& tensors) {
  std::unordered_map<std::string_view, size_t> numbers;
  for (size_t i = 0; i < tensors.size(); ++i) numbers.emplace(tensors[i].name, i);
  std::vector<bool> own;
  for (const Entry& entry : catalog.entries) {
    const auto name = parse_state_name(entry.name);
    const auto at = name ? numbers.find(name->key) : numbers.end();
    if (at == numbers.end()) continue;
    own.resize(tensors.size(), false);
    own[at->second] = true;
  }
  return own;
}

void describe_buckets(Catalog& catalog, const Value& args, OptimizerState& state) {
  state.layout = OptimizerLayout::dp_reshardable;
  std::vector<Entry> entries;
  try {
    if (args.is_none()) {
      fail(ErrorKind::unsupported,
           "the checkpoint holds no arguments of the run, without which the "
           "order of the parameters is unknown");
    }
    const ModelLayout layout(model_tensors(catalog), read_run_arguments(args));
    DecodedBuckets decoded =
        decode_buckets(catalog, layout, with_own_state(catalog, layout.tensors()));
    entries = std::move(decoded.entries);
    state.modules = decoded.modules;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::mismatch) throw;
    state.problem = left_out("dp_reshardable", error.what());
  }
  replace_entries(catalog, is_bucket_entry, std::move(entries));
}

struct FoundStates {
  bool any = false;
  bool fragments = false;  // shapes unlike the model's
};

FoundStates find_states(const Catalog& catalog,
                        const std::unordered_map<std::string_view, const Entry*>& model) {
  FoundStates found;
  for (const Entry& entry : catalog.entries) {
    const auto name = parse_state_name(entry.name);
    if (!name) continue;
    found.any = true;
    const auto at = model.find(name->key);
    found.fragments |= at != model.end() && at->second->shape != entry.shape;
  }
  return found;
}

// Fragments of one parameter each, to be put together in model space.
void describe_fragments(Catalog& catalog, OptimizerState& state) {
  state.layout = OptimizerLayout::fully_sharded_model_space;
  std::vector<Entry> entries;
  try {
    const std::vector<ModelTensor> tensors = model_tensors(catalog);
    std::unordered_map<std::string_view, uint32_t> numbers;
    for (uint32_t i = 0; i < tensors.size(); ++i) numbers.emplace(tensors[i].name, i);
    OptimizerEntries collected(tensors);
    for (const Entry& entry : catalog.entries) {
      const auto name = parse_state_name(entry.name);
      if (!name) continue;
      const auto at = numbers.find(name->key);
      if (at == numbers.end()) {
        fail(ErrorKind::mismatch, "{} belongs to no tensor of the model", entry.name);
      }
      add_fragments(entry, name->state, tensors[at->second], at->second, collected);
    }
    entries = collected.take();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::mismatch) throw;
    state.problem = left_out("fully_sharded_model_space", error.what());
  }
  replace_entries(
      catalog, [](std::string_view name) { return parse_state_name(name).has_value(); },
      std::move(entries));
}

void describe_plain(Catalog& catalog, const Value& args, const Value& metadata,
                    OptimizerState& state) {
  const auto type = metadata.get("distrib_optim_sharding_type").string();
  const bool distributed = args.get("use_distributed_optimizer").boolean().value_or(true);
  const bool per_parameter = type == "fully_reshardable" || (distributed && !args.is_none());
  if (state.layout == OptimizerLayout::none) {
    state.layout = per_parameter ? OptimizerLayout::fully_reshardable : OptimizerLayout::plain;
  }
  for (Entry& entry : catalog.entries) {
    const auto name = parse_state_name(entry.name);
    if (!name) continue;
    entry.role = Role::optimizer;
    entry.name = optimizer_entry_name(name->state, name->key);
  }
}

}  // namespace

OptimizerState describe_optimizer(Catalog& catalog, const Value& args, const Value& metadata) {
  OptimizerState state;
  std::unordered_map<std::string_view, const Entry*> model;
  bool buckets = false;
  for (const Entry& entry : catalog.entries) {
    if (without_chain(entry.name).empty()) model.emplace(entry.name, &entry);
    buckets |= is_bucket_entry(entry.name);
  }
  const FoundStates found = find_states(catalog, model);
  model.clear();
  if (buckets) describe_buckets(catalog, args, state);
  if (found.fragments) {
    describe_fragments(catalog, state);
  } else if (found.any) {
    describe_plain(catalog, args, metadata, state);
  }
  // A part of the state is of no use.
  if (buckets && !state.problem.empty()) {
    std::erase_if(catalog.entries, [](const Entry& entry) {
      return parse_optimizer_entry_name(entry.name).has_value();
    });
  }
  for (const Object& object : catalog.objects) {
    const std::string_view name = without_chain(object.name);
    if (!name.starts_with("optimizer.distributed.") ||
        name.find(".param_state/") == std::string_view::npos || !state.problem.empty()) {
      continue;
    }
    state.layout = OptimizerLayout::legacy_distributed;
    state.problem = left_out("dp_zero_gather_scatter (one object a model-parallel rank)",
                             "save the checkpoint again with Megatron Core 0.15 to keep it");
  }
  return state;
}

}  // namespace ferry
