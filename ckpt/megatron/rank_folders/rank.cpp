#include "ckpt/megatron/rank_folders/rank.h"

#include <fmt/format.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/torch_file.h"

namespace ferry {
namespace {

std::string file_of(const RankFolder& folder) { return join(folder.name, kLegacyModelFile); }

// Whether a process of that number in the run can have had the folder's place.
bool can_be(int64_t rank, const RankFolder& folder, const RunArguments& run) {
  const RankCoordinates& place = folder.rank;
  if (rank < 0 || rank % run.tensor != place.tensor) return false;
  // Context ranks come between tensor and expert ranks in releases without expert-tensor ranks.
  if (run.context == 1 && rank / run.expert_tensor % run.expert != place.expert) return false;
  if (run.world_size < run.pipeline) return true;  // not known
  return rank / run.stage_stride() % run.pipeline == place.stage;
}

// Tools that convert on one process do not count ranks.
bool counts_ranks(std::span<const RankOrigin> origins) {
  return std::any_of(origins.begin(), origins.end(), [](const RankOrigin& origin) {
    return origin.saves_rng || origin.rank.value_or(0) != 0;
  });
}

std::string different_save(const RankFolder& folder, const RankOrigin& origin,
                           const RankFolder& first, const RankOrigin& of_first) {
  for (size_t i = 0; i < kSameInAllRanks.size(); ++i) {
    const auto &found = origin.of_run[i], &expected = of_first.of_run[i];
    if (found == expected || !found || !expected) continue;
    return fmt::format("{} is from another save: it says {} {}, {} says {}", file_of(folder),
                       kSameInAllRanks[i], *found, file_of(first), *expected);
  }
  return {};
}

}  // namespace

RankOrigin origin_of(const Value& root) {
  const Value args = root.get("args");
  RankOrigin origin;
  origin.rank = args.get("rank").integer();
  origin.of_run[0] = root.get(kSameInAllRanks[0]).integer();
  for (size_t i = 1; i < kSameInAllRanks.size(); ++i) {
    origin.of_run[i] = args.get(kSameInAllRanks[i]).integer();
  }
  origin.saves_rng = !root.get("rng_state").is_none();
  origin.has_flat_optimizer = !root.get("optimizer").is_none() &&
                              args.get("use_distributed_optimizer").boolean().value_or(false);
  return origin;
}

std::vector<std::string> contradictions(std::span<const RankFolder> folders,
                                        std::span<const RankOrigin> origins,
                                        const RunArguments& run) {
  std::vector<std::string> problems;
  const bool by_rank = counts_ranks(origins);
  for (size_t i = 0; i < folders.size(); ++i) {
    const RankFolder& folder = folders[i];
    std::string problem = different_save(folder, origins[i], folders[0], origins[0]);
    if (problem.empty() && by_rank && origins[i].rank && !can_be(*origins[i].rank, folder, run)) {
      problem = fmt::format(
          "{} was written by rank {} of the run, and the folder is rank {}'s: files of ranks were "
          "swapped or overwritten",
          file_of(folder), *origins[i].rank, folder.first_rank);
    }
    if (!problem.empty()) problems.push_back(std::move(problem));
  }
  return problems;
}

namespace {

constexpr int kMostNesting = 16;  // of dicts in the state dict of old releases

class File {
 public:
  File(Catalog& catalog, const std::string& path) {
    const auto file = catalog.file_system->open(path);
    number_ = catalog.add_file(path, file->size());
    archive_ = read_torch_file(*file, &pickle_bytes_);
  }

  Value root() const { return archive_.pickle->root(); }
  const std::shared_ptr<const Document>& document() const { return archive_.pickle; }
  uint64_t pickle_bytes() const { return pickle_bytes_; }

  RankTensor tensor(std::string name, const StoredTensor& stored) const {
    if (stored.math.any()) {
      fail(ErrorKind::unsupported,
           "tensor {}: a view that PyTorch has yet to conjugate or negate, which no run of "
           "Megatron-LM saves; save what resolve_conj().resolve_neg() gives",
           name);
    }
    Chunk chunk = stored_chunk(archive_, stored, number_, name);
    return {std::move(name), stored.dtype, stored.shape, std::move(chunk)};
  }

