#include "ckpt/megatron/optimizer/bucket_optimizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/bucket_store.h"
#include "ckpt/megatron/optimizer/flat_buffer.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {
namespace {

// One way in which Megatron-LM may have built the model and its buffers.
struct Candidate {
  ModuleChoice modules;
  bool separate_experts = false;  // routed experts have buffers of their own
  std::string words;              // for messages
};

// A stored buffer with the parameters that it holds, by one candidate.
struct Fit {
  const StoredBuffer* stored = nullptr;
  std::vector<LocalParameter> parameters;  // in order of registration
  FlatBuffer flat;
};

bool same(const std::vector<Fit>& a, const std::vector<Fit>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto& [stored, parameters, flat] = a[i];
    if (stored != b[i].stored || parameters.size() != b[i].parameters.size()) return false;
    for (size_t j = 0; j < parameters.size(); ++j) {
      if (parameters[j].pieces != b[i].parameters[j].pieces) return false;
    }
  }
  return true;
}

std::vector<Candidate> candidates(const ModelLayout& layout, const BucketStore& store) {
  using Experts = ModuleChoice::Experts;
  const RunArguments& run = layout.run();
  std::vector<Experts> experts = {Experts::sequential};
  if (layout.has_experts()) experts.push_back(Experts::grouped);
  if (layout.has_expert_biases()) experts.push_back(Experts::grouped_apart);
  std::vector<bool> separate = {run.expert > 1};
  const bool unequal_tensor = run.expert_tensor != run.tensor;
  if (layout.has_experts() && run.expert == 1 && unequal_tensor && store.has_optimizer(1)) {
    separate = {true, false};  // which of the two changed in 2026
  }
  std::vector<Candidate> all;
  for (const bool norms : {false, true}) {
    if (norms && !layout.has_attention_norms()) continue;
    for (const bool latent : {false, true}) {
      if (latent && (!layout.has_latent_down() || run.tensor == 1)) continue;
      for (const Experts order : experts) {
        for (const bool apart : separate) {
          std::string words = norms ? "norms inside linear layers" : "norms as modules";
          if (layout.has_experts()) {
            words += order == Experts::sequential ? ", experts one by one" : ", grouped experts";
          }
          if (latent) words += ", split MLA down-projections";
          all.push_back({{norms, latent, order}, apart, std::move(words)});
        }
      }
    }
  }
  return all;
}

// Tries to lay one candidate over all stored buffers.
class Fitter {
 public:
  Fitter(const ModelLayout& layout, const BucketStore& store, const Candidate& candidate)
      : layout_(layout), run_(layout.run()), store_(store), candidate_(candidate) {}

  /// Nothing when it does not fit; problem() then says where.
  std::optional<std::vector<Fit>> fit() {
    const int64_t chunks = layout_.pipeline().chunks();
    for (int64_t stage = 0; stage < run_.pipeline; ++stage) {
      const bool chained = candidate_.separate_experts && holds_experts(stage);
      for (int64_t tensor = 0; tensor < run_.tensor; ++tensor) {
        // With the parameter gather overlapped with the step, the first chunk has an optimizer of
        // its own.
        const bool apart = run_.overlap_param_gather_with_step && chunks > 1;
        const RankCoordinates rank{tensor, 0, 0, stage, 0};
        const int64_t group = tensor + run_.tensor * stage;
        if (apart) {
          if (!fit_group(rank, {0, group, 0}, 0, 1, false) ||
              !fit_group(rank, {1, group, 0}, 1, chunks, false)) {
            return std::nullopt;
          }
        } else if (!fit_group(rank, {chained ? 0 : -1, group, 0}, 0, chunks, false)) {
          return std::nullopt;
        }
      }
      if (chained && !fit_experts(stage)) return std::nullopt;
    }
    if (fits_.size() != store_.size()) {
      problem_ = fmt::format("{} of {} stored buffers have no place in the model",
                             store_.size() - fits_.size(), store_.size());
      return std::nullopt;
    }
    return std::move(fits_);
  }

  const std::string& problem() const noexcept { return problem_; }

 private:
  bool holds_experts(int64_t stage) const {
    for (int64_t chunk = 0; chunk < layout_.pipeline().chunks(); ++chunk) {
      for (const auto& parameter :
           layout_.parameters({0, 0, 0, stage, chunk}, candidate_.modules)) {
        if (parameter.routed_expert) return true;
      }
    }
    return false;
  }

  bool fit_experts(int64_t stage) {
    const int64_t chunks = layout_.pipeline().chunks();
    const int64_t optimizer = run_.overlap_param_gather_with_step && chunks > 1 ? 2 : 1;
    for (int64_t expert = 0; expert < run_.expert; ++expert) {
      for (int64_t tensor = 0; tensor < run_.expert_tensor; ++tensor) {
        const int64_t group = tensor + run_.expert_tensor * (expert + run_.expert * stage);
        if (!fit_group({0, tensor, expert, stage, 0}, {optimizer, group, 0}, 0, chunks, true)) {
          return false;
        }
      }
    }
    return true;
  }

