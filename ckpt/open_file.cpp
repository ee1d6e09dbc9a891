#include "ckpt/open_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/base/name_pattern.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/format/torch/torch_file.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/io/tar_file_system.h"
#include "ckpt/megatron/nemo/nemo.h"
#include "ckpt/open_folders.h"
#include "ckpt/store/run_folder.h"

namespace ferry {
namespace {

enum class FileKind { safetensors, torch, tar, unknown };

FileKind sniff(const ReadableFile& file) {
  std::array<std::byte, 9> head{};
  if (file.size() < head.size()) return FileKind::unknown;
  file.read(0, head);
  const auto at = [&](size_t i) { return std::to_integer<unsigned char>(head[i]); };
  if (at(0) == 'P' && at(1) == 'K') return FileKind::torch;
  if (at(0) == 0x80 && at(1) >= 1 && at(1) <= 5) return FileKind::torch;
  if (is_tar(file)) return FileKind::tar;
  uint64_t header = 0;
  for (size_t i = 8; i-- > 0;) header = header << 8 | at(i);
  const bool plausible = at(8) == '{' && header <= file.size() - 8;
  return plausible ? FileKind::safetensors : FileKind::unknown;
}

FileKind kind_of(const ReadableFile& file, const std::string& path) {
  if (path.ends_with(".safetensors")) return FileKind::safetensors;
  const FileKind kind = sniff(file);
  const bool torch_suffix =
      path.ends_with(".pt") || path.ends_with(".pth") || path.ends_with(".bin");
  return torch_suffix && kind == FileKind::unknown ? FileKind::torch : kind;
}

void check_is_whole(FileKind kind, const std::string& path) {
  const std::string name = split_path(path).name;
  const bool inside_checkpoint = name.ends_with(".distcp") || name.ends_with(".metadata") ||
                                 name == kTrackerName || name == "metadata.json" ||
                                 name == "config.json" || name.ends_with(".index.json");
  if (inside_checkpoint) {
    fail(ErrorKind::invalid,
         "{}: this file is a part of a checkpoint; give the folder that holds it", path);
  }
  if (kind == FileKind::unknown) {
    fail(ErrorKind::unsupported, "{}: neither a safetensors file nor one that torch.save wrote",
         path);
  }
}

// NeMo 1 archives are read as they are.
Checkpoint open_archive(std::shared_ptr<const FileSystem> files, const std::string& path,
                        bool raw) {
  const auto archive = with_archive(std::move(files), path);
  if (!is_nemo1_folder(*archive, path)) {
    fail(ErrorKind::unsupported,
         "{}: is a tar archive, but not of NeMo (model_config.yaml, model_weights.ckpt); extract "
         "it (tar -xf) and give the folder",
         path);
  }
  return open_nemo1(archive, path, raw);
}

}  // namespace

Checkpoint open_checkpoint_file(std::shared_ptr<const FileSystem> file_system,
                                const std::string& path, bool raw) {
  const auto file = file_system->open(path);
  const FileKind kind = kind_of(*file, path);
  if (kind != FileKind::safetensors) {
    const std::string other = other_file(*file);
    if (!other.empty()) fail(ErrorKind::unsupported, "{}: {}", path, other);
  }
  check_is_whole(kind, path);
  auto lock = std::make_shared<ReaderLock>(*file_system, path);
  Checkpoint checkpoint;
  if (kind == FileKind::tar) {
    checkpoint = open_archive(std::move(file_system), path, raw);
  } else if (kind == FileKind::safetensors) {
    checkpoint.format = Format::safetensors;
    checkpoint.writer = "safetensors";
    checkpoint.catalog = open_safetensors_file(std::move(file_system), path);
  } else {
    checkpoint.format = Format::torch_file;
    checkpoint.writer = "torch.save";
    checkpoint.catalog = open_torch_file(std::move(file_system), path);
    if (!raw) drop_extra_states(checkpoint);
  }
  checkpoint.path = path;
  checkpoint.catalog.edit().reader_locks = {std::move(lock)};
  return checkpoint;
}

std::shared_ptr<const FileSystem> with_archive(std::shared_ptr<const FileSystem> file_system,
                                               const std::string& path) {
  if (file_system->status(path).kind != PathKind::file) return file_system;
  return sniff(*file_system->open(path)) == FileKind::tar
             ? tar_file_system(std::move(file_system), path)
             : file_system;
}

bool is_torch_save_file(const ReadableFile& file) { return sniff(file) == FileKind::torch; }

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
