#include "ckpt/megatron/torch_dist/torch_dist_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/megatron/model/pipeline_checks.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/optimizer/buckets/bucket_writer.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/optimizer/optimizer_form.h"
#include "ckpt/megatron/state/edit.h"
#include "ckpt/megatron/torch_dist/extra_state.h"
#include "ckpt/megatron/torch_dist/placement.h"

namespace ferry {
namespace {

constexpr std::string_view kBackend =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1})";
constexpr std::string_view kBackendWithCommon =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, )"
    R"("common_backend": "torch", "common_backend_version": 1})";

bool has_optimizer(const RunState& state) {
  return std::any_of(state.tensors.begin(), state.tensors.end(),
                     [](const StateTensor& tensor) { return tensor.role == Role::optimizer; });
}

// The archive of an object as Megatron-LM shards it: a list of one.
std::string archive_of_one(const Value& value) {
  Draft draft;
  const Value list = draft.list({draft.copy(value)});
  return write_torch_archive(std::move(draft).finish(list).value);
}

class Writer {
 public:
  Writer(RunState state, const TorchDistOptions& options)
      : state_(std::move(state)), options_(options), run_(read_run_arguments(state_.args.value)) {}
  Writer(RunState state, const Placement& placement, std::vector<PlacedObject> objects,
         const TorchDistOptions& options)
      : Writer(std::move(state), options) {
    placement_ = &placement;
    objects_ = std::move(objects);
  }

  PlannedOutput plan() {
    check_query_groups();
    settle_optimizer();
    const LoadedValue common = common_state(state_, optimizer_, options_.release);
    add_objects(common);
    std::vector<PlacedTensor> placed = place();
    const DcpWriteOptions options = {options_.files_per_rank, {}, options_.zstd};
    PlannedOutput output =
        lay_out_dcp(*state_.source, std::move(placed), std::move(objects_), options);
    output.plan.dropped = std::move(state_.dropped);
    add_common_file(common, output);
    output.warnings = std::move(state_.warnings);
    return output;
  }

 private:
  bool common_inside() const { return options_.release >= kCommonStateInside; }

  void check_query_groups() const {
    const Value& args = state_.args.value;
    const int64_t groups = args.get("num_query_groups").integer().value_or(0);
    const bool grouped = args.get("group_query_attention").boolean().value_or(false);
    const auto fits = [&](int64_t ranks) { return groups % ranks == 0; };
    if (!grouped || groups < 1 || fits(run_.tensor) || options_.release >= kSharedQueryGroups) {
      return;
    }
    fail(ErrorKind::invalid,
         "{} query groups cannot be split over {} tensor-parallel ranks in Megatron Core {}, where "
         "no two share one: for --tp, {}; or write for {} or later",
         groups, run_.tensor, to_string(options_.release), those_that_fit(1, groups, fits),
         to_string(kSharedQueryGroups));
  }

  void settle_optimizer() {
    optimizer_ = has_optimizer(state_) ? options_.optimizer : ShardedOptimizer::none;
    switch (optimizer_) {
      case ShardedOptimizer::none:
        drop_optimizer(state_);
        return;
      case ShardedOptimizer::plain:
        drop_doubled_masters(state_);
        break;
      case ShardedOptimizer::fully_reshardable:
        add_masters(state_);
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
          "Megatron-LM does not load it; leave it out with --optimizer none");
    }
  }

  [[noreturn]] void refuse_release() const {
    fail(ErrorKind::unsupported,
         "Megatron Core {} knows no optimizer state that any other release writes: write for {} or "
         "later, or leave it out with --optimizer none",
         to_string(options_.release), to_string(kFullyReshardable));
  }

  std::vector<PlacedTensor> place() {
    std::vector<PlacedTensor> buckets = place_flat();
    std::vector<PlacedTensor> placed = placement_ ? place_as_given() : place_state(state_);
    if (optimizer_ == ShardedOptimizer::plain) spell_plain(placed);
    std::move(buckets.begin(), buckets.end(), std::back_inserter(placed));
    return placed;
  }

  // A master that was made here lies as the tensor that it was made of.
  std::vector<PlacedTensor> place_as_given() {
    std::vector<PlacedTensor> placed;
    for (StateTensor& tensor : state_.tensors) {
      auto found = placement_->find(tensor.name);
      if (found == placement_->end()) found = placement_->find(model_name(tensor.name));
      if (found == placement_->end()) {
        fail(ErrorKind::internal, "nothing says who writes tensor {}", tensor.name);
      }
      placed.push_back({std::move(tensor), found->second});
    }
    return placed;
  }

  // The optimizer's state as flat buckets, instead of its tensors.
  std::vector<PlacedTensor> place_flat() {
    if (optimizer_ != ShardedOptimizer::dp_reshardable) return {};
    if (placement_) {
      fail(ErrorKind::unsupported,
           "flat buckets (dp_reshardable) cannot be written where it is given who writes what: "
           "choose fully_reshardable");
    }
    PlacedBuckets buckets = place_buckets(state_, run_);
    std::erase_if(state_.tensors,
                  [](const StateTensor& tensor) { return tensor.role == Role::optimizer; });
    std::move(buckets.objects.begin(), buckets.objects.end(), std::back_inserter(objects_));
    state_.dropped.insert(state_.dropped.end(), buckets.repeated.begin(), buckets.repeated.end());
    return std::move(buckets.tensors);
  }

  // Without a distributed optimizer the fp32 copy has another name.
  static void spell_plain(std::vector<PlacedTensor>& placed) {
    constexpr std::string_view kMaster = "optimizer.state.param.";
    for (PlacedTensor& one : placed) {
      std::string& name = one.tensor.name;
      if (name.starts_with(kMaster)) {
        name = "optimizer.state.fp32_param." + name.substr(kMaster.size());
      }
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
    if (placement_) return rank;
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
      objects_.push_back(
          {fmt::format("rng_state/shard_{}.{}_{}.{}", rng.stage, rng.tensor, rng.stages,
                       rng.tensor_ranks),
           archive_of_one(rng.value.value),
           of_grid && !placement_ ? ranks.global_rank(rng.stage, rng.tensor, 0) : 0});
    }
  }

  void add_common_file(const LoadedValue& common, PlannedOutput& output) const {
    if (!common_inside()) {
      output.small_files.emplace(output.small_files.begin(), "common.pt",
                                 write_torch_archive(common.value, "common"));
    }
    output.small_files.emplace_back("metadata.json",
                                    common_inside() ? kBackend : kBackendWithCommon);
  }

  RunState state_;
  const TorchDistOptions& options_;
  const RunArguments run_;
  ShardedOptimizer optimizer_ = ShardedOptimizer::none;
  std::vector<PlacedObject> objects_;
  const Placement* placement_ = nullptr;  // null: the layout of the arguments decides
};

}  // namespace

PlannedOutput plan_torch_dist(RunState state, const TorchDistOptions& options) {
  return Writer(std::move(state), options).plan();
}

PlannedOutput plan_torch_dist(RunState state, const Placement& placement,
                              std::vector<PlacedObject> objects, const TorchDistOptions& options) {
  return Writer(std::move(state), placement, std::move(objects), options).plan();
}

}  // namespace ferry
