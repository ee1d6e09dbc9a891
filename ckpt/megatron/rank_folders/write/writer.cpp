#include "ckpt/megatron/rank_folders/write/writer.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/rank_folders/rank.h"
#include "ckpt/megatron/rank_folders/write/optimizer_writer.h"
#include "ckpt/megatron/rank_folders/write/rng.h"
#include "ckpt/megatron/rank_folders/write/state_names.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {
namespace {

constexpr std::string_view kVersion = "checkpoint_version";
constexpr int64_t kDevicesOfAHost = 8;  // not in the arguments, and loading ignores it
constexpr std::string_view kOperations = "num_floating_point_operations_so_far";

class LegacyPlanner {
 public:
  LegacyPlanner(const RunState& state, const LegacyOptions& options)
      : state_(state), target_(state), args_(state.args.value) {
    has_optimizer_ = options.optimizer && !target_.parts.kinds().empty();
    distributed_ = target_.run.distributed_optimizer.value_or(false);
    by_ranks_ = options.by_ranks;
  }

  PlannedOutput plan() && {
    Plan& plan = output_.plan;
    plan.source = state_.source;
    std::vector<LegacyRankTarget> ranks;  // of a layer-wise optimizer
    for (RankFolder& folder : expected_rank_folders(target_.run)) {
      LegacyRankTarget rank{std::move(folder), {}};
      RankCoordinates place = rank.folder.rank;
      for (place.chunk = 0; place.chunk < target_.layout.pipeline().chunks(); ++place.chunk) {
        rank.chunks.push_back(target_.layout.parameters(place, target_.choice.modules));
      }
      add_model_file(rank);
      if (has_optimizer_ && distributed_) add_flat_optimizer_file(plan, target_, rank, by_ranks_);
      if (layer_wise()) ranks.push_back(std::move(rank));
    }
    if (layer_wise()) add_layer_wise_files(plan, target_, ranks);
    plan.dropped = state_.dropped;
    for (const Dropped& repeated : target_.parts.repeated()) plan.dropped.push_back(repeated);
    drop_unused(plan, Role::optimizer);
    if (!has_optimizer_) drop_optimizer_inputs();
    output_.warnings = state_.warnings;
    std::string lost = lost_objects(state_, "a folder of ranks", true);
    if (!lost.empty()) output_.warnings.push_back(std::move(lost));
    report_rng();
    return std::move(output_);
  }

 private:
  bool layer_wise() const {
    return has_optimizer_ && !distributed_ && target_.run.matrices.layer_wise;
  }

  // Drops optimizer state that has the model's role in the source: drop_unused() goes by the
  // source's entries.
  void drop_optimizer_inputs() {
    for (const StateTensor& tensor : state_.tensors) {
      if (tensor.role != Role::optimizer) continue;
      for (const Move& move : tensor.recipe.moves) {
        const uint32_t entry = tensor.recipe.inputs.at(move.input);
        if (state_.source->entries.at(entry).role == Role::optimizer) continue;
        output_.plan.dropped.push_back({entry, move.elements()});
      }
    }
  }

  void add_model_file(const LegacyRankTarget& rank) {
    TorchFilePlan file(rank.folder.first_rank);
    Draft& draft = file.draft();
    const Value root = draft.dict();
    draft.put(root, "args", arguments(draft, rank.folder.first_rank));
    const Value* version = common(kVersion);
    draft.put(root, kVersion, version ? *version : draft.real(3.0));
    if (state_.iteration) draft.put(root, "iteration", draft.integer(*state_.iteration));
    for (size_t v = 0; v < rank.chunks.size(); ++v) {
      const std::string key = rank.chunks.size() == 1 ? "model" : fmt::format("model{}", v);
      draft.put(root, key, model(file, rank, v, key));
    }
    if (has_optimizer_) {
      draft.put(root, "optimizer",
                distributed_   ? flat_optimizer_value(file, target_)
                : layer_wise() ? layer_wise_optimizer_value(file, target_, rank)
                               : plain_optimizer_value(file, target_, rank));
    }
    for (const auto& [name, value] : state_.common) {
      if (name != kVersion && name != kOperations) draft.put(root, name, value.value);
    }
    const Value rng = rng_of_rank(draft, state_, target_.run, rank.folder.rank);
    if (rng) draft.put(root, "rng_state", rng);
    if (const Value* operations = common(kOperations)) draft.put(root, kOperations, *operations);
    std::move(file).add_to(output_.plan, join(rank.folder.name, kLegacyModelFile), root);
  }

