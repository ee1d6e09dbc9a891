#include "ckpt/lone_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/base/name_pattern.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/open_file.h"

namespace ferry {
namespace {

using Names = std::vector<std::string>;

// What is next to a model, and is none.
constexpr std::string_view kOthers[] = {
    "optim",         "scheduler",   "scaler",           "rng",      "random_states",
    "training_args", "sampler",     "dataloader",       "dl_state", "extra_state",
    "trainer_state", "train_state", "custom_checkpoint"};

// How a program names its file, and what becomes of it.
struct Program {
  std::string_view pattern;    // with numbers in the place of '#'
  std::string_view companion;  // that is there, too; "" for nothing
  std::string_view name;
  bool counts_steps;  // the last number is the step's; else it counts shards, or there is none
  std::string_view conversion;
};
constexpr std::string_view kMetaConversion =
    "transformers' convert_llama_weights_to_hf.py makes a Hugging Face model of it";
constexpr Program kPrograms[] = {
    {"ep#-ba#-rank0.pt", "", "Composer", true, ""},
    {"latest-rank0.pt", "", "Composer", false, ""},
    {"model_#.pt", "meta_*.json", "nanochat", true,
     "its architecture is nanochat's own, which no family of transformers has"},
    {"lit_model.pth", "model_config.yaml", "litgpt", false,
     "`litgpt convert_from_litgpt` names its tensors as transformers does"},
    {"consolidated.#.pth", "params.json", "Meta's llama", false, kMetaConversion}};

bool is_candidate(const FileSystem& files, const std::string& folder, const std::string& name) {
  constexpr std::string_view kSuffixes[] = {".pt", ".pth", ".ckpt", ".bin", ".nemo"};
  const bool suffix =
      std::ranges::any_of(kSuffixes, [&](std::string_view end) { return name.ends_with(end); });
  const bool other =
      std::ranges::any_of(kOthers, [&](std::string_view begin) { return name.starts_with(begin); });
  if (!suffix || other) return false;
  const std::string path = join(folder, name);
  if (files.status(path).kind != PathKind::file) return false;
  if (name.ends_with(".nemo")) return true;
  try {
    return is_torch_save_file(*files.open(path));
  } catch (const Error&) {
    return true;  // why it cannot be read is said when it is opened
  }
}

Names candidates(const FileSystem& files, const std::string& folder, const Names& names) {
  Names found;
  for (const std::string& name : names) {
    if (is_candidate(files, folder, name)) found.push_back(name);
  }
  return found;
}

// Files that are left unread, which may hold an optimizer.
Names others(const FileSystem& files, const std::string& folder, const Names& names) {
  Names found;
  for (const std::string& name : names) {
    const bool other = std::ranges::any_of(
        kOthers, [&](std::string_view begin) { return name.starts_with(begin); });
    if (other && files.status(join(folder, name)).kind == PathKind::file) found.push_back(name);
  }
  return found;
}

bool has_companion(const Names& names, std::string_view companion) {
  const size_t star = companion.find('*');
  if (star == std::string_view::npos)
    return companion.empty() || std::ranges::count(names, companion);
  return std::ranges::any_of(names, [&](const std::string& name) {
    return name.starts_with(companion.substr(0, star)) &&
           name.ends_with(companion.substr(star + 1));
  });
}

const Program* program_of(const std::string& file, const Names& names) {
  const auto found = std::ranges::find_if(kPrograms, [&](const Program& program) {
    return fits_pattern(program.pattern, file) && has_companion(names, program.companion);
  });
  return found == std::end(kPrograms) ? nullptr : &*found;
}

// The last step's of several files, where all are steps of one program.
std::string last_step(const std::string& folder, const Names& files, const Program* program) {
  if (files.size() == 1) return files.front();
  if (program && program->name == "Meta's llama") {
    fail(ErrorKind::unsupported, "{}: the {} shards of a model of Meta's llama ({}); {}", folder,
         files.size(), some_of(files), program->conversion);
  }
  const std::string* last = nullptr;
  int64_t step = -1;
  for (const std::string& file : files) {
    const auto number = program ? last_number(program->pattern, file) : std::nullopt;
    if (!number || !program->counts_steps) {
      fail(ErrorKind::invalid,
           "{}: holds several torch.save files, and it is unknown which is the model; give the "
           "path of one: {}",
           folder, some_of(files));
    }
    if (*number > step) last = &file, step = *number;
  }
  return *last;
}

}  // namespace

bool has_lone_file(const FileSystem& file_system, const std::string& folder) {
  const Names names = file_system.list(folder);
  if (adapter_base(file_system, folder)) return false;
  return std::ranges::any_of(
      names, [&](const std::string& name) { return is_candidate(file_system, folder, name); });
}

Checkpoint open_lone_file(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                          bool raw) {
  const Names names = file_system->list(folder);
  const Names files = candidates(*file_system, folder, names);
  if (files.empty()) fail(ErrorKind::not_found, "{}: no torch.save file in it", folder);
  // "latest-rank0.pt" leads to one of the others.
  Names steps = files;
  if (steps.size() > 1) std::erase(steps, "latest-rank0.pt");
  const Program* program = program_of(steps.front(), names);
  const std::string file = last_step(folder, steps, program);
  const Names left = others(*file_system, folder, names);
  Checkpoint checkpoint = open_checkpoint_file(std::move(file_system), join(folder, file), raw);
  if (program) {
    checkpoint.writer = fmt::format("{} ({})", program->name, checkpoint.writer);
    if (program->counts_steps) checkpoint.iteration = last_number(program->pattern, file);
    checkpoint.conversion = program->conversion;
  }
  std::string note = fmt::format("{}: the model is in its file {}", folder, file);
  if (steps.size() > 1) note += fmt::format(", the last of {} steps", steps.size());
  if (!left.empty()) note += fmt::format("; not read: {}", some_of(left));
  checkpoint.notes.insert(checkpoint.notes.begin(), std::move(note));
  return checkpoint;
}

}  // namespace ferry