 private:
  uint32_t number_ = 0;
  uint64_t pickle_bytes_ = 0;
  TorchArchive archive_;
};

void flatten(const File& file, const Value& value, const std::string& name, int depth,
             std::vector<RankTensor>& tensors) {
  if (const StoredTensor* stored = value.tensor()) {
    if (!name.ends_with("_extra_state")) tensors.push_back(file.tensor(name, *stored));
    return;
  }
  if (value.kind() != ValueKind::dict) return;  // extra state: None, bytes
  if (depth > kMostNesting) fail(ErrorKind::corrupt, "{}: nested too deeply", name.substr(0, 200));
  for (size_t i = 0; i < value.pair_count(); ++i) {
    const std::string key = key_text(value.pair_key(i));
    flatten(file, value.pair_value(i), name.empty() ? key : name + "." + key, depth + 1, tensors);
  }
}

NamedStates read_states(const File& file, const Value& states, const std::string& name) {
  NamedStates found;
  for (size_t i = 0; i < states.pair_count(); ++i) {
    const StoredTensor* stored = states.pair_value(i).tensor();
    if (!stored || stored->shape.empty()) continue;  // step
    std::string state = key_text(states.pair_key(i));
    found.emplace_back(state, file.tensor(name + "." + state, *stored));
  }
  return found;
}

Value inner_of(const Value& optimizer) {
  return optimizer.has("optimizer") ? optimizer.get("optimizer") : optimizer;
}

bool has_states(const Value& optimizer) {
  const Value states = inner_of(optimizer).get("state");
  return states.kind() == ValueKind::dict && states.pair_count() > 0;
}

PlainOptimizer read_plain(const File& file, const Value& optimizer) {
  const Value inner = inner_of(optimizer);
  const Value states = inner.get("state"), groups = inner.get("param_groups");
  std::vector<std::pair<int64_t, Value>> by_id;
  for (size_t i = 0; i < states.pair_count(); ++i) {
    if (const auto id = states.pair_key(i).integer()) by_id.emplace_back(*id, states.pair_value(i));
  }
  std::sort(by_id.begin(), by_id.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const Value masters = optimizer.get("fp32_from_fp16_params");
  PlainOptimizer plain;
  plain.document = file.document();
  for (size_t g = 0; g < groups.size(); ++g) {
    PlainOptimizer::Group& group = plain.groups.emplace_back();
    group.settings = groups[g];
    const Value ids = groups[g].get("params");
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t id = ids[i].integer().value_or(-1);
      const auto at = std::lower_bound(by_id.begin(), by_id.end(), id,
                                       [](const auto& a, int64_t b) { return a.first < b; });
      if (at == by_id.end() || at->first != id) {
        fail(ErrorKind::mismatch, "the optimizer has no state of its parameter {}", id);
      }
      group.parameters.push_back(
          {read_states(file, at->second, fmt::format("optimizer state {}", id))});
    }
    for (size_t i = 0; i < masters[g].size(); ++i) {
      const StoredTensor* stored = masters[g][i].tensor();
      if (stored) group.masters.push_back(file.tensor("fp32_from_fp16_params", *stored));
    }
  }
  return plain;
}

std::vector<PlainOptimizer> read_plain_optimizers(const File& file, const Value& optimizer) {
  std::vector<PlainOptimizer> all;
  const auto add = [&](const Value& one) {
    if (has_states(one)) all.push_back(read_plain(file, one));
  };
  if (optimizer.kind() == ValueKind::list) {
    for (size_t i = 0; i < optimizer.size(); ++i) add(optimizer[i]);
  } else {
    add(optimizer);
  }
  return all;
}

std::optional<FlatOptimizer> read_flat(const File& file, const Value& optimizer) {
  if (optimizer.is_none()) return std::nullopt;
  if (!optimizer.get("buckets_coalesced").boolean().value_or(false)) {
    fail(ErrorKind::unsupported,
         "distrib_optim.pt is of a release before March 2024; load and save "
         "it with --ckpt-convert-update-legacy-dist-opt-format to keep the optimizer's state");
  }
  FlatOptimizer flat;
  for (size_t i = 0; i < optimizer.pair_count(); ++i) {
    const auto number = optimizer.pair_key(i).integer();
    if (!number) continue;
    const Value dtypes = optimizer.pair_value(i);
    if (*number != static_cast<int64_t>(flat.buffers.size()) || dtypes.pair_count() != 1) {
      fail(ErrorKind::unsupported, "buffer {} of distrib_optim.pt is not one buffer of one dtype",
           *number);
    }
    flat.buffers.push_back(
        {read_states(file, dtypes.pair_value(0), fmt::format("buffer {}", *number))});
  }
  return flat;
}

std::vector<std::optional<FlatOptimizer>> read_flat_optimizers(const File& file) {
  const Value root = file.root();
  std::vector<std::optional<FlatOptimizer>> all;
  if (root.kind() == ValueKind::list) {
    for (size_t i = 0; i < root.size(); ++i) all.push_back(read_flat(file, root[i]));
  } else {
    all.push_back(read_flat(file, root));
  }
  return all;
}

bool is_refusal(const Error& error) {
  return error.kind() == ErrorKind::unsupported || error.kind() == ErrorKind::mismatch;
}

}  // namespace

std::vector<PlainOptimizer> read_layer_wise_file(Catalog& catalog, const std::string& path) {
  const File file(catalog, path);
  const Value root = file.root();
  std::vector<PlainOptimizer> all;
  const auto add = [&](const Value& one) {
    if (inner_of(one).get("param_groups").kind() != ValueKind::list) {
      fail(ErrorKind::mismatch, "{}: optimizer {} has no param_groups", path, all.size());
    }
    all.push_back(read_plain(file, one));
  };
  if (root.kind() == ValueKind::list) {
    for (size_t i = 0; i < root.size(); ++i) add(root[i]);
  } else {
    add(root);
  }
  return all;
}

LegacyRank read_legacy_rank(Catalog& catalog, const std::string& folder,
                            std::shared_ptr<const Document>* document) {
  const File file(catalog, join(folder, kLegacyModelFile));
  const Value root = file.root();
  LegacyRank rank;
  rank.pickle_bytes = file.pickle_bytes();
  rank.origin = origin_of(root);
  for (size_t chunk = 0;; ++chunk) {
    Value model = root.get(fmt::format("model{}", chunk));
    if (!model && chunk == 0) model = root.get("model");
    if (!model) break;
    flatten(file, model, "", 0, rank.chunks.emplace_back());
  }
  try {
    rank.plain = read_plain_optimizers(file, root.get("optimizer"));
    const std::string flat = join(folder, kLegacyOptimizerFile);
    if (catalog.file_system->status(flat).kind == PathKind::file) {
      rank.flat = read_flat_optimizers(File(catalog, flat));
    } else {
      rank.lacks_optimizer_file = rank.origin.has_flat_optimizer;
    }
  } catch (const Error& error) {
    if (!is_refusal(error)) throw;
    rank.optimizer_problem = error.what();
  }
  if (document) *document = file.document();
  return rank;
}

}  // namespace ferry
