#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/dcp/dcp_safetensors.h"
#include "ckpt/format/deepspeed/deepspeed.h"
#include "ckpt/format/fsdp_ranks/fsdp_ranks.h"
#include "ckpt/format/hugging_face/hub_cache.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/training_folder.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/megatron/nemo/nemo.h"
#include "ckpt/megatron/rank_folders/rank_folders.h"
#include "ckpt/megatron/torch_dist/torch_dist.h"
#include "ckpt/open_file.h"
#include "ckpt/open_folders.h"
#include "ckpt/store/run_folder.h"
#include "ckpt/store/step_folders.h"

namespace ferry {
namespace {

// Folders of which one part is the checkpoint's model: a step of a training program, with the
// optimizer in another part, tokenizer, configuration and state in yet others.
//
//   pytorch_model_fsdp_0/   optimizer_0/       Accelerate, and Trainer with FSDP (also .bin files)
//   policy/weights/         policy/optimizer/  NeMo-RL
//   model/                  optim/             NeMo AutoModel
//   actor/dist_ckpt/, actor/                   verl
//   model_and_optim/                           OLMo-core
//   trainer/                                   prime-rl
//   weights/                                   next to huggingface/, its configuration
//
// Source: accelerate/utils/fsdp_utils.py, nemo_rl/utils/{checkpoint,native_checkpoint}.py,
// nemo_automodel/components/checkpoint/checkpointing.py, verl/utils/checkpoint/*.py,
// olmo_core/train/checkpoint.py.

/// Names inside a folder.
struct CheckpointParts {
  std::string model;
  std::string optimizer;  // empty: none is known by its name
};

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

// The parts of `folder` by the table above, where `is_checkpoint` takes the model's. Nothing where
// it has none. invalid when Accelerate left several models.
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

std::optional<Format> own_format(const Folder& folder);
Checkpoint open_folder(Files files, const std::string& path, const OpenOptions& options);

std::optional<CheckpointParts> parts_of(const FileSystem& files, const std::string& folder) {
  return checkpoint_parts(files, folder, [&](const std::string& path) {
    const Folder part(files, path);
    return own_format(part) || part.has_suffix(".distcp") || is_run_folder(files, path);
  });
}

bool has_parts(const Folder& folder) {
  try {
    return parts_of(folder.files, folder.path).has_value();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid) throw;
    return true;  // several: which is said when it is opened
  }
}

// The model in a part of a folder, and the optimizer's state in another.
Checkpoint open_part(Files files, const std::string& folder, bool raw) {
  const CheckpointParts parts = parts_of(*files, folder).value();
  const std::string path = join(folder, parts.model);
  const bool is_file = files->status(path).kind == PathKind::file;
  Checkpoint checkpoint = is_file ? open_checkpoint_file(std::move(files), path, raw)
                                  : open_folder(std::move(files), path, {{}, raw});
  checkpoint.notes.insert(checkpoint.notes.begin(),
                          fmt::format("{}: the model is in its part {}", folder, parts.model));
  if (!checkpoint.iteration) checkpoint.iteration = iteration_by_name(folder);
  if (parts.optimizer.empty()) {
    add_optimizer_next_to(checkpoint, folder, parts.model);
  } else {
    add_optimizer_part(checkpoint, join(folder, parts.optimizer));
  }
  return checkpoint;
}

// One way to store a checkpoint in a folder. Rows come before those that would
// take theirs, too.
struct FolderFormat {
  std::optional<Format> format;  // nothing: another's, in a part of the folder
  const char* known_by;          // empty: said by another row
  bool (*is)(const Folder& folder);
  Checkpoint (*open)(Files files, const std::string& path, bool raw);
};

// In `folder`: what to do with a layout that is known, and not read.
[[noreturn]] Checkpoint refuse_other(Files files, const std::string& folder, bool) {
  fail(ErrorKind::unsupported, "{}: {}", folder, other_folder(*files, folder, files->list(folder)));
}

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
    {Format::torch_file, "NeMo 1 (model_config.yaml, model_weights.ckpt)",
     [](const Folder& f) { return is_nemo1_folder(f.files, f.path); }, open_nemo1},
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
    {Format::deepspeed, "", [](const Folder& f) { return has_pipeline_layers(f.names); },
     refuse_other},
    {Format::deepspeed, "DeepSpeed (*_model_states.pt, *_optim_states.pt)",
     [](const Folder& f) { return is_deepspeed_folder(f.files, f.path); }, open_deepspeed_folder},
    {Format::hugging_face, "Hugging Face (config.json, *.safetensors, pytorch_model*.bin)",
     [](const Folder& f) { return is_hugging_face_folder(f.files, f.path); },
     open_hugging_face_folder},
    {std::nullopt,
     "a step of NeMo-RL, NeMo AutoModel, slime, verl, OLMo-core, prime-rl or Accelerate", has_parts,
     open_part},
    {std::nullopt, "one file of torch.save (*.pt, *.pth, *.ckpt), or a .nemo archive",
     [](const Folder& f) { return has_lone_file(f.files, f.path); }, open_lone_file},
};

const FolderFormat* recognise(const Folder& folder) {
  const auto found = std::ranges::find_if(
      kFolderFormats, [&](const FolderFormat& format) { return format.is(folder); });
  return found == std::end(kFolderFormats) ? nullptr : &*found;
}

