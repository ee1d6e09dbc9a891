#include "ckpt/megatron/fsdp/write/tensors.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/core/recipe_cutter.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/rank_folders/parameter_kind.h"
#include "ckpt/megatron/rank_folders/write/state_names.h"

namespace ferry {
namespace {

constexpr std::string_view kModelPrefix = "model.module.";
constexpr std::string_view kStatePrefix = "optimizer.state.module.module.module.";

// The run's model on a single rank, whose tensors are whole.
RunArguments of_one_rank(RunArguments run) {
  run.tensor = run.pipeline = run.virtual_pipeline = run.context = 1;
  run.expert = run.expert_tensor = run.optimizer_instances = 1;
  run.world_size = 1;
  run.first_stage_layers.reset();
  run.last_stage_layers.reset();
  run.embedding_is_a_layer = run.loss_is_a_layer = false;
  run.stage_letters.clear();
  return run;
}

std::vector<ModelTensor> model_of_state(const RunState& state) {
  std::vector<ModelTensor> tensors;
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.role == Role::model) tensors.push_back({tensor.name, tensor.shape, tensor.dtype});
  }
  return tensors;
}

// The inner layer of a multi-token-prediction layer has its older name on disk.
std::string on_disk(std::string name) {
  constexpr std::string_view kInner = ".mtp_model_layer.";
  const size_t at = name.find(kInner);
  if (at != std::string::npos) name.replace(at, kInner.size(), ".transformer_layer.");
  return name;
}

bool is_gated_projection(std::string_view name) {
  return name.find(".linear_fc1.") != std::string_view::npos &&
         name.find("layer_norm") == std::string_view::npos;
}

// Rows of one sub-tensor, out of the tensor that stacks layers and experts.
void append_rows(const RecipeCutter& cutter, const Shard& shard, size_t leading, int64_t row,
                 Recipe& whole) {
  Recipe part = cutter.cut(shard);
  const auto first = static_cast<uint32_t>(whole.inputs.size());
  whole.inputs.insert(whole.inputs.end(), part.inputs.begin(), part.inputs.end());
  const auto unstack = [&](Dims& coordinates) {
    coordinates.erase(coordinates.begin(), coordinates.begin() + static_cast<int64_t>(leading));
    if (!coordinates.empty()) coordinates[0] += row;
  };
  for (Move& move : part.moves) {
    move.input += first;
    unstack(move.out_origin);
    std::erase_if(move.loops, [&](const Loop& loop) {
      return loop.out_axis < static_cast<int>(leading) && loop.count == 1;
    });
    for (Loop& loop : move.loops) loop.out_axis -= static_cast<int>(leading);
    whole.moves.push_back(std::move(move));
  }
  for (Box& box : part.zeros) {
    unstack(box.offset);
    box.size.erase(box.size.begin(), box.size.begin() + static_cast<int64_t>(leading));
    whole.zeros.push_back(std::move(box));
  }
  for (Addend& addend : part.addends) {
    addend.input += first;
    whole.addends.push_back(addend);
  }
}

class Unstacker {
 public:
  Unstacker(const RunState& state, bool optimizer)
      : state_(state),
        optimizer_(optimizer),
        run_(of_one_rank(state.args.run)),
        layout_(model_of_state(state), run_) {
    for (const StateTensor& tensor : state.tensors) by_name_.emplace(tensor.name, &tensor);
    find_kinds();
  }

  FsdpTensors unstack() {
    const ModuleChoice modules = state_.modules.value_or(default_modules(run_));
    const std::vector<LocalParameter> parameters = layout_.parameters({}, modules);
    const auto names =
        state_dict_names(layout_, modules, layout_.pipeline().at(0, 0), 0, parameters);
    for (const StateDictEntry& entry : names) {
      if (entry.parameter < 0) continue;
      add(parameters[static_cast<size_t>(entry.parameter)], on_disk(entry.name));
    }
    for (const StateTensor& tensor : state_.tensors) {
      if (used_.contains(&tensor)) continue;
      for (const Move& move : tensor.recipe.moves) {
        result_.dropped.push_back({tensor.recipe.inputs.at(move.input), move.elements()});
      }
    }
    return std::move(result_);
  }

