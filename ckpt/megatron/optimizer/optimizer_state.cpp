#include "ckpt/megatron/optimizer/optimizer_state.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/core/catalog.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/optimizer/bucket_optimizer.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {
namespace {

// fully_sharded_model_space: optimizer state of Megatron Core up to 0.14, per parameter, as
// flattened fragments.
//
// A parameter of shape [X, Y] that is split into pieces of [x, y] is stored as a tensor
// [X/x, Y/y, x*y]: which piece, then the piece's elements in row-major order, cut where
// data-parallel ranks were.
//
// Source: megatron/core/dist_checkpointing/strategies/torch.py at core_v0.12.0
// (sharded_tensor_to_torch_sharded_tensor).

// Size of one fragment; nothing when the stored shape is not one of fragments of `shape`.
bool fragment_size(const Dims& stored, const Dims& shape, Dims& fragment) {
  if (stored.size() != shape.size() + 1) return false;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (stored[axis] <= 0 || shape[axis] % stored[axis] != 0) return false;
    fragment.push_back(shape[axis] / stored[axis]);
  }
  return element_count(fragment, "fragment of an optimizer tensor") == stored.back();
}

void add_chunk(const Chunk& chunk, std::string_view state, DType dtype, const Dims& fragment,
               uint32_t tensor, OptimizerEntries& entries) {
  const size_t axes = fragment.size();
  const int64_t begin = chunk.box.offset[axes], count = chunk.box.size[axes];
  const int64_t fragments =
      element_count(Dims(chunk.box.size.begin(), chunk.box.size.end() - 1), "fragments");
  constexpr int64_t kMostFragments = int64_t{1} << 20;  // of one chunk; Megatron-LM writes one
  if (fragments > kMostFragments) {
    fail(ErrorKind::unsupported, "a chunk of {} fragments of optimizer state", fragments);
  }
  Dims which(axes, 0);  // a fragment of the chunk's box
  Extent extent = chunk.extent;
  while (true) {
    Box box{Dims(axes), fragment};
    for (size_t axis = 0; axis < axes; ++axis) {
      box.offset[axis] = (chunk.box.offset[axis] + which[axis]) * fragment[axis];
    }
    entries.add(state, dtype, tensor, box, begin, count, extent, fragments > 1);
    extent.payload_offset += static_cast<uint64_t>(count) * size_bytes(dtype);
    size_t axis = axes;
    while (axis > 0 && ++which[axis - 1] == chunk.box.size[axis - 1]) which[--axis] = 0;
    if (axis == 0) return;
  }
}

// Adds the chunks of `stored`, the `state` of model tensor number `tensor`, whose shape is either
// the tensor's or that of its fragments. mismatch when it is neither.
void add_fragments(const Entry& stored, std::string_view state, const ModelTensor& model,
                   uint32_t tensor, OptimizerEntries& entries) {
  Dims fragment;
  if (!fragment_size(stored.shape, model.shape, fragment)) {
    fail(ErrorKind::mismatch,
         "{} has shape {}, which is neither that of the parameter, {}, nor of fragments of it",
         stored.name, to_string(stored.shape), to_string(model.shape));
  }
  for (const Chunk& chunk : stored.chunks) {
    if (chunk.is_run() || !chunk.strides.empty() || !is_inside(chunk.box, stored.shape)) {
      fail(ErrorKind::corrupt, "{}: chunk {} is not a range of fragments", stored.name,
           to_string(chunk.box));
    }
    if (element_count(chunk.box.size, stored.name) == 0) continue;
    add_chunk(chunk, state, stored.dtype, fragment, tensor, entries);
  }
}

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
