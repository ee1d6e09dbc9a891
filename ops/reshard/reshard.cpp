#include "ops/reshard.h"

#include <fmt/format.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/core/placed.h"
#include "ckpt/megatron/fsdp/write/writer.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/optimizer/masters/remainders.h"
#include "ckpt/megatron/optimizer/masters/shifted_state.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/optimizer/optimizer_form.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "ckpt/megatron/retarget.h"
#include "ckpt/megatron/state/edit.h"
#include "ckpt/megatron/state/model_class.h"
#include "ckpt/megatron/state/norm_names.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/megatron/torch_dist/plain_dcp_writer.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "ckpt/store/run_folder.h"
#include "convert/state_dict/state_dict.h"
#include "convert/state_dict/without_arguments.h"
#include "ops/output/paths.h"
#include "ops/output/tokenizer_folder.h"
#include "ops/output/write_output.h"
#include "ops/reshard/check_options.h"
#include "ops/reshard/edit_state.h"

namespace ferry {
namespace {

ShardedOptimizer sharded_form(ReshardOptimizer requested, const RunState& state) {
  switch (requested) {
    case ReshardOptimizer::as_source:
      return has_distributed_optimizer(state) || matrix_optimizer(state.args.value).layer_wise
                 ? ShardedOptimizer::fully_reshardable
                 : ShardedOptimizer::plain;
    case ReshardOptimizer::dp_reshardable:
      return ShardedOptimizer::dp_reshardable;
    case ReshardOptimizer::none:
      return ShardedOptimizer::none;
    case ReshardOptimizer::fully_reshardable:
    case ReshardOptimizer::legacy:  // refused before
      break;
  }
  return ShardedOptimizer::fully_reshardable;
}

std::string_view word(ShardedOptimizer form) {
  switch (form) {
    case ShardedOptimizer::none:
      return "";
    case ShardedOptimizer::fully_reshardable:
      return "fully_reshardable";
    case ShardedOptimizer::dp_reshardable:
      return "dp_reshardable";
    case ShardedOptimizer::plain:
      return "plain";
  }
  return "";
}

// What is written, and what the report says of it.
struct Target {
  PlannedOutput planned;
  ReshardReport::Side side;
  int64_t parameters = 0;  // copies on other ranks not counted
};

int64_t parameters_of(const RunState& state) {
  int64_t parameters = 0;
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.role == Role::model) parameters += element_count(tensor.shape, tensor.name);
  }
  return parameters;
}

bool has_optimizer(const Plan& plan) {
  return std::any_of(plan.target.entries.begin(), plan.target.entries.end(),
                     [](const Entry& entry) { return entry.role == Role::optimizer; });
}

void plan_dcp(RunState state, const ReshardOptions& options, Target& target) {
  target.side.format = name(Format::dcp);
  const bool optimizer = options.optimizer != ReshardOptimizer::none;
  target.planned = plan_plain_dcp(
      std::move(state),
      {optimizer, options.write.zstd_level.has_value(), options.layout.data.value_or(1)});
  if (has_optimizer(target.planned.plan)) target.side.optimizer = name(OptimizerLayout::plain);
}

void plan_torch(RunState state, const ReshardOptions& options, Target& target) {
  target.side.format = name(Format::megatron_torch);
  if (options.optimizer == ReshardOptimizer::legacy) set_distributed_optimizer(state, true);
  if (!has_distributed_optimizer(state)) drop_doubled_masters(state);
  const bool optimizer = options.optimizer != ReshardOptimizer::none;
  name_norms_by_modules(state);
  target.planned = plan_legacy(state, {optimizer});
  if (optimizer && !state.param_groups.empty()) {
    target.side.optimizer =
        name(has_distributed_optimizer(state) ? OptimizerLayout::legacy_distributed
                                              : OptimizerLayout::plain);
  }
}

// Gives fp32 master weights the requested form.
void convert_masters(RunState& state, const ReshardOptions& options, Target& target) {
  const bool flat = options.to == ReshardFormat::torch_dist &&
                    options.optimizer == ReshardOptimizer::dp_reshardable;
  const bool stored = has_remainders(*state.source) && has_optimizer(state);
  const bool split = options.masters == MasterForm::remainders ||
                     (options.masters == MasterForm::as_source && stored && flat);
  if (split) {
    target.side.remainders = split_masters(state) > 0;
    if (!target.side.remainders && options.masters == MasterForm::remainders) {
      fail(ErrorKind::invalid, "{}: the checkpoint has no bf16 parameter with an fp32 master",
           option("masters", "remainders"));
    }
  } else if (stored && options.optimizer != ReshardOptimizer::none) {
    state.warnings.push_back(fmt::format(
        "the masters, 16-bit remainders in the source, are written as fp32: a run without "
        "--use-precision-aware-optimizer continues from them; for one with it, {} writes "
        "remainders, the form that Megatron-LM loads there",
        option("optimizer", "dp_reshardable")));
  }
}

