#include "ckpt/megatron/torch_dist/torch_dist_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/core/recipe_cutter.h"
#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/megatron/model/pipeline_checks.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/optimizer/buckets/bucket_writer.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/optimizer/optimizer_form.h"
#include "ckpt/megatron/state/edit.h"
#include "ckpt/megatron/torch_dist/common_state.h"
#include "ckpt/megatron/torch_dist/placement.h"

namespace ferry {
namespace {

constexpr const char* kCommonFile = "common.pt";
constexpr std::string_view kParamLayout = "use_layer_wise_param_layout";
constexpr std::string_view kBackend =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1})";
constexpr std::string_view kBackendWithCommon =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, )"
    R"("common_backend": "torch", "common_backend_version": 1})";

// The archive of an object as Megatron-LM shards it: a list of one.
std::string archive_of_one(const Value& value) {
  Draft draft;
  const Value list = draft.list({draft.copy(value)});
  return write_torch_archive(std::move(draft).finish(list).value);
}

class TorchDistWriter {
 public:
  TorchDistWriter(RunState state, const TorchDistOptions& options)
      : state_(std::move(state)), options_(options), run_(state_.args.run) {}

  PlannedOutput plan() {
    check_query_groups();
    resolve_optimizer();
    const LoadedValue common = common_state(state_, optimizer_, options_.release);
    add_objects(common);
    std::vector<PlacedTensor> buckets = place_flat();
    std::vector<PlacedTensor> placed = place_state(state_);
    std::move(buckets.begin(), buckets.end(), std::back_inserter(placed));
    PlannedOutput output = lay_out_dcp(state_.source, finish(std::move(placed)),
                                       {options_.files_per_rank, {}, options_.zstd});
    output.plan.dropped = std::move(state_.dropped);
    for (auto& file : small_files(common)) {
      const bool is_common = file.first == kCommonFile;  // before .metadata
      output.small_files.insert(is_common ? output.small_files.begin() : output.small_files.end(),
                                std::move(file));
    }
    output.warnings = std::move(state_.warnings);
    return output;
  }

  PlacedState place_rank(const HeldShards& held, int64_t rank) {
    rank_ = rank;
    check_query_groups();
    resolve_optimizer();
    if (rank == 0) add_objects(common_state(state_, optimizer_, options_.release));
    std::vector<PlacedTensor> placed = place_flat();
    check_all_used(placed);
    for (StateTensor& tensor : state_.tensors) {
      // A master weight that was made here is placed like the tensor that it was made of.
      auto found = held.find(tensor.name);
      if (found == held.end()) found = held.find(model_name(tensor.name));
      if (found != held.end()) placed.push_back({std::move(tensor), found->second});
    }
    return finish(std::move(placed));
  }

  std::vector<std::pair<std::string, std::string>> small_files() {
    rank_ = 0;
    resolve_optimizer();
    return small_files(common_state(state_, optimizer_, options_.release));
  }

 private:
  bool common_inside() const { return options_.release >= kCommonStateInside; }

  void check_query_groups() const {
    const int64_t groups = run_.query_groups;
    const auto fits = [&](int64_t ranks) { return groups % ranks == 0; };
    if (groups < 1 || fits(run_.tensor) || options_.release >= kSharedQueryGroups) {
      return;
    }
    fail(ErrorKind::invalid,
         "{} query groups cannot be split over {} tensor-parallel ranks in Megatron Core {}, where "
         "no two share one: for {}, {}; or write for {} or later",
         groups, run_.tensor, to_string(options_.release), option("tensor"),
         those_that_fit(1, groups, fits), to_string(kSharedQueryGroups));
  }

  void resolve_optimizer() {
    // What one rank holds does not show whether there is an optimizer.
    const bool has_one = rank_ ? !state_.param_groups.empty() : has_optimizer(state_);
    optimizer_ = has_one ? options_.optimizer : ShardedOptimizer::none;
    if (has_one && options_.optimizer != ShardedOptimizer::none) resolve_matrices();
    switch (optimizer_) {
      case ShardedOptimizer::none:
        drop_optimizer(state_);
        return;
      case ShardedOptimizer::plain:
        drop_doubled_masters(state_);
        break;
      case ShardedOptimizer::fully_reshardable:
        add_masters(state_, distributed_keys());
        if (options_.release < kFullyReshardable) refuse_release();
        break;
      case ShardedOptimizer::dp_reshardable:  // finds its masters itself
        if (options_.release < kFullyReshardable) refuse_release();
        break;
    }
    if (state_.param_groups.empty()) {
      fail(
          ErrorKind::unsupported,
          "the optimizer's state has no parameter groups (learning rate, step, ...), without which "
          "Megatron-LM does not load it; leave it out with {}",
          option("optimizer", "none"));
    }
  }