  // Buffers of one group of ranks: one a model chunk and dtype, numbered from key.buffer.
  bool fit_group(RankCoordinates rank, BufferKey key, int64_t first_chunk, int64_t end_chunk,
                 bool experts) {
    for (rank.chunk = first_chunk; rank.chunk < end_chunk; ++rank.chunk) {
      std::vector<std::pair<DType, std::vector<LocalParameter>>> buffers;
      for (LocalParameter& parameter : layout_.parameters(rank, candidate_.modules)) {
        const bool in_expert_buffer = candidate_.separate_experts && parameter.routed_expert;
        if (!parameter.trainable || in_expert_buffer != experts) continue;
        auto at = std::find_if(buffers.begin(), buffers.end(),
                               [&](const auto& b) { return b.first == parameter.dtype; });
        if (at == buffers.end()) at = buffers.insert(at, {parameter.dtype, {}});
        at->second.push_back(std::move(parameter));
      }
      for (auto& [dtype, parameters] : buffers) {
        if (!fit_buffer(rank, key, dtype, std::move(parameters), experts)) return false;
        ++key.buffer;
      }
    }
    return true;
  }

  bool fit_buffer(const RankCoordinates& rank, const BufferKey& key, DType dtype,
                  std::vector<LocalParameter> parameters, bool experts) {
    const StoredBuffer* stored = store_.find(key);
    if (!stored) return refuse(key, "is not in the checkpoint");
    if (stored->parameter_dtype != dtype) {
      return refuse(key, fmt::format("is not one of {} parameters", torch_name(dtype)));
    }
    Fit fit{stored, std::move(parameters), {}};
    std::vector<FlatParameter> sizes;
    for (const LocalParameter& parameter : fit.parameters) {
      sizes.push_back({parameter.elements, parameter.shared_embedding});
    }
    const int64_t ranks = experts ? run_.expert_data_parallel() : run_.dense_data_parallel();
    FlatBufferRules rules{std::max<int64_t>(ranks, 1), bucket_elements(rank), run_.pad_buckets};
    fit.flat = lay_out_flat_buffer(sizes, rules);
    if (fit.flat.buckets.size() != stored->buckets.size()) {
      return refuse(key, fmt::format("has {} buckets, {} expected", stored->buckets.size(),
                                     fit.flat.buckets.size()));
    }
    std::vector<std::vector<int64_t>> boundaries = parameter_boundaries(fit.flat);
    for (size_t i = 0; i < stored->buckets.size(); ++i) {
      if (!fit_bucket(key, i, stored->buckets[i], fit.flat.buckets[i], boundaries[i], ranks)) {
        return false;
      }
    }
    fits_.push_back(std::move(fit));
    return true;
  }

  std::optional<int64_t> bucket_elements(const RankCoordinates& rank) const {
    int64_t elements = 0;  // of the rank, where it matters
    if (run_.bucket_count && rank.stage == 0 && rank.chunk == 0) {
      for (int64_t chunk = 0; chunk < layout_.pipeline().chunks(); ++chunk) {
        RankCoordinates other = rank;
        other.chunk = chunk;
        for (const auto& parameter : layout_.parameters(other, candidate_.modules)) {
          if (parameter.trainable) elements = checked_add(elements, parameter.elements, "model");
        }
      }
    }
    return run_.bucket_limit(rank.stage, rank.chunk, elements);
  }

  static std::vector<std::vector<int64_t>> parameter_boundaries(const FlatBuffer& flat) {
    std::vector<std::vector<int64_t>> boundaries(flat.buckets.size());
    for (const FlatPlace& place : flat.places) {
      boundaries[place.bucket].push_back(place.begin);
      boundaries[place.bucket].push_back(place.end);
    }
    return boundaries;
  }

  bool fit_bucket(const BufferKey& key, size_t number, const StoredBucket& stored,
                  const FlatBucket& expected, std::vector<int64_t>& boundaries, int64_t ranks) {
    for (const BucketState& state : stored.states) {
      if (state.elements() != expected.unpadded) {
        return refuse(key, fmt::format("holds {} elements of {} in bucket {}, {} expected",
                                       state.elements(), state.name, number, expected.unpadded));
      }
    }
    const auto chunks = static_cast<int64_t>(stored.states.front().chunks.size());
    if (ranks > 0 && expected.unpadded > 0) {
      if (stored.padded && *stored.padded != expected.elements) {
        return refuse(key, fmt::format("has {} elements with padding in bucket {}, {} expected",
                                       *stored.padded, number, expected.elements));
      }
      const int64_t part = expected.elements / ranks;
      if ((expected.unpadded - 1) / part >= chunks) {
        return refuse(key, fmt::format("is not cut for {} data-parallel ranks", ranks));
      }
      for (int64_t cut = part; cut < expected.unpadded; cut += part) boundaries.push_back(cut);
    }
    std::sort(boundaries.begin(), boundaries.end());
    boundaries.erase(std::unique(boundaries.begin(), boundaries.end()), boundaries.end());
    for (const BucketState& state : stored.states) {
      if (!same_boundaries(key, number, state, boundaries, ranks)) return false;
    }
    return true;
  }

