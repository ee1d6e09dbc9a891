#include "ckpt/format/hugging_face/training_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/base/name_pattern.h"
#include "ckpt/format/hugging_face/json_events.h"

namespace ferry {
namespace {

constexpr const char* kTrainerState = "trainer_state.json";
constexpr uint64_t kMostStateBytes = uint64_t{64} << 20;
constexpr size_t kMostPartsShown = 4;

// A name, or one with a number in the place of '#'.
struct Known {
  std::string_view pattern;
  std::string_view kind;
};
constexpr Known kFiles[] = {{"trainer_state.json", "state"},
                            {"optimizer.pt", "optimizer"},
                            {"optimizer.bin", "optimizer"},
                            {"optimizer_#.bin", "optimizer"},
                            {"scheduler.pt", "scheduler"},
                            {"scheduler.bin", "scheduler"},
                            {"scheduler_#.bin", "scheduler"},
                            {"scaler.pt", "scaler"},
                            {"rng_state.pth", "random numbers"},
                            {"rng_state_#.pth", "random numbers"},
                            {"random_states_#.pkl", "random numbers"},
                            {"sampler.bin", "sampler"},
                            {"sampler_#.bin", "sampler"},
                            {"dl_state_dict.bin", "sampler"},
                            {"dl_state_dict_#.bin", "sampler"},
                            {"custom_checkpoint_#.pkl", "custom state"},
                            {"training_args.bin", "arguments"},
                            {"pytorch_model_fsdp.bin", "model by FSDP"},
                            {"pytorch_model_fsdp_#.bin", "model by FSDP"},
                            {"pytorch_model_fsdp_rank#.bin", "model by FSDP"},
                            {"pytorch_model_fsdp_#_rank#.bin", "model by FSDP"}};
constexpr Known kFolders[] = {{"optimizer_#", "optimizer"},
                              {"pytorch_model_fsdp_#", "model by FSDP"},
                              {"global_step#", "model and optimizer by DeepSpeed"},
                              {"pytorch_model", "model and optimizer by DeepSpeed"}};

std::string with_stars(std::string_view pattern) {
  std::string text(pattern);
  std::ranges::replace(text, '#', '*');
  return text;
}

void read_trainer_state(const FileSystem& files, const std::string& path, TrainingFolder& found) {
  constexpr std::array<std::string_view, 3> kMembers = {"epoch", "global_step", "max_steps"};
  try {
    const std::string text = read_file(files, path, kMostStateBytes);
    const nlohmann::json state = parse_python_members(text, path, kMembers);
    const auto count = [&](const char* name) -> std::optional<int64_t> {
      const auto at = state.is_object() ? state.find(name) : state.end();
      if (!state.is_object() || at == state.end() || !at->is_number_integer()) return std::nullopt;
      const int64_t value = at->get<int64_t>();
      return value >= 0 ? std::optional(value) : std::nullopt;
    };
    found.step = count("global_step");
    found.last_step = count("max_steps");
    if (state.is_object() && state.contains("epoch") && state["epoch"].is_number()) {
      const double epoch = state["epoch"].get<double>();
      if (std::isfinite(epoch) && epoch >= 0) found.epoch = epoch;
    }
    if (!found.step) found.problem = fmt::format("{}: has no global_step", path);
  } catch (const Error& error) {
    found.problem = error.what();
  }
}

bool is_rank_file(std::string_view name) {
  return fits_pattern("pytorch_model_fsdp_rank#.bin", name) ||
         fits_pattern("pytorch_model_fsdp_#_rank#.bin", name);
}

}  // namespace

TrainingFolder read_training_folder(const FileSystem& file_system, const std::string& folder) {
  TrainingFolder found;
  const std::vector<std::string> names = file_system.list(folder);
  const auto add = [&](const Known& known, bool is_folder) {
    TrainingPart part{std::string(known.kind), {}, 0, is_folder};
    for (const std::string& name : names) {
      if (!fits_pattern(known.pattern, name)) continue;
      const PathKind kind = file_system.status(join(folder, name)).kind;
      if (kind != (is_folder ? PathKind::folder : PathKind::file)) continue;
      part.name = part.count == 0 ? name : with_stars(known.pattern);
      ++part.count;
    }
    if (part.count > 0) found.parts.push_back(std::move(part));
  };
  for (const Known& known : kFiles) add(known, false);
  for (const Known& known : kFolders) add(known, true);
  // What everybody calls so says nothing without something that only these programs write.
  const auto is_common = [](const TrainingPart& part) {
    return part.name == "optimizer.pt" || part.name == "pytorch_model" ||
           part.name.starts_with("global_step");
  };
  if (std::ranges::all_of(found.parts, is_common)) found.parts.clear();
  if (std::ranges::find(names, kTrainerState) != names.end()) {
    read_trainer_state(file_system, join(folder, kTrainerState), found);
  }
  return found;
}

std::optional<std::string> model_part(const FileSystem& file_system, const std::string& folder) {
  std::vector<std::string> parts;
  bool has_rank_files = false;
  for (const std::string& name : file_system.list(folder)) {
    const bool may_be_folder = fits_pattern("pytorch_model_fsdp_#", name);
    const bool may_be_file = fits_pattern("pytorch_model_fsdp.bin", name) ||
                             fits_pattern("pytorch_model_fsdp_#.bin", name);
    const PathKind kind = file_system.status(join(folder, name)).kind;
    has_rank_files |= kind == PathKind::file && is_rank_file(name);
    if ((may_be_folder && kind == PathKind::folder) || (may_be_file && kind == PathKind::file)) {
      parts.push_back(name);
    }
  }
  if (parts.empty() || has_rank_files) return std::nullopt;
  if (parts.size() == 1) return parts.front();
  const size_t shown = std::min(parts.size(), kMostPartsShown);
  fail(ErrorKind::invalid, "{}: holds several models: {}{}; give the path of one", folder,
       fmt::join(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
       parts.size() > shown ? ", ..." : "");
}

}  // namespace ferry
