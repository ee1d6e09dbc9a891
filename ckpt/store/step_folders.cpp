#include "ckpt/store/step_folders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/store/run_folder.h"

namespace ferry {
namespace {

constexpr std::string_view kLatest = "latest", kStep = "global_step";
constexpr std::string_view kCheckpoint = "checkpoint";  // and a number behind '-' or '_'
constexpr std::string_view kTitanStep = "step-";
constexpr uint64_t kMostTrackerBytes = 4096;
constexpr size_t kStepsShown = 8;

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
std::string weights_in(const FileSystem& files, const std::string& step) {
  const std::string actor = join(step, "actor");
  if (!is_folder(files, actor)) return step;
  const std::string sharded = join(actor, "dist_ckpt");
  return is_folder(files, sharded) ? sharded : actor;
}

// N of "checkpoint-N", and of "step-N".
std::optional<int64_t> checkpoint_number(std::string_view name) {
  if (name.starts_with(kTitanStep)) {
    name.remove_prefix(kTitanStep.size());
  } else {
    if (!name.starts_with(kCheckpoint)) return std::nullopt;
    name.remove_prefix(kCheckpoint.size());
    if (!name.starts_with('-') && !name.starts_with('_')) return std::nullopt;
    name.remove_prefix(1);
  }
  int64_t number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < 0) return std::nullopt;
  return number;
}

// torchtitan's saves are complete with a file that is written last; others are passed over, as it
// does.
bool is_complete(const FileSystem& files, const std::string& folder, std::string_view name) {
  if (!is_folder(files, folder)) return false;
  if (!name.starts_with(kTitanStep)) return true;
  return files.status(join(folder, ".metadata")).kind == PathKind::file ||
         files.status(join(folder, "model.safetensors.index.json")).kind == PathKind::file;
}

// Of Trainer's checkpoints that of the number or name `wanted`, or that of the largest number.
std::optional<std::string> trainer_step(const FileSystem& files, const std::string& path,
                                        const std::vector<std::string>& names,
                                        std::string_view wanted) {
  std::optional<std::string> found;
  std::vector<std::string> all;
  int64_t last = -1;
  for (const std::string& name : names) {
    const auto number = checkpoint_number(name);
    if (!number || !is_complete(files, join(path, name), name)) continue;
    if (all.size() < kStepsShown) all.push_back(name);
    const bool is =
        wanted.empty() ? *number > last : wanted == name || wanted == fmt::format("{}", *number);
    if (is) found = name, last = *number;
  }
  if (found) return join(path, *found);
  if (all.empty()) return std::nullopt;
  fail(ErrorKind::not_found, "{}: holds no step {}; there are {}{}; choose one (--iteration)", path,
       wanted, fmt::join(all, ", "), all.size() < kStepsShown ? "" : ", ...");
}

}  // namespace

std::optional<std::string> step_folder(const FileSystem& file_system, const std::string& path,
                                       std::string_view wanted) {
  const std::vector<std::string> names = file_system.list(path);
  std::vector<std::string> steps;
  for (const std::string& name : names) {
    if (name.starts_with(kStep) && is_folder(file_system, join(path, name))) steps.push_back(name);
  }
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (steps.empty() && !has(kLatest) && !has(kTrackerName)) {
    if (auto step = trainer_step(file_system, path, names, wanted)) return step;
  }
  std::string name;
  if (!wanted.empty()) {
    if (steps.empty()) return std::nullopt;
    for (const std::string& step : steps) {
      const std::string_view number = std::string_view(step).substr(kStep.size());
      const bool is = step == wanted || number == wanted ||
                      (number.starts_with('_') && number.substr(1) == wanted);
      if (is) name = step;
    }
  } else if (has(kLatest)) {
    name = tracked(file_system, join(path, std::string(kLatest)));
    const bool is_name = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
    if (!is_name || (!has(name) && steps.empty())) return std::nullopt;
  } else if (steps.empty()) {
    return std::nullopt;
  } else if (has(kTrackerName)) {
    name = fmt::format("{}_{}", kStep, tracked(file_system, join(path, std::string(kTrackerName))));
  } else if (steps.size() == 1) {
    name = steps.front();
  }
  if (!name.empty() && is_folder(file_system, join_untrusted(path, name))) {
    return weights_in(file_system, join(path, name));
  }
  const size_t shown = std::min(steps.size(), kStepsShown);
  fail(name.empty() && wanted.empty() ? ErrorKind::invalid : ErrorKind::not_found,
       "{}: {}; there are {}{}; choose one (--iteration)", path,
       !wanted.empty() ? fmt::format("holds no step {}", wanted)
       : name.empty()  ? std::string("holds several steps, and nothing says which is the last")
                       : fmt::format("its last save should be {}, which is not there", name),
       fmt::join(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
       steps.size() > shown ? ", ..." : "");
}

}  // namespace ferry