  bool same_boundaries(const BufferKey& key, size_t number, const BucketState& state,
                       const std::vector<int64_t>& expected, int64_t ranks) {
    size_t i = 0;
    while (i < expected.size() && expected[i] == 0) ++i;
    for (const Chunk* chunk : state.chunks) {
      const int64_t end = chunk->box.offset[0] + chunk->box.size[0];
      if (end == state.elements()) break;
      if (i < expected.size() && expected[i] == end) {
        ++i;
      } else if (ranks > 0 || (i < expected.size() && expected[i] < end)) {
        return refuse(key, fmt::format("has a chunk boundary at element {} of {} in bucket {}, {} "
                                       "expected",
                                       end, state.name, number,
                                       i < expected.size() ? expected[i] : state.elements()));
      }
    }
    if (i < expected.size() && expected[i] != state.elements()) {
      return refuse(key, fmt::format("has no chunk boundary at element {} of {} in bucket {}",
                                     expected[i], state.name, number));
    }
    return true;
  }

  bool refuse(const BufferKey& key, const std::string& reason) {
    problem_ = to_string(key) + " " + reason;
    return false;
  }

  const ModelLayout& layout_;
  const RunArguments& run_;
  const BucketStore& store_;
  const Candidate& candidate_;
  std::vector<Fit> fits_;
  std::string problem_;
};

std::vector<Fit> only_fit(const ModelLayout& layout, const BucketStore& store) {
  const RunArguments& run = layout.run();
  const int64_t groups = checked_multiply(run.tensor, run.pipeline, "ranks of the run");
  if (groups > static_cast<int64_t>(store.size())) {
    fail(ErrorKind::mismatch,
         "the run's arguments say {} tensor x {} pipeline ranks, the "
         "checkpoint holds {} flat buffers",
         run.tensor, run.pipeline, store.size());
  }
  std::vector<Fit> found;
  std::string found_words, problems;
  for (const Candidate& candidate : candidates(layout, store)) {
    Fitter fitter(layout, store, candidate);
    auto fits = fitter.fit();
    if (!fits) {
      problems +=
          fmt::format("{}{}: {}", problems.empty() ? "" : "; ", candidate.words, fitter.problem());
    } else if (found.empty()) {
      found = std::move(*fits);
      found_words = candidate.words;
    } else if (!same(found, *fits)) {
      fail(ErrorKind::unsupported,
           "two orders of the parameters fit the flat buffers alike ({}, "
           "and {}), so that which state belongs to which parameter cannot be told",
           found_words, candidate.words);
    }
  }
  if (found.empty()) {
    fail(ErrorKind::unsupported,
         "no order in which Megatron-LM registers parameters fits the flat "
         "buffers ({})",
         problems);
  }
  return found;
}

// The chunks of one bucket's state, given to the parameters they are of.
void give_out(const BucketState& state, const Fit& fit, const std::vector<size_t>& order,
              OptimizerEntries& entries) {
  size_t next = 0;
  for (const Chunk* chunk : state.chunks) {
    const int64_t begin = chunk->box.offset[0], end = begin + chunk->box.size[0];
    while (next < order.size() && fit.flat.places[order[next]].end <= begin) ++next;
    if (next == order.size()) return;
    const FlatPlace& place = fit.flat.places[order[next]];
    if (end <= place.begin) continue;  // a gap
    const LocalParameter& parameter = fit.parameters[order[next]];
    if (!parameter.first_copy) continue;
    entries.add(state.name, state.entry->dtype, parameter, begin - place.begin, end - begin,
                chunk->extent);
  }
}

}  // namespace

bool is_bucket_entry(std::string_view name) {
  return name.find("optimizer.distributed.dp_group_idx_") != std::string_view::npos &&
         name.find(".bucket_idx_") != std::string_view::npos;
}

std::vector<Entry> decode_buckets(const Catalog& catalog, const ModelLayout& layout) {
  const BucketStore store(catalog);
  OptimizerEntries entries(layout.tensors());
  for (const Fit& fit : only_fit(layout, store)) {
    std::vector<std::vector<size_t>> order(fit.flat.buckets.size());
    for (size_t i = fit.parameters.size(); i-- > 0;) {
      order[fit.flat.places[i].bucket].push_back(i);
    }
    for (size_t i = 0; i < fit.stored->buckets.size(); ++i) {
      for (const BucketState& state : fit.stored->buckets[i].states) {
        give_out(state, fit, order[i], entries);
      }
    }
  }
  return entries.take();
}

}  // namespace ferry