  // What of the state a layer-wise optimizer has, and in which form Megatron-LM builds it.
  void resolve_matrices() {
    matrix_ = run_.matrices;
    if (!matrix_.layer_wise) return;
    if (!matrix_.split && !state_.args.value.has(kParamLayout) && options_.release >= kNewestCore) {
      set_argument(kParamLayout, true);  // the newest release's own default
      matrix_.split = true;
    }
    if (!matrix_.split && options_.release >= kNewestCore) {
      state_.warnings.push_back(
          fmt::format("the layer-wise optimizer has all parameters, as in the source run, not {}'s "
                      "alone: Megatron-LM loads it with --no-use-layer-wise-param-layout",
                      matrix_.name));
    }
    if (state_.param_groups.size() < 2) {
      fail(
          ErrorKind::mismatch,
          "the run has {} for matrices and another optimizer for all else, and the state holds the "
          "parameter groups of {}; leave it out with {}",
          matrix_.name, state_.param_groups.size(), option("optimizer", "none"));
    }
    std::vector<ModelTensor> tensors;
    for (const StateTensor& tensor : state_.tensors) {
      if (tensor.role == Role::model) tensors.push_back({tensor.name, tensor.shape, tensor.dtype});
    }
    const ModelLayout layout(std::move(tensors), run_);
    const auto found = matrix_tensors(layout, state_.modules.value_or(default_modules(run_)));
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i]) matrices_.insert(layout.tensors()[i].name);
    }
    if (matrix_.split && layout.has_expert_biases() && experts_are_separate(run_)) {
      fail(ErrorKind::unsupported,
           "Megatron-LM has no optimizer for the biases of routed experts next to {} where it is "
           "layer-wise, unless the source run had --no-use-layer-wise-param-layout; {} "
           "leaves the optimizer's state out",
           matrix_.name, option("optimizer", "none"));
    }
    drop_doubled_masters(state_, [this](std::string_view key) { return is_plain(key); });
  }

  void set_argument(std::string_view name, bool value) {
    Draft draft;
    const Value args = draft.copy(state_.args.value);
    draft.put(args, name, draft.boolean(value));
    state_.args = std::move(draft).finish(args);
  }

  // Whether a parameter's state is not a distributed optimizer's.
  bool is_plain(std::string_view key) const {
    if (optimizer_ == ShardedOptimizer::plain) return true;
    return matrix_.layer_wise && (!matrix_.split || matrices_.contains(std::string(key)));
  }
  KeyPredicate distributed_keys() const {
    if (!matrix_.layer_wise) return nullptr;
    return [this](std::string_view key) { return !is_plain(key); };
  }

  [[noreturn]] void refuse_release() const {
    fail(ErrorKind::unsupported,
         "Megatron Core {} knows no optimizer state that any other release writes; write for {} or "
         "later, or leave it out with {}",
         to_string(options_.release), to_string(kFullyReshardable), option("optimizer", "none"));
  }

  PlacedState finish(std::vector<PlacedTensor> placed) {
    if (optimizer_ == ShardedOptimizer::plain || matrix_.layer_wise) spell_plain(placed);
    return {std::move(placed), std::move(objects_)};
  }

  // The optimizer's state as flat buckets, instead of its tensors.
  std::vector<PlacedTensor> place_flat() {
    if (optimizer_ != ShardedOptimizer::dp_reshardable) return {};
    if (matrix_.layer_wise && !matrix_.split) return {};
    PlacedBuckets buckets =
        rank_ ? place_buckets_of_rank(state_, run_, *rank_) : place_buckets(state_, run_);
    std::erase_if(state_.tensors, [&](const StateTensor& tensor) {
      const auto name = parse_optimizer_entry_name(tensor.name);
      return tensor.role == Role::optimizer && !(name && is_plain(name->key));
    });
    std::move(buckets.objects.begin(), buckets.objects.end(), std::back_inserter(objects_));
    state_.dropped.insert(state_.dropped.end(), buckets.repeated.begin(), buckets.repeated.end());
    return std::move(buckets.tensors);
  }

  // A rank's own optimizer state, of which nothing else would be written.
  void check_all_used(const std::vector<PlacedTensor>& buckets) const {
    if (optimizer_ != ShardedOptimizer::dp_reshardable) return;
    std::vector<int64_t> used(state_.source->entries.size());
    for (const PlacedTensor& bucket : buckets) {
      const RecipeCutter cutter(bucket.tensor.recipe, bucket.tensor.shape);
      for (const Shard& shard : bucket.shards) {
        for (const Move& move : cutter.moves(shard.box)) {
          used[bucket.tensor.recipe.inputs[move.input]] += move.elements();
        }
      }
    }
    for (size_t i = 0; i < used.size(); ++i) {
      const Entry& entry = state_.source->entries[i];
      int64_t held = 0;
      for (const Chunk& chunk : entry.chunks) held += chunk.elements(entry.name);
      if (entry.role != Role::optimizer || held == used[i]) continue;
      fail(
          ErrorKind::invalid,
          "tensor {}: rank {} gives {} elements, and its part of the flat buckets has room for {}: "
          "are the arguments those of this run?",
          entry.name, *rank_, held, used[i]);
    }
  }

  // Without a distributed optimizer the fp32 copy has another name, and next to flat buckets
  // optimizers of a chain put their number before all names.
  void spell_plain(std::vector<PlacedTensor>& placed) const {
    const bool numbered = matrix_.layer_wise && optimizer_ == ShardedOptimizer::dp_reshardable;
    for (PlacedTensor& one : placed) {
      std::string& name = one.tensor.name;
      const auto parts = parse_optimizer_entry_name(name);
      if (one.tensor.role != Role::optimizer || !parts || !is_plain(parts->key)) continue;
      const std::string key(parts->key);
      const std::string state(parts->state == "param" ? "fp32_param" : parts->state);
      const bool first = matrices_.contains(key);
      name = fmt::format("{}optimizer.state.{}.{}",
                         !numbered ? ""
                         : first   ? "chained_0."
                                   : "chained_1.",
                         state, key);
    }
  }

  void add_objects(const LoadedValue& common) {
    if (common_inside()) {
      objects_.push_back({"common_state/shard_0_1", archive_of_one(common.value), 0});
    }
    std::vector<KeptObject> extra = missing_extra_states(state_);
    for (std::vector<KeptObject>* kept : {&extra, &state_.objects}) {
      for (KeptObject& object : *kept) {
        const int64_t rank = rank_of(object.name);
        objects_.push_back({std::move(object.name), std::move(object.archive), rank});
      }
    }
    add_rng();
  }

  // "rerun_state_machine_state/shard_3_4" is rank 3's; what is nobody's own the first rank writes.
  int64_t rank_of(std::string_view name) const {
    constexpr std::string_view kRerun = "rerun_state_machine_state/shard_";
    int64_t rank = 0;
    if (rank_) return *rank_;
    if (name.starts_with(kRerun)) {
      name.remove_prefix(kRerun.size());
      std::from_chars(name.data(), name.data() + name.size(), rank);
    }
    return std::max<int64_t>(rank, 0);
  }

  void add_rng() {
    const RankGroups ranks(run_, false);
    for (const RngState& rng : state_.rng) {
      const bool of_grid = rng.stages == run_.pipeline && rng.tensor_ranks == run_.tensor;
      objects_.push_back({fmt::format("rng_state/shard_{}.{}_{}.{}", rng.stage, rng.tensor,
                                      rng.stages, rng.tensor_ranks),
                          archive_of_one(rng.value.value),
                          of_grid && !rank_ ? ranks.global_rank(rng.stage, rng.tensor, 0) : 0});
    }
  }

  std::vector<std::pair<std::string, std::string>> small_files(const LoadedValue& common) const {
    std::vector<std::pair<std::string, std::string>> files;
    if (!common_inside()) {
      files.emplace_back(kCommonFile, write_torch_archive(common.value, "common"));
    }
    files.emplace_back("metadata.json", common_inside() ? kBackend : kBackendWithCommon);
    return files;
  }

  RunState state_;
  const TorchDistOptions& options_;
  const RunArguments run_;
  ShardedOptimizer optimizer_ = ShardedOptimizer::none;
  MatrixOptimizer matrix_;
  std::unordered_set<std::string> matrices_;  // tensors of a layer-wise optimizer for matrices
  std::vector<PlacedObject> objects_;
  std::optional<int64_t> rank_;  // that writes what it holds; nothing: the plan is for all ranks
};

}  // namespace

PlannedOutput plan_torch_dist(RunState state, const TorchDistOptions& options) {
  return TorchDistWriter(std::move(state), options).plan();
}

PlacedState place_torch_dist_rank(RunState state, const HeldShards& held, int64_t rank,
                                  const TorchDistOptions& options) {
  return TorchDistWriter(std::move(state), options).place_rank(held, rank);
}

std::vector<std::pair<std::string, std::string>> torch_dist_small_files(
    RunState state, const TorchDistOptions& options) {
  return TorchDistWriter(std::move(state), options).small_files();
}

}  // namespace ferry