void plan_fsdp(RunState state, const ReshardOptions& options, Target& target) {
  target.side.format = name(Format::fsdp_dtensor);
  const bool optimizer = options.optimizer != ReshardOptimizer::none;
  name_norms_by_modules(state);
  target.planned =
      plan_fsdp_dtensor(std::move(state), {optimizer, options.write.zstd_level.has_value()});
  if (has_optimizer(target.planned.plan)) {
    target.side.optimizer = name(OptimizerLayout::fsdp_dtensor);
  }
}

void plan_sharded(RunState state, const ReshardOptions& options, Target& target) {
  target.side.format = name(Format::torch_dist);
  TorchDistOptions writer;
  writer.release = options.write.release;
  writer.optimizer = sharded_form(options.optimizer, state);
  writer.zstd = options.write.zstd_level.has_value();
  target.planned = plan_torch_dist(std::move(state), writer);
  if (has_optimizer(target.planned.plan)) target.side.optimizer = word(writer.optimizer);
}

Target plan_target(RunState state, const ReshardOptions& options, const std::string& folder) {
  Target target;
  target.side.path = folder;
  target.side.layout = layout_from_args(state.args.value);
  target.parameters = parameters_of(state);
  convert_masters(state, options, target);
  check_matrices(options, target.side.remainders, state);
  switch (options.to) {
    case ReshardFormat::torch_dist:
      plan_sharded(std::move(state), options, target);
      break;
    case ReshardFormat::torch:
      plan_torch(std::move(state), options, target);
      break;
    case ReshardFormat::fsdp_dtensor:
      plan_fsdp(std::move(state), options, target);
      break;
    case ReshardFormat::dcp:
      plan_dcp(std::move(state), options, target);
      break;
  }
  return target;
}

// Gives a run without arguments those of its config.json; true where it had none.
bool complete_arguments(Checkpoint& checkpoint, const ReshardOptions& options,
                        std::vector<std::string>& warnings) {
  const bool lacking = lacks_arguments(checkpoint) && !options.open.raw;
  if (lacking) {
    give_arguments(checkpoint, options.config_folder, warnings);
  } else if (!options.config_folder.empty()) {
    fail(
        ErrorKind::invalid,
        "{}: {} is for runs of Megatron-LM's format without its arguments; this checkpoint ({}) {}",
        checkpoint.path, option("config_folder"), name(checkpoint.format),
        checkpoint.args.value ? "has them" : "is none: convert reads it");
  }
  return lacking;
}

// Nothing: a release, which stays one whatever its state says.
std::optional<int64_t> iteration_to_write(const Checkpoint& checkpoint) {
  const bool is_release = canonical(checkpoint.path).filename() == kReleaseName;
  return is_release ? std::nullopt : checkpoint.iteration;
}

Output output_of(const ReshardOptions& options, const Checkpoint& checkpoint) {
  const std::optional<int64_t> iteration = iteration_to_write(checkpoint);
  if (options.to == ReshardFormat::dcp) {
    return {OutputKind::checkpoint_folder, options.target, iteration};
  }
  return {OutputKind::iteration, options.target, iteration};
}

// Optimizer state is dropped on request only.
void check_optimizer(const Checkpoint& checkpoint, ReshardOptimizer requested, bool repair) {
  if (requested == ReshardOptimizer::none) return;
  if (!checkpoint.optimizer_problem.empty()) {
    fail(ErrorKind::unsupported, "{}: {} {} writes the model without it", checkpoint.path,
         checkpoint.optimizer_problem, option("optimizer", "none"));
  }
  if (!checkpoint.shifted_state.empty() && !repair) {
    fail(ErrorKind::mismatch, "{}: {} {} writes the model without it", checkpoint.path,
         checkpoint.shifted_state, option("optimizer", "none"));
  }
  if (requested != ReshardOptimizer::as_source && checkpoint.optimizer == OptimizerLayout::none) {
    fail(ErrorKind::invalid,
         "{}: holds no optimizer state, which {} asks for; {} writes the model alone",
         checkpoint.path, option("optimizer"), option("optimizer", "none"));
  }
}

// Moves misplaced state back, and warns about what could not be recovered.
void repair(const Checkpoint& checkpoint, const EngineOptions& engine, RunState& state) {
  const ShiftRepair repair = repair_shifted_state(checkpoint, engine, state);
  if (repair.tensors == 0) {
    state.warnings.push_back(
        fmt::format("{}: every fp32 master belongs to its weight; nothing was to be put back",
                    option("repair_masters")));
    return;
  }
  int64_t elements = 0;
  for (const ShiftRepair::Lost& lost : repair.lost) elements += lost.elements;
  state.warnings.push_back(fmt::format(
      "{} tensors of the optimizer's state were put back to their places; every fp32 master then "
      "belongs to its weight",
      repair.tensors));
  for (const ShiftRepair::Lost& lost : repair.lost) {
    state.warnings.push_back(
        fmt::format("{}: {} element{} of its optimizer state {} not in the checkpoint: masters are "
                    "made of the weights, moments are zero",
                    lost.tensor, lost.elements, lost.elements == 1 ? "" : "s",
                    lost.elements == 1 ? "is" : "are"));
  }
}

