#include "ckpt/open_folders.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp.h"
#include "ckpt/format/deepspeed/deepspeed.h"
#include "ckpt/format/fsdp_ranks/fsdp_ranks.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/format/torch/optimizer_facts.h"
#include "ckpt/format/torch/torch_file.h"
#include "ckpt/io/file_system.h"
#include "ckpt/megatron/fsdp/fsdp.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/torch_dist/torch_dist.h"
#include "ckpt/store/run_folder.h"
#include "ckpt/store/step_folders.h"

namespace ferry {
Checkpoint open_hugging_face_folder(std::shared_ptr<const FileSystem> file_system,
                                    const std::string& folder, bool) {
  HuggingFaceModel model = open_hugging_face(std::move(file_system), folder);
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
  checkpoint.notes.insert(checkpoint.notes.end(), model.damage.begin(), model.damage.end());
  checkpoint.damage = std::move(model.damage);
  if (const auto base = adapter_base(*checkpoint.catalog->file_system, folder)) {
    checkpoint.notes.push_back("the folder " + what_adapter(*base));
  }
  return checkpoint;
}

namespace {

bool is_megatron_object(const Object& object) {
  const size_t at = object.name.rfind("/shard_");
  return at != std::string::npos && at + 7 < object.name.size();
}

// Megatron-LM's torch_dcp and fsdp_dtensor formats keep these as byte objects
// of their own. Objects of these names may be anything in other programs'
// checkpoints: what cannot be read is left alone.
void read_megatron_objects(Checkpoint& checkpoint) {
  const auto read = [&](std::string_view name) {
    return read_object_if_readable(checkpoint.catalog, name, &checkpoint.notes);
  };
  LoadedValue args = read("args");
  if (args.value.text() == "argparse.Namespace") {
    checkpoint.layout = layout_from_args(args.value);
    checkpoint.writer = release_from_args(args.value) + ", PyTorch DCP";
    checkpoint.args = std::move(args);
  }
  if (const auto iteration = read("iteration").value.integer()) checkpoint.iteration = iteration;
}

Checkpoint checkpoint_of_ranks(Format format, const std::string& folder, RankedCheckpoint ranks) {
  Checkpoint checkpoint;
  checkpoint.format = format;
  checkpoint.path = folder;
  checkpoint.writer = std::move(ranks.writer);
  checkpoint.layout.world_size = ranks.world_size;
  checkpoint.catalog = std::move(ranks.catalog);
  checkpoint.notes = std::move(ranks.notes);
  checkpoint.iteration = ranks.steps;
  checkpoint.param_groups = std::move(ranks.optimizer.param_groups);
  checkpoint.optimizer_steps = ranks.optimizer.steps;
  checkpoint.optimizer_problem = std::move(ranks.optimizer_problem);
  const bool has_optimizer =
      std::ranges::any_of(checkpoint.catalog->entries,
                          [](const Entry& entry) { return entry.role == Role::optimizer; });
  if (has_optimizer) checkpoint.optimizer = OptimizerLayout::plain;
  return checkpoint;
}

}  // namespace

void drop_extra_states(Checkpoint& checkpoint) {
  const auto gone = std::erase_if(checkpoint.catalog.edit().entries, [](const Entry& entry) {
    return entry.dtype == DType::u8 && entry.role == Role::model &&
           (entry.name == "_extra_state" || entry.name.ends_with("._extra_state"));
  });
  if (gone == 0) return;
  checkpoint.notes.push_back(fmt::format(
      "{} of Transformer Engine's _extra_state {} left out, as objects of that name are", gone,
      gone == 1 ? "is" : "are"));
}

std::optional<int64_t> iteration_by_name(const std::string& folder) {
  const std::string name = split_path(folder).name;
  const auto step = step_number(name);
  return step ? step : iteration_of(name);
}

Checkpoint open_deepspeed_folder(std::shared_ptr<const FileSystem> file_system,
                                 const std::string& folder, bool raw) {
  Checkpoint checkpoint = checkpoint_of_ranks(Format::deepspeed, folder,
                                              open_deepspeed(std::move(file_system), folder));
  if (!checkpoint.iteration) checkpoint.iteration = iteration_by_name(folder);
  if (!raw) drop_extra_states(checkpoint);
  return checkpoint;
}

Checkpoint open_fsdp_folder(std::shared_ptr<const FileSystem> file_system,
                            const std::string& folder, bool raw) {
  Checkpoint checkpoint =
      checkpoint_of_ranks(Format::fsdp, folder, open_fsdp_ranks(std::move(file_system), folder));
  checkpoint.iteration = iteration_by_name(folder);  // global_step_5/actor
  if (!checkpoint.iteration) checkpoint.iteration = iteration_by_name(split_path(folder).parent);
  if (!raw) drop_extra_states(checkpoint);
  return checkpoint;
}

Checkpoint open_plain_dcp(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                          bool raw) {
  Checkpoint checkpoint;
  checkpoint.format = Format::dcp;
  checkpoint.path = folder;
  DcpCheckpoint dcp = open_dcp(std::move(file_system), folder);
  checkpoint.writer = dcp.metadata ? "PyTorch DCP" : "PyTorch DCP, Hugging Face storage";
  checkpoint.catalog = std::move(dcp.catalog);
  if (dcp.metadata) checkpoint.paths = {dcp.metadata, dcp.metadata->root().get("planner_data")};
  const auto& objects = checkpoint.catalog->objects;
  if (std::any_of(objects.begin(), objects.end(), is_megatron_object)) {
    fail(ErrorKind::not_found,
         "{}: a Megatron-LM checkpoint without metadata.json, which is written "
         "last: it is "
         "unfinished. If its save is known to have finished, put "
         "{{\"sharded_backend\": "
         "\"torch_dist\", \"sharded_backend_version\": 1}} there",
         folder);
  }
  checkpoint.iteration = iteration_by_name(folder);
  read_megatron_objects(checkpoint);
  for (Entry& entry : checkpoint.catalog.edit().entries) {
    if (is_optimizer_name(entry.name) || entry.name.starts_with("optim.") ||
        parse_optimizer_key(entry.name)) {
      entry.role = Role::optimizer;
      checkpoint.optimizer = OptimizerLayout::plain;
    }
  }
  if (raw) return checkpoint;
  apply_fsdp_meaning(checkpoint);
  drop_extra_states(checkpoint);
  return checkpoint;
}

namespace {

constexpr std::string_view kOptimizer = "optimizer.";

// N of "pytorch_model_fsdp_N" and "pytorch_model_fsdp_N.bin"; 0 without a number.
std::string number_in(std::string_view part) {
  if (part.ends_with(".bin")) part.remove_suffix(4);
  size_t begin = part.size();
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(part[begin - 1])) != 0) --begin;
  return begin == part.size() ? "0" : std::string(part.substr(begin));
}