// Whether the folder itself is stored in one of the formats.
std::optional<Format> own_format(const Folder& folder) {
  for (const FolderFormat& format : kFolderFormats) {
    if (format.format && format.is(folder)) return format.format;
  }
  return std::nullopt;
}

// A folder.

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
         "{} is not a checkpoint itself, but these folders in it look like one: {}", folder.path,
         some_of(inside, 8));
  }
  const std::string other = other_folder(folder.files, folder.path, names);
  if (!other.empty()) fail(ErrorKind::unsupported, "{}: {}", folder.path, other);
  std::string looked_for = "a Megatron-LM run (latest_checkpointed_iteration.txt, iter_*)";
  for (const FolderFormat& format : kFolderFormats) {
    if (*format.known_by) looked_for += std::string(", ") + format.known_by;
  }
  fail(ErrorKind::unsupported, "{}: no checkpoint found: expected {}; found {}", folder.path,
       looked_for, some_of(names, 8));
}

Checkpoint open_run(Files files, const std::string& path, const OpenOptions& options) {
  const RunFolder run = read_run_folder(*files, path);
  std::string note;
  const IterationFolder& chosen = choose_iteration(run, options.iteration, &note);
  OpenOptions inner = options;
  inner.iteration.clear();
  Checkpoint checkpoint = open_folder(std::move(files), join(path, chosen.name), inner);
  if (!checkpoint.iteration) checkpoint.iteration = chosen.iteration;
  if (!note.empty()) checkpoint.notes.insert(checkpoint.notes.begin(), std::move(note));
  for (const auto& lock : checkpoint.catalog->reader_locks) {
    if (!lock->problem().empty()) checkpoint.notes.push_back(lock->problem());
  }
  return checkpoint;
}

Checkpoint open_lead(Files files, const CheckpointLead& lead, const OpenOptions& options) {
  OpenOptions inner = options;
  if (lead.by_iteration) inner.iteration.clear();
  Checkpoint checkpoint = open_folder(std::move(files), lead.path, inner);
  checkpoint.notes.insert(checkpoint.notes.begin(), lead.notes.begin(), lead.notes.end());
  return checkpoint;
}

Checkpoint open_folder(Files files, const std::string& path, const OpenOptions& options) {
  if (const auto lead = leads_to(*files, path, options.iteration)) {
    return open_lead(std::move(files), *lead, options);
  }
  if (is_run_folder(*files, path)) return open_run(std::move(files), path, options);
  if (!options.iteration.empty()) {
    fail(ErrorKind::invalid,
         "{} chooses from a run folder, but {} is not one (no {}, no iter_* folder)",
         option("iteration", options.iteration), path, kTrackerName);
  }
  auto lock = std::make_shared<ReaderLock>(*files, path);
  const Folder folder(*files, path);  // as it is under the lock
  const FolderFormat* format = recognise(folder);
  if (!format) fail_unknown(folder);
  Checkpoint checkpoint = format->open(std::move(files), path, options.raw);
  lock->check();
  if (checkpoint.catalog->reader_locks.empty())
    checkpoint.catalog.edit().reader_locks.push_back(std::move(lock));
  return checkpoint;
}

}  // namespace

std::optional<Format> format_of_folder(const FileSystem& file_system, const std::string& path) {
  return own_format(Folder(file_system, path));
}

bool is_checkpoint_folder(const FileSystem& file_system, const std::string& path) {
  return recognise(Folder(file_system, path)) != nullptr;
}

std::optional<CheckpointLead> leads_to(const FileSystem& file_system, const std::string& path,
                                       const std::string& iteration) {
  if (const std::string snapshot = hub_snapshot(file_system, path); !snapshot.empty()) {
    return CheckpointLead{snapshot,
                          false,
                          {fmt::format("a cache of Hugging Face's downloads: {} is read",
                                       split_path(snapshot).name)}};
  }
  if (own_format(Folder(file_system, path))) return std::nullopt;
  const auto step = step_folder(file_system, path, iteration);
  if (!step) return std::nullopt;
  CheckpointLead lead{step->path, true, {}};
  for (const std::string& part : step->other_parts) {
    lead.notes.push_back(fmt::format("{}: holds {}, which is another checkpoint",
                                     split_path(step->path).parent, part));
  }
  return lead;
}

namespace {

Checkpoint open_path(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                     const OpenOptions& options) {
  const PathKind kind = file_system->status(path).kind;
  if (kind == PathKind::missing) fail_missing(*file_system, path);
  if (kind == PathKind::other) {
    fail(ErrorKind::invalid, "{} is neither a folder nor a regular file (a FIFO, socket or device)",
         path);
  }
  if (kind == PathKind::folder) return open_folder(std::move(file_system), path, options);
  if (!options.iteration.empty()) {
    fail(ErrorKind::invalid, "{} chooses from a run folder, but {} is a file",
         option("iteration", options.iteration), path);
  }
  return open_checkpoint_file(std::move(file_system), path, options.raw);
}

}  // namespace

Checkpoint open_checkpoint(std::shared_ptr<const FileSystem> file_system, const std::string& given,
                           const OpenOptions& options) {
  if (given.empty()) fail(ErrorKind::invalid, "an empty path names no checkpoint");
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  try {
    return open_path(std::move(file_system), path, options);
  } catch (Error& error) {
    error.find_path({path});
    if (error.path().empty()) error.set_path(path);
    throw;
  }
}

}  // namespace ferry
