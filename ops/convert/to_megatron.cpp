#include "ops/convert/to_megatron.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/core/recipe_compose.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/model/layer_spec.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "ckpt/megatron/state/norm_names.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "ckpt/store/run_folder.h"
#include "convert/base_only.h"
#include "convert/import.h"
#include "convert/state_dict/named_optimizer.h"
#include "ops/convert/source.h"
#include "ops/output/paths.h"
#include "ops/output/tokenizer_folder.h"
#include "ops/output/write_output.h"

namespace ferry {
namespace {

PlannedOutput plan(RunState state, const ConvertOptions& options) {
  if (options.to == ConvertTarget::torch) return plan_legacy(state, {options.optimizer});
  TorchDistOptions writer;
  writer.release = options.write.release;
  writer.optimizer =
      options.optimizer ? ShardedOptimizer::fully_reshardable : ShardedOptimizer::none;
  writer.zstd = options.write.zstd_level.has_value();
  return plan_torch_dist(std::move(state), writer);
}

// Megatron-LM takes most of the layout from the checkpoint where it is asked to, this it does not.
void say_layout(const ParallelLayout& sizes, const ParallelTarget& target,
                std::vector<std::string>& flags) {
  if (std::max({sizes.tensor, sizes.pipeline, sizes.expert}) > 1) {
    flags.push_back("--use-mp-args-from-checkpoint-args");
  }
  const auto say = [&](std::string_view flag, const auto& value) {
    if (value) flags.push_back(fmt::format("{} {}", flag, *value));
  };
  if (sizes.expert_tensor != sizes.tensor) {
    say("--expert-tensor-parallel-size", std::optional(sizes.expert_tensor));
  }
  say("--context-parallel-size", target.context);
  say("--decoder-first-pipeline-num-layers", target.first_stage_layers);
  say("--decoder-last-pipeline-num-layers", target.last_stage_layers);
  say("--pipeline-model-parallel-layout", target.stage_letters);
  if (target.embedding_is_a_layer) flags.push_back("--account-for-embedding-in-pipeline-split");
  if (target.loss_is_a_layer) flags.push_back("--account-for-loss-in-pipeline-split");
}

// The command line that loads it, as far as the checkpoint does not say it.
std::vector<std::string> loading_flags(const Import& model, const ParallelLayout& sizes,
                                       const ConvertOptions& options) {
  if (model.state.args.value.has(kLayerSpec)) return {};  // Megatron-LM alone does not load it
  std::vector<std::string> flags = {"--load " + options.target, "--use-checkpoint-args"};
  if (options.to == ConvertTarget::torch) flags.push_back("--ckpt-format torch");
  if (options.optimizer) {
    flags.insert(flags.end(), {"--use-distributed-optimizer", "--override-opt_param-scheduler"});
  }
  say_layout(sizes, options.layout, flags);
  if (options.transformer_engine == false) flags.push_back("--transformer-impl local");
  // Megatron-LM builds sparse attention over several ranks in no other way.
  const Value variant = model.state.args.value.get("experimental_attention_variant");
  if (variant.string() == "dsa" && sizes.tensor > 1) flags.push_back("--sequence-parallel");
  flags.insert(flags.end(), model.flags.begin(), model.flags.end());
  return flags;
}

// Megatron-LM loads what the tracker names, which stays with an iteration that is there.
std::optional<ConvertReport::OtherIteration> loaded_instead(const FileSystem& file_system,
                                                            const std::string& run_folder) {
  if (file_system.status(run_folder).kind == PathKind::missing) return std::nullopt;
  const RunFolder run = read_run_folder(file_system, run_folder);
  if (run.tracker.state != Tracker::State::iteration || !problem_of_tracker(run).empty()) {
    return std::nullopt;
  }
  return ConvertReport::OtherIteration{run.tracker.iteration,
                                       join(run_folder, std::string(kTrackerName))};
}

void describe(const Import& model, const ConvertOptions& options, ConvertReport& report) {
  report.family = model.family;
  report.iteration = options.optimizer ? model.state.iteration : std::nullopt;
  report.tensors = static_cast<int64_t>(model.state.tensors.size());
  report.parameters = model.parameters;
  report.layout = layout_from_args(model.state.args.value);
  report.load_with = loading_flags(model, report.layout, options);
}

// The Hugging Face model that the source is, or that its state dict is with a config.json.
struct Model {
  Checkpoint checkpoint;  // of format hugging_face
  Format format = Format::hugging_face;
  std::string config_folder;
  bool top_files_only = false;
  std::vector<std::string> warnings;
  // With torchtitan's own names: how the tensors are made from `stored`. Else empty.
  std::vector<Recipe> recipes;
  SharedCatalog stored;
};

Model model_of_state_dict(const Checkpoint& stored, const ConvertOptions& options,
                          std::vector<std::string> warnings) {
  StateDict state_dict = open_state_dict(stored, options);
  std::ranges::move(state_dict.warnings, std::back_inserter(warnings));
  return {std::move(state_dict.model), stored.format,       std::move(state_dict.config_folder),
          state_dict.top_files_only,   std::move(warnings), std::move(state_dict.recipes),
          std::move(state_dict.source)};
}

Model open_model_source(const std::shared_ptr<const FileSystem>& file_system,
                        const ConvertOptions& options) {
  Checkpoint stored = open_source(file_system, options.source, options);
  if (stored.format == Format::hugging_face) {
    std::string warning = resolve_adapter(stored, options.base_only, false);
    std::vector<std::string> warnings = stored.notes;
    if (!warning.empty()) warnings.push_back(std::move(warning));
    if (options.optimizer) {
      std::ranges::move(add_optimizer_of_folder(stored), std::back_inserter(warnings));
    }
    if (has_language_part(stored, options.family) || is_read_as_state_dict(stored, options)) {
      return model_of_state_dict(stored, options, std::move(warnings));
    }
    return {std::move(stored), Format::hugging_face, {}, false, std::move(warnings), {}, {}};
  }
  if (!is_state_dict(stored)) {
    fail(ErrorKind::invalid,
         "{}: is not a Hugging Face model; reshard writes checkpoints of Megatron-LM in "
         "another layout or format",
         stored.path);
  }
  std::vector<std::string> warnings;
  if (options.optimizer) warnings = name_optimizer(stored);
  return model_of_state_dict(stored, options, std::move(warnings));
}

// Tensors that are made of what a program stores in another form are made of that.
void look_through(const Model& source, RunState& state) {
  if (source.recipes.empty()) return;
  const std::vector<Entry>& stored = source.stored->entries;
  std::vector<int64_t> used(stored.size());
  for (StateTensor& tensor : state.tensors) {
    tensor.recipe = compose(tensor.recipe, source.recipes);
    for (const Move& move : tensor.recipe.moves) {
      used[tensor.recipe.inputs[move.input]] += move.elements();
    }
  }
  state.source = source.stored;
  state.dropped.clear();
  for (uint32_t i = 0; i < used.size(); ++i) {
    const int64_t left = stored[i].elements() - used[i];
    if (left > 0) state.dropped.push_back({i, left});
  }
}

ImportOptions import_options(const ConvertOptions& options) {
  ImportOptions import;
  import.family = options.family;
  import.ignored_members = options.ignored_members;
  import.layout = options.layout;
  import.dtype = options.dtype;
  import.make_vocab_size_divisible_by = options.make_vocab_size_divisible_by;
  import.drop_unknown = options.drop_unknown;
  import.ignore_index = options.ignore_index;
  import.optimizer = options.optimizer;
  import.tokenizer_folder = options.tokenizer_folder;
  return import;
}

// A model alone is a release; with the optimizer's state it is the iteration that was saved.
Output output_for(const ConvertOptions& options, const Checkpoint& checkpoint) {
  Output output = {OutputKind::iteration, options.target, {}};
  if (options.optimizer) {
    output.iteration = checkpoint.iteration ? checkpoint.iteration : checkpoint.optimizer_steps;
  }
  return output;
}

}  // namespace

Work plan_for_megatron(const std::shared_ptr<const FileSystem>& file_system,
                       const ConvertOptions& options, ConvertReport& report) {
  Model source = open_model_source(file_system, options);
  const Checkpoint& checkpoint = source.checkpoint;
  ImportOptions import = import_options(options);
  import.config_folder = source.config_folder;
  import.top_files_only = source.top_files_only;
  Work work;
  work.output = output_for(options, checkpoint);
  report.target = work.output.folder();
  check_output(*file_system, work.output, checkpoint.path, options.write.overwrite);
  import.tokenizer_model = join(absolute(report.target), kTokenizerFolder);
  Import model = import_model(checkpoint, import);
  look_through(source, model.state);
  model.state.warnings.insert(model.state.warnings.begin(), source.warnings.begin(),
                              source.warnings.end());
  if (options.transformer_engine) choose_modules(model.state, *options.transformer_engine);
  report.source = checkpoint.path;
  report.source_format = name(source.format);
  describe(model, options, report);
  if (!options.optimizer) report.loaded_instead = loaded_instead(*file_system, options.target);
  work.planned = plan(std::move(model.state), options);
  add_files(*file_system, model.tokenizer_files, kTokenizerFolder, work.planned);
  return work;
}

}  // namespace ferry
