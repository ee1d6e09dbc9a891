#include "tools/reshard/reshard_job.h"

#include <algorithm>
#include <chrono>

#include "ckpt/base/error.h"
#include "ckpt/core/placed.h"
#include "ckpt/group/together.h"
#include "ckpt/megatron/args.h"
#include "ckpt/megatron/legacy/write/legacy_writer.h"
#include "ckpt/megatron/optimizer/optimizer_form.h"
#include "ckpt/megatron/state/edit.h"
#include "ckpt/megatron/state/retarget.h"
#include "ckpt/megatron/state/state_of.h"
#include "ckpt/megatron/torch_dist/plain_dcp_writer.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "tools/output/run_output.h"
#include "tools/output/target_folder.h"
#include "tools/terminal/glob.h"

namespace ferry::tool {
namespace {

void require_matches(const RunState& state, const std::vector<std::string>& patterns,
                     std::string_view option) {
  for (const std::string& pattern : patterns) {
    const bool any =
        std::any_of(state.tensors.begin(), state.tensors.end(), [&](const StateTensor& tensor) {
          return glob_matches(pattern, tensor.name) ||
                 glob_matches(pattern, model_name(tensor.name));
        });
    if (any) continue;
    fail(ErrorKind::invalid, "{} '{}' matches no tensor; `ferry inspect --tensors` lists them",
         option, pattern);
  }
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return glob_matches(pattern, name); });
}

void rename(RunState& state, const ReshardOptions& options) {
  std::vector<bool> used(options.renames.size());
  rename_tensors(state, [&](std::string_view name) {
    for (size_t i = 0; i < options.renames.size(); ++i) {
      const auto& [from, to] = options.renames[i];
      if (const auto renamed = rename_of(name, from, to)) {
        used[i] = true;
        return *renamed;
      }
    }
    return std::string(name);
  });
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    fail(ErrorKind::invalid, "--rename '{}={}' matches no tensor of the model",
         options.renames[i].first, options.renames[i].second);
  }
}

// Cuts the state up as the options ask for.
void edit(RunState& state, const ReshardOptions& options) {
  require_matches(state, options.only, "--only");
  require_matches(state, options.drop, "--drop");
  if (!options.only.empty()) {
    keep_tensors(state, [&](std::string_view name) { return matches_any(options.only, name); });
  }
  if (!options.drop.empty()) {
    drop_tensors(state, [&](std::string_view name) { return matches_any(options.drop, name); });
  }
  if (state.tensors.empty()) fail(ErrorKind::invalid, "--only and --drop leave no tensor");
  if (!options.renames.empty()) rename(state, options);
  if (options.dtype) cast_model(state, *options.dtype);
}