 private:
  // All but the masters, which are the model.
  void find_kinds() {
    for (const StateTensor& tensor : state_.tensors) {
      const auto name = parse_optimizer_entry_name(tensor.name);
      if (tensor.role != Role::optimizer || !name || name->state == "param") continue;
      const std::string kind(name->state);
      if (std::ranges::find(kinds_, kind) == kinds_.end()) kinds_.push_back(kind);
    }
    std::ranges::stable_sort(kinds_, {}, usual_rank);
  }

  void add(const LocalParameter& parameter, const std::string& name) {
    const Dims shape = local_shape(parameter);
    const bool embedding =
        name == "embedding.word_embeddings.weight" || name == "output_layer.weight";
    const ParameterKind kind =
        parameter_kind(name, shape.size(), run_.decays_qk_norms, parameter.routed_expert, false);
    result_.parameters.push_back(
        {name, kind.decayed, parameter.routed_expert, embedding, parameter.trainable});
    const bool has_master = find(parameter.shards.front(), "param") != nullptr;
    const DType dtype = parameter.trainable ? DType::f32 : parameter.dtype;
    add_tensor(parameter, has_master ? "param" : "", name, dtype, result_.model);
    if (!optimizer_ || !parameter.trainable) return;
    for (const std::string& state : kinds_) {
      if (!find(parameter.shards.front(), state)) {
        fail(ErrorKind::mismatch,
             "the optimizer has no {} of {}, as it has of other parameters; to write the model "
             "without the optimizer's state: {}",
             state, name, option("optimizer", "none"));
      }
      add_tensor(parameter, state, name, DType::f32, result_.optimizer);
    }
  }

  // The state's tensor that holds a shard of a parameter, or of its optimizer state.
  const StateTensor* find(const Shard& shard, const std::string& kind) const {
    const std::string& key = layout_.tensors()[shard.tensor].name;
    const auto found = by_name_.find(kind.empty() ? key : optimizer_entry_name(kind, key));
    return found == by_name_.end() ? nullptr : found->second;
  }

  void add_tensor(const LocalParameter& parameter, const std::string& kind, const std::string& name,
                  DType dtype, std::vector<StateTensor>& tensors) {
    StateTensor whole{name,
                      dtype,
                      local_shape(parameter),
                      {},
                      kind.empty() || kind == "param" ? Role::model : Role::optimizer};
    int64_t row = 0;
    for (const Shard& shard : parameter.shards) {
      const StateTensor* from = find(shard, kind);
      if (!from) fail(ErrorKind::mismatch, "{} has optimizer state in parts only", name);
      if (!can_convert(from->dtype, dtype)) {
        fail(ErrorKind::mismatch, "{} has elements of type {}, which are to be written as {}",
             from->name, torch_name(from->dtype), torch_name(dtype));
      }
      used_.emplace(from, true);
      const size_t leading = shard.box.size.size() - whole.shape.size();
      append_rows(RecipeCutter(from->recipe, from->shape), shard, leading, row, whole.recipe);
      if (!whole.shape.empty()) row += shard.box.size[leading];
    }
    const bool gated = run_.gated_mlp && is_gated_projection(name) && !whole.shape.empty();
    if (!gated) {
      whole.name = key_of(name, whole.role, kind, "");
      tensors.push_back(std::move(whole));
      return;
    }
    const RecipeCutter cutter(whole.recipe, whole.shape);
    for (const auto& [tag, half] : {std::pair{"_w", 0}, std::pair{"_v", 1}}) {
      Box box = Box::whole(whole.shape);
      box.size[0] /= 2;
      box.offset[0] = half * box.size[0];
      const Dims shape = box.size;
      tensors.push_back({key_of(name, whole.role, kind, tag), dtype, shape,
                         cutter.cut(Shard{std::move(box)}), whole.role});
    }
  }

  static std::string key_of(const std::string& name, Role role, const std::string& kind,
                            std::string_view tag) {
    if (role == Role::model) return std::string(kModelPrefix) + name + std::string(tag);
    return fmt::format("{}{}{}.{}", kStatePrefix, name, tag, kind);
  }

  const RunState& state_;
  const bool optimizer_;
  const RunArguments run_;
  const ModelLayout layout_;
  std::unordered_map<std::string, const StateTensor*> by_name_;
  std::map<const StateTensor*, bool> used_;
  std::vector<std::string> kinds_;
  FsdpTensors result_;
};

}  // namespace

FsdpTensors fsdp_tensors(const RunState& state, bool optimizer) {
  return Unstacker(state, optimizer).unstack();
}

}  // namespace ferry
