#include "ckpt/store/step_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/base/name_pattern.h"
#include "ckpt/store/run_folder.h"

namespace ferry {
namespace {

constexpr std::string_view kLatest = "latest";
constexpr std::string_view kTitanStep = "step-";
constexpr uint64_t kMostTrackerBytes = 4096;
constexpr size_t kStepsShown = 8;

// Names with numbers in the place of '#', of which the last is the step's.
constexpr std::string_view kGlobal[] = {"global_step_#", "global_step#", "global_step#_universal"};
constexpr std::string_view kNumbered[] = {"checkpoint-#", "checkpoint_#",   "step-#", "step_#",
                                          "step#",        "epoch_#_step_#", "ep#-ba#"};

using Names = std::vector<std::string>;
using Steps = std::vector<std::pair<int64_t, std::string>>;  // rising

bool is_folder(const FileSystem& files, const std::string& path) {
  return files.status(path).kind == PathKind::folder;
}

std::string tracked(const FileSystem& files, const std::string& path) {
  if (files.status(path).kind != PathKind::file) return {};
  std::string text = read_file(files, path, kMostTrackerBytes);
  const auto blank = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  return text;
}

// The part of verl's step that has the weights: rank files, or Megatron-LM's checkpoint.
StepFolder weights_in(const FileSystem& files, const std::string& step) {
  StepFolder found{join(step, "actor"), {}};
  if (!is_folder(files, found.path)) return {step, {}};
  if (is_folder(files, join(step, "critic"))) found.other_parts.push_back("critic");
  const std::string sharded = join(found.path, "dist_ckpt");
  if (is_folder(files, sharded)) found.path = sharded;
  return found;
}

std::optional<int64_t> number_of(std::span<const std::string_view> patterns,
                                 std::string_view name) {
  for (const std::string_view pattern : patterns) {
    if (const auto number = last_number(pattern, name)) return number;
  }
  return std::nullopt;
}

// torchtitan's saves are complete with a file that is written last; others are passed over, as it
// does.
bool is_complete(const FileSystem& files, const std::string& folder, std::string_view name) {
  if (!is_folder(files, folder)) return false;
  if (!name.starts_with(kTitanStep)) return true;
  return files.status(join(folder, ".metadata")).kind == PathKind::file ||
         files.status(join(folder, "model.safetensors.index.json")).kind == PathKind::file;
}

// Folders that are named by one of `patterns`.
Steps steps_in(const FileSystem& files, const std::string& path, const Names& names,
               std::span<const std::string_view> patterns) {
  Steps steps;
  for (const std::string& name : names) {
    const auto number = number_of(patterns, name);
    if (number && is_complete(files, join(path, name), name)) steps.emplace_back(*number, name);
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return steps;
}

std::string names_of(const Steps& steps) {
  std::string text;
  for (size_t i = 0; i < steps.size() && i < kStepsShown; ++i) {
    text += (i > 0 ? ", " : "") + steps[i].second;
  }
  return text + (steps.size() > kStepsShown ? ", ..." : "");
}

// The name of the step of the number or name `step`.
std::string find_step(const Steps& steps, const std::string& path, std::string_view step) {
  for (const auto& [number, name] : steps) {
    if (step == name || step == std::to_string(number)) return name;
  }
  fail(ErrorKind::not_found, "{}: holds no step {}; there are {}; choose one ({})", path, step,
       names_of(steps), option("iteration"));
}

// The last step by the files that DeepSpeed and verl leave, and by the steps that there are; empty:
// nothing says. Nothing when it is not a run of these.
std::optional<std::string> last_global_step(const FileSystem& files, const std::string& path,
                                            const Names& names, const Steps& steps) {
  const auto read = [&](std::string_view name) {
    return tracked(files, join(path, std::string(name)));
  };
  if (has_name(names, kLatest)) {
    const std::string name = read(kLatest);
    const bool is_name = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
    if (!is_name || (!has_name(names, name) && steps.empty())) return std::nullopt;
    return name;
  }
  if (steps.empty()) return std::nullopt;
  if (has_name(names, kTrackerName)) return fmt::format("global_step_{}", read(kTrackerName));
  return steps.size() == 1 ? steps.front().second : std::string();
}

}  // namespace

std::optional<StepFolder> step_folder(const FileSystem& file_system, const std::string& path,
                                      std::string_view step) {
  const Names names = file_system.list(path);
  const Steps steps = steps_in(file_system, path, names, kGlobal);
  if (steps.empty() && !has_name(names, kLatest) && !has_name(names, kTrackerName)) {
    const Steps numbered = steps_in(file_system, path, names, kNumbered);
    if (numbered.empty()) return std::nullopt;
    const std::string name =
        step.empty() ? numbered.back().second : find_step(numbered, path, step);
    return weights_in(file_system, join(path, name));
  }
  if (!step.empty()) {
    if (steps.empty()) return std::nullopt;
    return weights_in(file_system, join(path, find_step(steps, path, step)));
  }
  const auto name = last_global_step(file_system, path, names, steps);
  if (!name) return std::nullopt;
  if (name->empty()) {
    fail(ErrorKind::invalid,
         "{}: holds several steps, and nothing says which is the last; there are {}; choose one "
         "({})",
         path, names_of(steps), option("iteration"));
  }
  if (!is_folder(file_system, join_untrusted(path, *name))) {
    fail(ErrorKind::not_found,
         "{}: its last save should be {}, which is not there; there are {}; choose one "
         "({})",
         path, *name, names_of(steps), option("iteration"));
  }
  return weights_in(file_system, join(path, *name));
}

std::vector<std::string> step_names(const FileSystem& file_system, const std::string& path) {
  const Names names = file_system.list(path);
  Steps steps = steps_in(file_system, path, names, kGlobal);
  if (steps.empty()) steps = steps_in(file_system, path, names, kNumbered);
  Names result;
  for (auto& [number, name] : steps) result.push_back(std::move(name));
  return result;
}

std::optional<int64_t> step_number(std::string_view name) {
  const auto number = number_of(kGlobal, name);
  return number ? number : number_of(kNumbered, name);
}

}  // namespace ferry
