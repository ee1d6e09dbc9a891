#include "ckpt/megatron/optimizer/bucket_optimizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/buckets/bucket_store.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {
namespace {

// A stored buffer with the parameters that it holds, by one candidate.
struct Fit {
  const StoredBuffer* stored = nullptr;
  ModelBuffer buffer;
};

bool same(const std::vector<Fit>& a, const std::vector<Fit>& b) {
  const auto same_parameter = [](const LocalParameter& x, const LocalParameter& y) {
    return x.shards == y.shards;
  };
  return std::ranges::equal(a, b, [&](const Fit& x, const Fit& y) {
    return x.stored == y.stored &&
           std::ranges::equal(x.buffer.parameters, y.buffer.parameters, same_parameter);
  });
}

bool are_one_by_one(const ModuleChoice& modules) {
  return modules.experts == ModuleChoice::Experts::sequential;
}

std::string words_of(const ModuleChoice& modules, bool has_experts) {
  std::string words = modules.norms_in_linears ? "norms inside linear layers" : "norms as modules";
  if (has_experts) {
    words += are_one_by_one(modules) ? ", experts one by one" : ", grouped experts";
  }
  if (modules.split_latent_down) words += ", split MLA down-projections";
  return words;
}

// Tries to fit one candidate to all stored buffers.
class Fitter {
 public:
  Fitter(const ModelLayout& layout, const BucketStore& store, const BufferChoice& choice)
      : layout_(layout), run_(layout.run()), store_(store), choice_(choice) {}