ShardedOptimizer sharded_form(ReshardOptimizer wanted, const RunState& state) {
  switch (wanted) {
    case ReshardOptimizer::as_source:
      return has_distributed_optimizer(state) ? ShardedOptimizer::fully_reshardable
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
};

bool has_optimizer(const Plan& plan) {
  return std::any_of(plan.target.entries.begin(), plan.target.entries.end(),
                     [](const Entry& entry) { return entry.role == Role::optimizer; });
}

void plan_dcp(RunState state, const ReshardOptions& options, Target& target) {
  target.side.format = name(Format::dcp);
  const bool optimizer = options.optimizer != ReshardOptimizer::none;
  target.planned = plan_plain_dcp(std::move(state),
                                  {optimizer, target.side.path, options.zstd_level.has_value()});
  if (has_optimizer(target.planned.plan)) target.side.optimizer = name(OptimizerLayout::plain);
}

void plan_torch(RunState state, const ReshardOptions& options, Target& target) {
  target.side.format = name(Format::megatron_torch);
  if (options.optimizer == ReshardOptimizer::legacy) set_distributed_optimizer(state, true);
  if (!has_distributed_optimizer(state)) drop_doubled_masters(state);
  const bool optimizer = options.optimizer != ReshardOptimizer::none;
  target.planned = plan_legacy(state, {optimizer});
  if (optimizer && !state.param_groups.empty()) {
    target.side.optimizer =
        name(has_distributed_optimizer(state) ? OptimizerLayout::legacy_distributed
                                              : OptimizerLayout::plain);
  }
}

void plan_sharded(RunState state, const ReshardOptions& options, Target& target) {
  target.side.format = name(Format::torch_dist);
  TorchDistOptions writer;
  writer.release = options.release;
  writer.optimizer = sharded_form(options.optimizer, state);
  writer.checkpoint_id = target.side.path;
  writer.zstd = options.zstd_level.has_value();
  target.planned = plan_torch_dist(std::move(state), writer);
  if (has_optimizer(target.planned.plan)) target.side.optimizer = word(writer.optimizer);
}

Target plan_target(RunState state, const ReshardOptions& options, const std::string& folder) {
  Target target;
  target.side.path = folder;
  target.side.layout = layout_from_args(state.args.value);
  switch (options.to) {
    case ReshardFormat::torch_dist:
      plan_sharded(std::move(state), options, target);
      break;
    case ReshardFormat::torch:
      plan_torch(std::move(state), options, target);
      break;
    case ReshardFormat::dcp:
      plan_dcp(std::move(state), options, target);
      break;
  }
  return target;
}

ReshardReport describe(const Checkpoint& checkpoint, const ReshardOptions& options,
                       const Target& target) {
  const Plan& plan = target.planned.plan;
  ReshardReport report;
  report.source = {checkpoint.path, std::string(name(checkpoint.format)), {}, checkpoint.layout};
  if (checkpoint.optimizer != OptimizerLayout::none) {
    report.source.optimizer = name(checkpoint.optimizer);
  }
  report.target = target.side;
  report.iteration = checkpoint.iteration;
  report.tensors = static_cast<int64_t>(plan.target.entries.size());
  for (const Entry& entry : plan.target.entries) {
    if (entry.role == Role::model) report.parameters += entry.elements();
  }
  report.written = {files_of(target.planned), options.dry_run, 0};
  report.warnings = target.planned.warnings;
  return report;
}

void check_options(const ReshardOptions& options) {
  const auto refuse = [](std::string_view option, std::string_view format, std::string_view why) {
    fail(ErrorKind::invalid, "{} means nothing with --to {}{}", option, format, why);
  };
  const bool per_parameter = options.optimizer == ReshardOptimizer::fully_reshardable;
  const bool flat = options.optimizer == ReshardOptimizer::dp_reshardable;
  const bool legacy = options.optimizer == ReshardOptimizer::legacy;
  switch (options.to) {
    case ReshardFormat::torch_dist:
      if (legacy) refuse("--optimizer legacy", "torch_dist", ": that is --to torch");
      return;
    case ReshardFormat::torch:
      if (options.zstd_level)
        refuse("--compress", "torch", ": PyTorch reads such files as they are");
      if (per_parameter || flat) {
        refuse("this --optimizer", "torch", ": distrib_optim.pt is --optimizer legacy");
      }
      break;
    case ReshardFormat::dcp:
      if (flat || legacy) {
        refuse("this --optimizer", "dcp", ": optimizer state is stored per parameter there");
      }
      break;
  }
  if (options.release != kNewestCore) {
    refuse("--core-release", options.to == ReshardFormat::dcp ? "dcp" : "torch", "");
  }
}

// The folder that will appear.
std::string check_place(const FileSystem& file_system, const ReshardOptions& options,
                        const Checkpoint& checkpoint, const RunOutput& output) {
  if (options.to != ReshardFormat::dcp) {
    check_run_output(file_system, output, checkpoint.path);
    return output.folder();
  }
  const auto is_checkpoint = [&](const std::string& folder) {
    return holds_checkpoint(file_system, folder);
  };
  check_target(file_system,
               {checkpoint.path, options.target, options.overwrite, is_checkpoint, "checkpoint",
                FolderContent::checkpoint});
  return options.target;
}

}  // namespace

ReshardReport reshard(const ReshardOptions& options) {
  check_options(options);
  const std::shared_ptr<const FileSystem> file_system = posix_file_system();
  Checkpoint checkpoint;
  RunOutput output;
  Target target;
  together(*options.group, [&] {
    checkpoint = open_checkpoint(file_system, options.source, options.open);
    output = {options.target, checkpoint.iteration, options.overwrite};
    const std::string folder = check_place(*file_system, options, checkpoint, output);
    RunState state = state_of(checkpoint);
    edit(state, options);
    retarget(state, options.layout, options.vocabulary_divisor);
    target = plan_target(std::move(state), options, folder);
    prepare(target.planned, options.vouchers);
    return std::string();
  });
  ReshardReport report = describe(checkpoint, options, target);
  if (options.dry_run) {
    if (options.zstd_level) report.warnings.push_back(kSizesBeforeCompression);
    return report;
  }

  const WriteOptions write = {options.engine, options.vouchers, checkpoint.mark.get(),
                              options.zstd_level, options.group};
  const auto start = std::chrono::steady_clock::now();
  const auto notes =
      options.to == ReshardFormat::dcp
          ? write_folder(file_system, target.side.path, options.overwrite, target.planned, write)
          : write_iteration(file_system, output, target.planned, write);
  report.written.files = files_of(target.planned);
  report.written.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.warnings.insert(report.warnings.end(), notes.begin(), notes.end());
  return report;
}

std::optional<std::string> rename_of(std::string_view name, std::string_view from,
                                     std::string_view to) {
  const size_t star = from.find('*');
  if (star == std::string_view::npos) {
    return name == from ? std::optional(std::string(to)) : std::nullopt;
  }
  const std::string_view before = from.substr(0, star), after = from.substr(star + 1);
  if (name.size() < before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after)) {
    return std::nullopt;
  }
  const std::string_view kept =
      name.substr(before.size(), name.size() - before.size() - after.size());
  std::string renamed(to);
  if (const size_t at = renamed.find('*'); at != std::string::npos) renamed.replace(at, 1, kept);
  return renamed;
}

}  // namespace ferry::tool