void set_iteration(const Checkpoint& checkpoint, const Output& output, RunState& state) {
  if (!output.iteration && state.iteration == 0) state.iteration.reset();  // of a release
  const auto by_name = iteration_of(canonical(checkpoint.path).filename().string());
  if (!by_name || !state.iteration || *by_name == *state.iteration) return;
  state.warnings.push_back(
      fmt::format("{} is named for iteration {}, its state says {}: that is what is written",
                  checkpoint.path, *by_name, *state.iteration));
}

// The run's tokenizer; points the argument that names it to the new folder.
RunTokenizer take_tokenizer(const FileSystem& file_system, const Checkpoint& checkpoint,
                            const std::string& folder, RunState& state) {
  RunTokenizer tokenizer = tokenizer_of_run(file_system, checkpoint);
  if (tokenizer.files.empty()) return tokenizer;
  state.args =
      with_tokenizer_in(std::move(state.args), tokenizer.folder, join(folder, kTokenizerFolder));
  state.warnings.insert(state.warnings.end(), tokenizer.warnings.begin(), tokenizer.warnings.end());
  return tokenizer;
}

ReshardReport describe(const Checkpoint& checkpoint, const Output& output, const Target& target) {
  const Plan& plan = target.planned.plan;
  ReshardReport report;
  report.source.path = checkpoint.path;
  report.source.format = name(checkpoint.format);
  report.source.layout = checkpoint.layout;
  if (checkpoint.optimizer != OptimizerLayout::none) {
    report.source.optimizer = name(checkpoint.optimizer);
  }
  report.source.remainders = has_remainders(checkpoint.catalog);
  report.target = target.side;
  report.iteration = output.iteration;
  report.tensors = static_cast<int64_t>(plan.target.entries.size());
  report.parameters = target.parameters;
  return report;
}

// What of the run goes into the target, in the form that it has there. Takes the tokenizer that
// goes with it.
RunState state_to_write(const FileSystem& file_system, Checkpoint& checkpoint, const Output& output,
                        const ReshardOptions& options, RunTokenizer& tokenizer) {
  std::vector<std::string> warnings;
  const bool lacking = complete_arguments(checkpoint, options, warnings);
  check_output(file_system, output, checkpoint.path, options.write.overwrite);
  const bool is_run = options.to != ReshardFormat::dcp || holds_run(checkpoint);
  if (!is_run) check_plain(options, checkpoint);
  if (!is_run && options.repair_masters) {
    fail(ErrorKind::invalid, "{} is for runs of Megatron-LM's", option("repair_masters"));
  }
  check_optimizer(checkpoint, options.optimizer, options.repair_masters);
  RunState state = is_run ? state_of(checkpoint) : plain_state_of(checkpoint);
  if (lacking) rename_members(state);
  state.warnings.insert(state.warnings.begin(), warnings.begin(), warnings.end());
  if (is_run) set_iteration(checkpoint, output, state);
  if (options.repair_masters) repair(checkpoint, options.write.engine, state);
  edit_state(state, options);
  if (!is_run) return state;
  if (options.model == ModelClass::hybrid) make_hybrid(state);
  if (options.model == ModelClass::gpt) make_gpt(state);
  retarget(state, options.layout, options.vocabulary_divisor);
  if (options.transformer_engine) choose_modules(state, *options.transformer_engine);
  tokenizer = take_tokenizer(file_system, checkpoint, output.folder(), state);
  return state;
}

Work plan_reshard(const std::shared_ptr<const FileSystem>& file_system,
                  const ReshardOptions& options, ReshardReport& report) {
  Checkpoint checkpoint = open_checkpoint(file_system, options.source, options.open);
  Work work;
  work.output = output_of(options, checkpoint);
  RunTokenizer tokenizer;
  RunState state = state_to_write(*file_system, checkpoint, work.output, options, tokenizer);
  Target target = plan_target(std::move(state), options, work.output.folder());
  report = describe(checkpoint, work.output, target);
  work.planned = std::move(target.planned);
  add_files(*file_system, tokenizer.files, kTokenizerFolder, work.planned);
  return work;
}

}  // namespace

ReshardReport reshard(const ReshardOptions& options) {
  check_options(options);
  ReshardReport report;
  const auto plan = [&](const std::shared_ptr<const FileSystem>& file_system) {
    return plan_reshard(file_system, options, report);
  };
  report.written = with_paths({options.source, options.target, options.config_folder},
                              [&] { return carry_out(options.write, plan, report.warnings); });
  return report;
}

}  // namespace ferry