  /// Nothing when it does not fit; problem() then says where.
  std::optional<std::vector<Fit>> fit() {
    for (int64_t stage = 0; stage < run_.pipeline; ++stage) {
      const std::vector<RankOptimizer> chain = rank_optimizers(
          run_, layout_.pipeline().chunks(), choice_.separate_experts && chains_experts(stage));
      for (const OptimizerGroup& group : optimizer_groups(run_, chain, choice_.before)) {
        if (!fit_group(group, stage)) return std::nullopt;
      }
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
  // Stages without experts have an optimizer for them, too, since July 2025.
  bool chains_experts(int64_t stage) const {
    if (store_.find({0, RankGroups(run_, false).index(stage, 0), 0})) return true;
    for (int64_t chunk = 0; chunk < layout_.pipeline().chunks(); ++chunk) {
      const auto parameters = layout_.parameters({0, 0, 0, stage, chunk}, choice_.modules);
      if (std::ranges::any_of(parameters, &LocalParameter::routed_expert)) return true;
    }
    return false;
  }

  bool fit_group(const OptimizerGroup& group, int64_t stage) {
    const RankCoordinates rank = group.ranks.rank(stage, group.number);
    BufferKey key{group.chained, group.ranks.index(stage, group.number), 0};
    for (ModelBuffer& buffer : optimizer_buffers(layout_, choice_, rank, group.optimizer)) {
      if (!fit_buffer(key, std::move(buffer), group.ranks.data_ranks())) return false;
      ++key.buffer;
    }
    return true;
  }

  bool fit_buffer(const BufferKey& key, ModelBuffer buffer, int64_t ranks) {
    const StoredBuffer* stored = store_.find(key);
    if (!stored) return refuse(key, "is not in the checkpoint");
    if (stored->parameter_dtype != buffer.dtype) {
      return refuse(key, fmt::format("is not one of {} parameters", torch_name(buffer.dtype)));
    }
    if (buffer.flat.buckets.size() != stored->buckets.size()) {
      return refuse(key, fmt::format("has {} buckets, {} expected", stored->buckets.size(),
                                     buffer.flat.buckets.size()));
    }
    std::vector<std::vector<int64_t>> bounds = parameter_bounds(buffer.flat);
    for (size_t i = 0; i < stored->buckets.size(); ++i) {
      if (!fit_bucket(key, i, stored->buckets[i], buffer.flat.buckets[i], bounds[i], ranks)) {
        return false;
      }
    }
    fits_.push_back({stored, std::move(buffer)});
    return true;
  }

  bool fit_bucket(const BufferKey& key, size_t number, const StoredBucket& stored,
                  const FlatBucket& expected, std::vector<int64_t>& bounds, int64_t ranks) {
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
      if ((expected.unpadded - 1) / (expected.elements / ranks) >= chunks) {
        return refuse(key, fmt::format("is not cut for {} data-parallel ranks", ranks));
      }
    }
    add_rank_bounds(expected, std::max<int64_t>(ranks, 1), bounds);
    for (const BucketState& state : stored.states) {
      if (!same_bounds(key, number, state, bounds, ranks)) return false;
    }
    return true;
  }

  bool same_bounds(const BufferKey& key, size_t number, const BucketState& state,
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
  const BufferChoice& choice_;
  std::vector<Fit> fits_;
  std::string problem_;
};

struct OnlyFit {
  std::vector<Fit> fits;
  BufferCandidate candidate;
};

OnlyFit only_fit(const ModelLayout& layout, const BucketStore& store,
                 const std::vector<bool>& elsewhere) {
  const RunArguments& run = layout.run();
  if (run.hybrid && !run.other_modules.empty()) {
    fail(ErrorKind::unsupported,
         "the run's optimizer state is flat, and its release may register the parameters of Mamba "
         "mixers in another order than today's: it is not known which; save it per parameter with "
         "the program that wrote it, or convert the model alone ({})",
         option("optimizer", "none"));
  }
  const int64_t groups = checked_multiply(run.tensor, run.pipeline, "ranks of the run");
  if (groups > static_cast<int64_t>(store.size())) {
    fail(ErrorKind::mismatch,
         "the run's arguments say {} tensor x {} pipeline ranks, the "
         "checkpoint holds {} flat buffers",
         run.tensor, run.pipeline, store.size());
  }
  std::vector<OnlyFit> found;  // that differ
  std::string problems;
  for (BufferCandidate& candidate : buffer_candidates(layout, store.has_optimizer(1), elsewhere)) {
    Fitter fitter(layout, store, candidate.choice);
    auto fits = fitter.fit();
    if (!fits) {
      problems +=
          fmt::format("{}{}: {}", problems.empty() ? "" : "; ", candidate.words, fitter.problem());
    } else if (std::ranges::none_of(
                   found, [&](const OnlyFit& other) { return same(other.fits, *fits); })) {
      found.push_back({std::move(*fits), std::move(candidate)});
    }
  }
  if (found.empty()) {
    fail(ErrorKind::unsupported,
         "no order in which Megatron-LM registers parameters fits the flat "
         "buffers ({})",
         problems);
  }
  // Without a gate both projections of an expert may have one size, so that lengths do not
  // distinguish grouped experts from others; arguments do.
  const bool expected = are_one_by_one(default_modules(run));
  const auto is_expected = [&](const OnlyFit& fit) {
    return are_one_by_one(fit.candidate.choice.modules) == expected;
  };
  if (found.size() > 1 && std::ranges::any_of(found, is_expected)) {
    std::erase_if(found, [&](const OnlyFit& fit) { return !is_expected(fit); });
  }
  if (found.size() > 1) {
    fail(ErrorKind::unsupported,
         "two orders of the parameters fit the flat buffers alike ({}, "
         "and {}), so that it is unknown which state belongs to which parameter",
         found[0].candidate.words, found[1].candidate.words);
  }
  return std::move(found.front());
}

// The chunks of one bucket's state, given to the parameters they are of.
void give_out(const BucketState& state, const ModelBuffer& buffer, const std::vector<size_t>& order,
              OptimizerEntries& entries) {
  size_t next = 0;
  for (const Chunk* chunk : state.chunks) {
    const int64_t begin = chunk->box.offset[0], end = begin + chunk->box.size[0];
    while (next < order.size() && buffer.flat.places[order[next]].end <= begin) ++next;
    if (next == order.size()) return;
    const FlatPlace& place = buffer.flat.places[order[next]];
    if (end <= place.begin) continue;  // a gap
    const LocalParameter& parameter = buffer.parameters[order[next]];
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

// What Megatron-LM would build today comes first: it is taken where others fit as well because they
// differ in nothing here.
std::vector<BufferCandidate> buffer_candidates(const ModelLayout& layout, bool several_optimizers,
                                               const std::vector<bool>& elsewhere) {
  using Experts = ModuleChoice::Experts;
  const RunArguments& run = layout.run();
  const ModuleChoice usual = default_modules(run);
  std::vector<Experts> experts = {usual.experts};
  if (layout.has_experts()) experts = {Experts::sequential, Experts::grouped};
  if (layout.has_expert_biases()) experts.push_back(Experts::grouped_apart);
  std::vector<bool> norms = {usual.norms_in_linears}, latent = {usual.split_latent_down};
  if (layout.has_attention_norms()) norms = {false, true};
  if (layout.has_latent_down() && run.tensor > 1) latent = {false, true};
  std::vector<bool> separate = {run.expert > 1};
  if (run.expert == 1 && experts_are_separate(run) && several_optimizers) {
    separate = {true, false};  // which of the two changed in 2026
  }
  std::vector<BufferCandidate> all;
  for (const bool norm : norms) {
    for (const bool split : latent) {
      for (const Experts order : experts) {
        const ModuleChoice modules{norm, split, order};
        for (const bool apart : separate) {
          const int64_t before = elsewhere.empty() ? 0 : 1;
          all.push_back(
              {{modules, apart, before, elsewhere}, words_of(modules, layout.has_experts())});
        }
      }
    }
  }
  std::stable_partition(all.begin(), all.end(),
                        [&](const BufferCandidate& one) { return one.choice.modules == usual; });
  return all;
}

DecodedBuckets decode_buckets(const Catalog& catalog, const ModelLayout& layout,
                              const std::vector<bool>& elsewhere) {
  const BucketStore store(catalog);
  OptimizerEntries entries(layout.tensors());
  const OnlyFit found = only_fit(layout, store, elsewhere);
  for (const Fit& fit : found.fits) {
    const std::vector<std::vector<size_t>> order = parameters_of_buckets(fit.buffer.flat);
    for (size_t i = 0; i < fit.stored->buckets.size(); ++i) {
      for (const BucketState& state : fit.stored->buckets[i].states) {
        give_out(state, fit.buffer, order[i], entries);
      }
    }
  }
  return {entries.take(), found.candidate.choice.modules};
}

}  // namespace ferry