  // The run's, saying what this checkpoint is and is not, and who wrote the file.
  Value arguments(Draft& draft, int64_t rank) const {
    const Value args = draft.copy(args_);
    const auto put = [&](std::string_view name, const Value& value) {
      if (args.has(name)) draft.put(args, name, value);
    };
    put("ckpt_format", draft.string("torch"));
    put("use_dist_ckpt", draft.boolean(false));
    if (layer_wise()) draft.put(args, "use_layer_wise_param_layout", draft.boolean(false));
    put("no_save_optim", has_optimizer_ ? draft.none() : draft.boolean(true));
    put("rank", draft.integer(rank));
    put("local_rank", draft.integer(rank % kDevicesOfAHost));
    put("no_save_rng", state_.rng.empty() ? draft.boolean(true) : draft.none());
    return args;
  }

  const Value* common(std::string_view name) const {
    for (const auto& [key, value] : state_.common) {
      if (key == name) return &value.value;
    }
    return nullptr;
  }

  // The state dict of one model chunk.
  Value model(TorchFilePlan& file, const LegacyRankTarget& rank, size_t chunk,
              const std::string& key) {
    Draft& draft = file.draft();
    const RunArguments& run = target_.run;
    const StageContents& stage =
        target_.layout.pipeline().at(rank.folder.rank.stage, static_cast<int64_t>(chunk));
    const int64_t first_expert = rank.folder.rank.expert * (run.experts / run.expert);
    const std::vector<LocalParameter>& parameters = rank.chunks[chunk];
    const Value dict = draft.ordered_dict();
    for (const StateDictEntry& entry : state_dict_names(target_.layout, target_.choice.modules,
                                                        stage, first_expert, parameters)) {
      Value value = draft.none();
      if (entry.parameter >= 0) {
        const LocalParameter& parameter = parameters[static_cast<size_t>(entry.parameter)];
        value = tensor(file, rank, parameter, key + "." + entry.name);
      }
      draft.add(dict, entry.name, value);
    }
    return dict;
  }

  Value tensor(TorchFilePlan& file, const LegacyRankTarget& rank, const LocalParameter& parameter,
               std::string name) {
    FlatRecipe flat;
    for (const Shard& shard : parameter.shards) {
      target_.parts.append(target_.parts.model(shard.tensor), shard, !rank.gives(parameter), flat);
    }
    const Dims elements{flat.elements()};
    StateTensor state{std::move(name), parameter.dtype, elements, std::move(flat).take(),
                      Role::model};
    return file.tensor(std::move(state), local_shape(parameter));
  }

  void report_rng() {
    if (state_.rng.empty() || has_rng_of_grid(state_, target_.run)) return;
    output_.warnings.push_back(
        "The random number states are of other tensor and pipeline sizes: every rank continues "
        "the stream that Megatron-LM's seeds give it, from where the source's ranks were.");
  }

  const RunState& state_;
  LegacyTarget target_;
  const Value args_;
  bool has_optimizer_ = false, distributed_ = false, by_ranks_ = false;
  PlannedOutput output_;
};

}  // namespace

PlannedOutput plan_legacy(const RunState& state, const LegacyOptions& options) {
  if (!state.args.value) {
    fail(ErrorKind::unsupported,
         "the source holds no arguments of the run, without which a legacy checkpoint can neither "
         "be laid out nor loaded");
  }
  const RunArguments& run = state.args.run;
  if (!run.other_modules.empty()) {
    fail(ErrorKind::unsupported,
         "the target is trained with {}: the names of its modules' parameters are unknown; {} "
         "writes it",
         run.other_modules, option("to", "torch_dist"));
  }
  return LegacyPlanner(state, options).plan();
}

}  // namespace ferry
