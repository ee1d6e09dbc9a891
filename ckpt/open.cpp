#include "ckpt/open.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp_safetensors.h"
#include "ckpt/format/deepspeed/deepspeed.h"
#include "ckpt/format/fsdp/fsdp_ranks.h"
#include "ckpt/format/hugging_face/hub_cache.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/training_folder.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/format/torch/torch_file.h"
#include "ckpt/io/staging/read_mark.h"
#include "ckpt/megatron/nemo/nemo.h"
#include "ckpt/megatron/rank_folders/rank_folders.h"
#include "ckpt/megatron/torch_dist/torch_dist.h"
#include "ckpt/open_folders.h"
#include "ckpt/open_optimizer.h"
#include "ckpt/store/run_folder.h"
#include "ckpt/store/step_folders.h"

namespace ferry {
namespace {

using Names = std::vector<std::string>;
using Files = std::shared_ptr<const FileSystem>;

// A folder to be recognised.
struct Folder {
  Folder(const FileSystem& file_system, std::string folder)
      : files(file_system), path(std::move(folder)), names(files.list(path)) {}

  bool has(std::string_view name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  bool has_suffix(std::string_view suffix) const {
    return std::ranges::any_of(names, [&](const std::string& n) { return n.ends_with(suffix); });
  }
  // What ranks leave that saved without collectives.
  bool has_rank_metadata() const {
    return std::ranges::any_of(names, [](const std::string& name) {
      return name.starts_with("__") && name.ends_with(".metadata");
    });
  }

  const FileSystem& files;
  const std::string path;
  const Names names;
};

// One way to store a checkpoint in a folder. Rows come before those that would
// take theirs, too.
struct FolderFormat {
  Format format;
  const char* known_by;  // empty: said by another row
  bool (*is)(const Folder& folder);
  Checkpoint (*open)(Files files, const std::string& path, bool raw);
};

const FolderFormat kFolderFormats[] = {
    {Format::nemo, "",
     [](const Folder& f) { return !nemo_folder_of_weights(f.files, f.path).empty(); },
     [](Files files, const std::string& path, bool raw) {
       const std::string folder = nemo_folder_of_weights(*files, path);
       return open_nemo(std::move(files), folder, raw);
     }},
    {Format::torch_dist, "torch_dist (metadata.json, .metadata)",
     [](const Folder& f) { return f.has("metadata.json"); }, open_torch_dist},
    {Format::dcp, "PyTorch DCP (.metadata)", [](const Folder& f) { return f.has(".metadata"); },
     open_plain_dcp},
    {Format::megatron_torch, "legacy Megatron-LM (mp_rank_*)",
     [](const Folder& f) { return is_legacy_folder(f.files, f.path); }, open_legacy},
    {Format::nemo, "NeMo 2 (weights/, context/)",
     [](const Folder& f) { return is_nemo_folder(f.files, f.path); }, open_nemo},
    {Format::dcp, "",
     [](const Folder& f) {
       return f.has_rank_metadata() || has_safetensors_shards(f.files, f.path);
     },
     open_plain_dcp},
    {Format::fsdp, "FSDP's ranks (model_world_size_W_rank_R.pt, pytorch_model_fsdp_*rankR.bin)",
     [](const Folder& f) { return is_fsdp_folder(f.files, f.path); }, open_fsdp_folder},
    {Format::deepspeed, "DeepSpeed (*_model_states.pt, *_optim_states.pt)",
     [](const Folder& f) { return is_deepspeed_folder(f.files, f.path); }, open_deepspeed_folder},
    {Format::hugging_face, "Hugging Face (config.json, *.safetensors, pytorch_model*.bin)",
     [](const Folder& f) { return is_hugging_face_folder(f.files, f.path); },
     open_hugging_face_folder},
};

const FolderFormat* recognise(const Folder& folder) {
  const auto found = std::ranges::find_if(
      kFolderFormats, [&](const FolderFormat& format) { return format.is(folder); });
  return found == std::end(kFolderFormats) ? nullptr : &*found;
}

// A lone file.

enum class FileKind { safetensors, torch, unknown };

FileKind sniff(const ReadableFile& file) {
  std::array<std::byte, 9> head{};
  if (file.size() < head.size()) return FileKind::unknown;
  file.read(0, head);
  const auto at = [&](size_t i) { return std::to_integer<unsigned char>(head[i]); };
  if (at(0) == 'P' && at(1) == 'K') return FileKind::torch;
  if (at(0) == 0x80 && at(1) >= 1 && at(1) <= 5) return FileKind::torch;
  uint64_t header = 0;
  for (size_t i = 8; i-- > 0;) header = header << 8 | at(i);
  const bool plausible = at(8) == '{' && header <= file.size() - 8;
  return plausible ? FileKind::safetensors : FileKind::unknown;
}

Checkpoint open_file(Files files, const std::string& path) {
  const auto file = files->open(path);
  FileKind kind = sniff(*file);
  if (path.ends_with(".safetensors")) kind = FileKind::safetensors;
  const bool torch_suffix =
      path.ends_with(".pt") || path.ends_with(".pth") || path.ends_with(".bin");
  if (torch_suffix && kind == FileKind::unknown) kind = FileKind::torch;
  const std::string_view name = std::string_view(path).substr(path.find_last_of('/') + 1);
  if (kind != FileKind::safetensors) {
    const std::string other = other_file(*file);
    if (!other.empty()) fail(ErrorKind::unsupported, "{}: {}", path, other);
  }
  const bool inside_checkpoint = name.ends_with(".distcp") || name.ends_with(".metadata") ||
                                 name == kTrackerName || name == "metadata.json" ||
                                 name == "config.json" || name.ends_with(".index.json");
  if (inside_checkpoint || kind == FileKind::unknown) {
    fail(inside_checkpoint ? ErrorKind::invalid : ErrorKind::unsupported, "{}: {}", path,
         inside_checkpoint ? "this file is a part of a checkpoint; give the folder that "
                             "holds it"
                           : "neither a safetensors file nor one that torch.save wrote");
  }
  Checkpoint checkpoint;
  checkpoint.path = path;
  checkpoint.mark = std::make_shared<ReadMark>(*files, path);
  if (kind == FileKind::safetensors) {
    checkpoint.format = Format::safetensors;
    checkpoint.writer = "safetensors";
    checkpoint.catalog = open_safetensors_file(std::move(files), path);
  } else {
    checkpoint.format = Format::torch_file;
    checkpoint.writer = "torch.save";
    checkpoint.catalog = open_torch_file(std::move(files), path);
  }
  return checkpoint;
}

// A folder.

std::string first_few(const Names& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 8; ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 8) text += fmt::format(" and {} more", names.size() - 8);
  return text;
}

bool looks_like_checkpoint(const FileSystem& files, const std::string& path) {
  if (files.status(path).kind != PathKind::folder) return false;
  const Folder folder(files, path);
  return recognise(folder) != nullptr || is_run_folder(files, path) || is_hub_cache(files, path);
}

[[noreturn]] void fail_unknown(const Folder& folder) {
  const Names& names = folder.names;
  if (names.empty()) fail(ErrorKind::not_found, "{} is an empty folder", folder.path);
  if (folder.has_suffix(".distcp")) {
    fail(ErrorKind::not_found,
         "{}: data files (.distcp) but no .metadata, which is written last: "
         "the checkpoint is "
         "unfinished",
         folder.path);
  }
  Names inside;
  for (size_t i = 0; i < names.size() && i < 200; ++i) {
    if (looks_like_checkpoint(folder.files, join(folder.path, names[i])))
      inside.push_back(names[i]);
  }
  if (!inside.empty()) {
    fail(ErrorKind::not_found,
         "{} is no checkpoint itself, but these folders in it look like one: {}", folder.path,
         first_few(inside));
  }
  const std::string other = other_folder(folder.files, folder.path, names);
  if (!other.empty()) fail(ErrorKind::unsupported, "{}: {}", folder.path, other);
  std::string looked_for = "a Megatron-LM run (latest_checkpointed_iteration.txt, iter_*)";
  for (const FolderFormat& format : kFolderFormats) {
    if (*format.known_by) looked_for += std::string(", ") + format.known_by;
  }
  fail(ErrorKind::unsupported, "{}: no checkpoint recognised: looked for {}; found {}", folder.path,
       looked_for, first_few(names));
}

Checkpoint open_folder(Files files, const std::string& path, const OpenOptions& options);

Checkpoint open_run(Files files, const std::string& path, const OpenOptions& options) {
  const RunFolder run = read_run_folder(*files, path);
  std::string note;
  const IterationFolder& chosen = choose_iteration(run, options.iteration, &note);
  OpenOptions inner = options;
  inner.iteration.clear();
  Checkpoint checkpoint = open_folder(std::move(files), join(path, chosen.name), inner);
  if (!checkpoint.iteration) checkpoint.iteration = chosen.iteration;
  if (!note.empty()) checkpoint.notes.insert(checkpoint.notes.begin(), std::move(note));
  if (!checkpoint.mark->problem().empty()) checkpoint.notes.push_back(checkpoint.mark->problem());
  return checkpoint;
}

// A cache of Hugging Face's downloads: the snapshot that it leads to.
Checkpoint open_hub(Files files, const std::string& snapshot, const OpenOptions& options) {
  Checkpoint checkpoint = open_folder(std::move(files), snapshot, options);
  checkpoint.notes.insert(
      checkpoint.notes.begin(),
      fmt::format("a cache of Hugging Face's downloads: {} is read", split_path(snapshot).name));
  return checkpoint;
}

// A run of another program: the step that it saved last, or that is asked for.
Checkpoint open_step(Files files, const std::string& folder, const OpenOptions& options) {
  OpenOptions inner = options;
  inner.iteration.clear();
  return open_folder(std::move(files), folder, inner);
}

// The model in the folder of a training state.
Checkpoint open_part(Files files, const std::string& folder, const std::string& part,
                     const OpenOptions& options) {
  const std::string path = join(folder, part);
  const bool is_file = files->status(path).kind == PathKind::file;
  Checkpoint checkpoint =
      is_file ? open_file(std::move(files), path) : open_folder(std::move(files), path, options);
  checkpoint.notes.insert(checkpoint.notes.begin(),
                          fmt::format("{}: the model lies in its part {}", folder, part));
  add_optimizer_beside(checkpoint, folder, part);
  return checkpoint;
}

Checkpoint open_folder(Files files, const std::string& path, const OpenOptions& options) {
  if (const std::string snapshot = hub_snapshot(*files, path); !snapshot.empty()) {
    return open_hub(std::move(files), snapshot, options);
  }
  if (!recognise(Folder(*files, path))) {
    const auto step = step_folder(*files, path, options.iteration);
    if (step) return open_step(std::move(files), *step, options);
    const auto part = model_part(*files, path);
    if (part) return open_part(std::move(files), path, *part, options);
  }
  if (is_run_folder(*files, path)) return open_run(std::move(files), path, options);
  if (!options.iteration.empty()) {
    fail(ErrorKind::invalid,
         "--iteration {} chooses from a run folder, but {} is not one (no {}, "
         "no iter_* folder)",
         options.iteration, path, kTrackerName);
  }
  auto mark = std::make_shared<ReadMark>(*files, path);
  const Folder folder(*files, path);  // as it is under the mark
  const FolderFormat* format = recognise(folder);
  if (!format) fail_unknown(folder);
  Checkpoint checkpoint = format->open(std::move(files), path, options.raw);
  mark->check();
  checkpoint.mark = std::move(mark);
  return checkpoint;
}

}  // namespace

std::optional<Format> format_of_folder(const FileSystem& file_system, const std::string& path) {
  const FolderFormat* format = recognise(Folder(file_system, path));
  return format ? std::optional(format->format) : std::nullopt;
}

Checkpoint open_checkpoint(std::shared_ptr<const FileSystem> file_system, const std::string& given,
                           const OpenOptions& options) {
  if (given.empty()) fail(ErrorKind::invalid, "an empty path names no checkpoint");
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const PathKind kind = file_system->status(path).kind;
  if (kind == PathKind::missing) {
    fail(ErrorKind::not_found, "{} does not exist, or is a link to something that does not", path);
  }
  if (kind == PathKind::other) {
    fail(ErrorKind::invalid, "{} is neither a folder nor a regular file (a FIFO, socket or device)",
         path);
  }
  if (kind == PathKind::folder) return open_folder(std::move(file_system), path, options);
  if (!options.iteration.empty()) {
    fail(ErrorKind::invalid, "--iteration {} chooses from a run folder, but {} is a file",
         options.iteration, path);
  }
  return open_file(std::move(file_system), path);
}

}  // namespace ferry
