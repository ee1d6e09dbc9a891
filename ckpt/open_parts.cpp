#include "ckpt/open_parts.h"

#include <string_view>

#include "ckpt/format/hugging_face/training_folder.h"

namespace ferry {
namespace {

// A step's folder; longer paths before those that they begin with.
struct StepParts {
  std::string_view model;
  std::string_view optimizer;  // "" for none of its own
  std::string_view needs;      // that must be there, as the model's name is a common one
};
constexpr StepParts kSteps[] = {
    {"policy/weights/model", "policy/optimizer/optim", ""},  // NeMo-RL with AutoModel's files
    {"policy/weights", "policy/optimizer", ""},
    {"actor/dist_ckpt", "", ""},
    {"actor", "", ""},
    {"model_and_optim", "", ""},
    {"model", "optim", "optim"},
    {"model", "optimizer", "optimizer"},  // slime with FSDP
    {"trainer", "", ""},
    {"weights", "", "huggingface"},
};

bool is_folder(const FileSystem& files, const std::string& path) {
  return files.status(path).kind == PathKind::folder;
}

}  // namespace

std::optional<CheckpointParts> checkpoint_parts(
    const FileSystem& file_system, const std::string& folder,
    const std::function<bool(const std::string& path)>& is_checkpoint) {
  const auto has = [&](std::string_view part) {
    return is_folder(file_system, join(folder, std::string(part)));
  };
  for (const StepParts& step : kSteps) {
    if (!has(step.model) || (!step.needs.empty() && !has(step.needs))) continue;
    if (!is_checkpoint(join(folder, std::string(step.model)))) continue;
    const bool optimizer = !step.optimizer.empty() && has(step.optimizer);
    return CheckpointParts{std::string(step.model), std::string(optimizer ? step.optimizer : "")};
  }
  const auto part = model_part(file_system, folder);
  return part ? std::optional(CheckpointParts{*part, ""}) : std::nullopt;
}

}  // namespace ferry
