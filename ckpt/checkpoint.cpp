#include "ckpt/checkpoint.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp.h"
#include "ckpt/format/dcp/dcp_safetensors.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/format/torch/torch_file.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/nemo/nemo.h"
#include "ckpt/megatron/rank_folders/rank_folders.h"
#include "ckpt/megatron/torch_dist/torch_dist.h"
#include "ckpt/store/run_folder.h"

namespace ferry {
namespace {

using Names = std::vector<std::string>;
using Files = std::shared_ptr<const FileSystem>;

bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool any_ends_with(const Names& names, std::string_view suffix) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.ends_with(suffix); });
}

std::string first_few(const Names& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 8; ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 8) text += fmt::format(" and {} more", names.size() - 8);
  return text;
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
  const bool inside_checkpoint = name.ends_with(".distcp") || name.ends_with(".metadata") ||
                                 name == kTrackerName || name == "metadata.json" ||
                                 name == "config.json" || name.ends_with(".index.json");
  if (inside_checkpoint || kind == FileKind::unknown) {
    fail(inside_checkpoint ? ErrorKind::invalid : ErrorKind::unsupported, "{}: {}", path,
         inside_checkpoint ? "this file is a part of a checkpoint; give the folder that holds it"
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

// Hugging Face.

Checkpoint open_hugging_face_folder(Files files, const std::string& folder) {
  HuggingFaceModel model = open_hugging_face(std::move(files), folder);
  Checkpoint checkpoint;
  checkpoint.format = Format::hugging_face;
  checkpoint.path = folder;
  checkpoint.writer = "Hugging Face";
  if (model.config) {
    const auto version = model.config->find("transformers_version");
    if (version != model.config->end() && version->is_string()) {
      checkpoint.writer += " transformers " + version->get<std::string>();
    }
  }
  checkpoint.catalog = std::move(model.catalog);
  checkpoint.notes = std::move(model.notes);
  return checkpoint;
}

// Plain DCP.

bool is_megatron_object(const Object& object) {
  const size_t at = object.name.rfind("/shard_");
  return at != std::string::npos && at + 7 < object.name.size();
}

// The iteration of "iter_0000100" (Megatron-LM) or "step-100" (torchtitan).
std::optional<int64_t> iteration_by_name(const std::string& folder) {
  std::string name = folder.substr(folder.find_last_of('/') + 1);
  if (name.starts_with("step-")) name.replace(0, 5, "iter_");
  return iteration_of(name);
}

// Megatron-LM's torch_dcp and fsdp_dtensor formats keep these as byte objects of their own. Objects
// of these names may be anything in other programs' checkpoints: what cannot be read is left alone.
void read_megatron_objects(Checkpoint& checkpoint) {
  const auto read = [&](std::string_view name) {
    const Object* object = checkpoint.catalog.find_object(name);
    if (!object) return LoadedValue{};
    try {
      return read_object(checkpoint.catalog, *object);
    } catch (const Error& error) {
      checkpoint.notes.push_back(error.what());
      return LoadedValue{};
    }
  };
  LoadedValue args = read("args");
  if (args.value.text() == "argparse.Namespace") {
    checkpoint.layout = layout_from_args(args.value);
    checkpoint.writer = release_from_args(args.value) + ", PyTorch DCP";
    checkpoint.args = std::move(args);
  }
  if (const auto iteration = read("iteration").value.integer()) checkpoint.iteration = iteration;
}

Checkpoint open_plain_dcp(Files files, const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.format = Format::dcp;
  checkpoint.path = folder;
  DcpCheckpoint dcp = open_dcp(std::move(files), folder);
  checkpoint.writer = dcp.metadata ? "PyTorch DCP" : "PyTorch DCP, Hugging Face storage";
  checkpoint.catalog = std::move(dcp.catalog);
  if (dcp.metadata) checkpoint.paths = {dcp.metadata, dcp.metadata->root().get("planner_data")};
  const auto& objects = checkpoint.catalog.objects;
  if (std::any_of(objects.begin(), objects.end(), is_megatron_object)) {
    fail(ErrorKind::not_found,
         "{}: a Megatron-LM checkpoint without metadata.json, which is written last: it is "
         "unfinished. If its save is known to have finished, put {{\"sharded_backend\": "
         "\"torch_dist\", \"sharded_backend_version\": 1}} there",
         folder);
  }
  checkpoint.iteration = iteration_by_name(folder);
  read_megatron_objects(checkpoint);
  for (Entry& entry : checkpoint.catalog.entries) {
    if (is_optimizer_name(entry.name) || entry.name.starts_with("optim.")) {
      entry.role = Role::optimizer;
      checkpoint.optimizer = OptimizerLayout::plain;
    }
  }
  return checkpoint;
}

// A folder.

constexpr std::string_view kLookedFor =
    "looked for a Megatron-LM run (latest_checkpointed_iteration.txt, iter_*), torch_dist "
    "(metadata.json, .metadata), PyTorch DCP (.metadata), legacy Megatron-LM (mp_rank_*), NeMo 2 "
    "(weights/, context/) and Hugging Face (config.json, *.safetensors, pytorch_model*.bin)";

bool looks_like_checkpoint(const FileSystem& files, const std::string& folder) {
  for (const char* name : {".metadata", "metadata.json", "config.json", "weights",
                           "latest_checkpointed_iteration.txt"}) {
    if (files.status(join(folder, name)).kind != PathKind::missing) return true;
  }
  return false;
}

[[noreturn]] void fail_unknown(const FileSystem& files, const std::string& path,
                               const Names& names) {
  if (names.empty()) fail(ErrorKind::not_found, "{} is an empty folder", path);
  if (any_ends_with(names, ".distcp")) {
    fail(ErrorKind::not_found,
         "{}: data files (.distcp) but no .metadata, which is written last: the checkpoint is "
         "unfinished",
         path);
  }
  Names inside;
  for (size_t i = 0; i < names.size() && i < 200; ++i) {
    if (looks_like_checkpoint(files, join(path, names[i]))) inside.push_back(names[i]);
  }
  if (!inside.empty()) {
    fail(ErrorKind::not_found,
         "{} is no checkpoint itself, but these folders in it look like one: {}", path,
         first_few(inside));
  }
  fail(ErrorKind::unsupported, "{}: no checkpoint recognised: {}; found {}", path, kLookedFor,
       first_few(names));
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

Checkpoint open_unmarked(Files files, const std::string& path, const OpenOptions& options);

Checkpoint open_folder(Files files, const std::string& path, const OpenOptions& options) {
  const Names names = files->list(path);
  const bool has_metadata = contains(names, ".metadata");
  const bool has_config = contains(names, "metadata.json");
  if (!has_metadata && !has_config && is_run_folder(*files, path)) {
    return open_run(std::move(files), path, options);
  }
  if (!options.iteration.empty()) {
    fail(ErrorKind::invalid,
         "--iteration {} chooses from a run folder, but {} is not one (no {}, no iter_* folder)",
         options.iteration, path, kTrackerName);
  }
  auto mark = std::make_shared<ReadMark>(*files, path);
  Checkpoint checkpoint = open_unmarked(std::move(files), path, options);
  mark->check();
  checkpoint.mark = std::move(mark);
  return checkpoint;
}

Checkpoint open_unmarked(Files files, const std::string& path, const OpenOptions& options) {
  const Names names = files->list(path);
  const bool has_metadata = contains(names, ".metadata");
  const bool has_config = contains(names, "metadata.json");
  if (const std::string nemo = nemo_folder_of_weights(*files, path); !nemo.empty()) {
    return open_nemo(std::move(files), nemo, options.raw);
  }
  if (has_config) return open_torch_dist(std::move(files), path, options.raw);
  if (has_metadata) return open_plain_dcp(std::move(files), path);
  if (is_legacy_folder(*files, path)) return open_legacy(std::move(files), path, options.raw);
  if (is_nemo_folder(*files, path)) return open_nemo(std::move(files), path, options.raw);
  const bool rank_local = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("__") && name.ends_with(".metadata");
  });
  if (rank_local || has_safetensors_shards(*files, path)) {
    return open_plain_dcp(std::move(files), path);
  }
  if (is_hugging_face_folder(*files, path)) return open_hugging_face_folder(std::move(files), path);
  fail_unknown(*files, path, names);
}

}  // namespace

std::string_view name(Format format) noexcept {
  switch (format) {
    case Format::torch_dist:
      return "torch_dist";
    case Format::dcp:
      return "dcp";
    case Format::megatron_torch:
      return "torch";
    case Format::nemo:
      return "nemo";
    case Format::hugging_face:
      return "hf";
    case Format::safetensors:
      return "safetensors";
    case Format::torch_file:
      return "pt";
  }
  return "?";
}

std::string_view name(OptimizerLayout layout) noexcept {
  switch (layout) {
    case OptimizerLayout::none:
      return "none";
    case OptimizerLayout::fully_reshardable:
      return "fully_reshardable";
    case OptimizerLayout::dp_reshardable:
      return "dp_reshardable";
    case OptimizerLayout::fully_sharded_model_space:
      return "fully_sharded_model_space";
    case OptimizerLayout::legacy_distributed:
      return "legacy_distributed";
    case OptimizerLayout::plain:
      return "plain";
  }
  return "?";
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