// Appends files and entries to the model's, and renumbers their files.
void append(Catalog& to, Catalog from) {
  std::unordered_set<std::string_view> names;
  for (const Entry& entry : to.entries) names.insert(entry.name);
  for (const Entry& entry : from.entries) {
    if (names.contains(entry.name)) {
      fail(ErrorKind::invalid, "tensor {} is in both the model and the optimizer", entry.name);
    }
  }
  const auto first = static_cast<uint32_t>(to.files.size());
  for (FileInfo& file : from.files) to.files.push_back(std::move(file));
  for (Entry& entry : from.entries) {
    for (Chunk& chunk : entry.chunks) chunk.extent.file += first;
    entry.role = Role::optimizer;
    to.entries.push_back(std::move(entry));
  }
  for (Object& object : from.objects) {
    object.extent.file += first;
    to.objects.push_back(std::move(object));
  }
  if (!to.locator) to.locator = std::move(from.locator);
}

// The paths of both: which path of the state dict a key stands for.
LoadedValue joined_paths(const Value& model, const Value& optimizer) {
  Draft draft;
  const Value all = draft.dict();
  for (const Value* paths : {&model, &optimizer}) {
    for (size_t i = 0; i < paths->pair_count(); ++i) {
      const auto key = paths->pair_key(i).string();
      if (key) draft.add(all, draft.string(std::string(*key)), draft.copy(paths->pair_value(i)));
    }
  }
  return std::move(draft).finish(all);
}

void add_dcp(Checkpoint& model, const std::string& folder) {
  DcpCheckpoint optimizer = open_dcp(model.catalog->file_system, folder);
  const Value paths = optimizer.metadata ? optimizer.metadata->root().get("planner_data") : Value();
  LoadedValue joined = joined_paths(model.paths.value, paths);
  append(model.catalog.edit(), std::move(optimizer.catalog));
  model.paths = std::move(joined);
}

void add_file(Checkpoint& model, const std::string& path) {
  Catalog catalog = open_torch_file(model.catalog->file_system, path);
  const auto file = model.catalog->file_system->open(path);
  OptimizerFacts facts = read_optimizer_facts(read_torch_file(*file), *file);
  for (Entry& entry : catalog.entries) entry.name.insert(0, kOptimizer);
  catalog.objects.clear();  // the groups have been read
  append(model.catalog.edit(), std::move(catalog));
  model.param_groups = std::move(facts.param_groups);
  model.optimizer_steps = facts.steps;
}

}  // namespace

void add_optimizer_next_to(Checkpoint& model, const std::string& folder, const std::string& part) {
  const FileSystem& files = *model.catalog->file_system;
  const std::string number = number_in(part);
  const std::string parts = join(folder, "optimizer_" + number);
  std::vector<std::string> single = {parts + ".bin"};
  if (number == "0") single.push_back(join(folder, "optimizer.bin"));
  const auto file = std::ranges::find_if(
      single, [&](const std::string& path) { return files.status(path).kind == PathKind::file; });
  if (files.status(parts).kind == PathKind::folder) {
    add_optimizer_part(model, parts);
  } else if (file != single.end()) {
    add_optimizer_part(model, *file);
  }
}

void add_optimizer_part(Checkpoint& model, const std::string& path) {
  try {
    if (model.catalog->file_system->status(path).kind == PathKind::folder) {
      add_dcp(model, path);
    } else {
      add_file(model, path);
    }
    model.optimizer = OptimizerLayout::plain;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal || error.kind() == ErrorKind::io) throw;
    model.optimizer_problem = error.what();
    if (error.kind() != ErrorKind::unsupported) model.damage.push_back(error.what());
    model.optimizer_unsupported = error.kind() == ErrorKind::unsupported;
  }
}

}  // namespace ferry
