#include "ckpt/megatron/nemo/nemo.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/megatron/config/nemo_config.h"
#include "ckpt/megatron/config/yaml.h"
#include "ckpt/megatron/optimizer/masters/remainders.h"
#include "ckpt/megatron/torch_dist/torch_dist.h"

namespace ferry {
namespace {

constexpr std::string_view kModule = "module.";

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// "module." may follow "optimizer.state.exp_avg." and the like, once for every wrapper.
void strip_module(std::string& name) {
  size_t at = 0;
  if (is_optimizer_name(name)) {
    at = name.find(".state.");
    if (at == std::string::npos) return;
    at = name.find('.', at + 7);
    if (at == std::string::npos) return;
    ++at;
  }
  while (name.compare(at, kModule.size(), kModule) == 0) name.erase(at, kModule.size());
}

void strip_module_names(Catalog& catalog) {
  for (Entry& entry : catalog.entries) strip_module(entry.name);
  for (Object& object : catalog.objects) strip_module(object.name);
}

void fill_from_context(StoredTorchDist& stored, const FileSystem& file_system,
                       const std::string& context) {
  Checkpoint& checkpoint = stored.checkpoint;
  const std::string io = join(context, "io.json"), model = join(context, "model.yaml");
  if (file_system.status(io).kind == PathKind::file) {
    const int64_t by_files = checkpoint.layout.world_size;
    checkpoint.layout = layout_from_nemo_io(read_file(file_system, io, kMostConfigBytes));
    if (checkpoint.layout.world_size == 0) checkpoint.layout.world_size = by_files;
  }
  if (file_system.status(model).kind == PathKind::file) {
    const auto yaml = parse_yaml(read_file(file_system, model, kMostConfigBytes), model);
    checkpoint.args = args_from_nemo_model(yaml->root(), checkpoint.layout);
  }
  if (checkpoint.args.value) {
    std::erase_if(checkpoint.notes, [](const std::string& note) {
      return note.find("arguments are unknown") != std::string::npos;
    });
  } else {
    checkpoint.notes.push_back(fmt::format("no model configuration in {}", model));
  }
}

}  // namespace

bool is_nemo_folder(const FileSystem& file_system, const std::string& folder) {
  const std::string weights = join(folder, "weights");
  if (file_system.status(weights).kind != PathKind::folder) return false;
  return file_system.status(join(weights, "metadata.json")).kind == PathKind::file ||
         file_system.status(join(folder, "context")).kind == PathKind::folder;
}

std::string nemo_folder_of_weights(const FileSystem& file_system, const std::string& path) {
  const std::string plain = without_slash(path);
  const size_t slash = plain.find_last_of('/');
  if (plain.substr(slash + 1) != "weights") return {};
  const std::string parent = slash == std::string::npos ? "." : plain.substr(0, slash);
  const bool has_context = file_system.status(join(parent, "context")).kind == PathKind::folder;
  return has_context && is_nemo_folder(file_system, parent) ? parent : std::string();
}

Checkpoint open_nemo(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                     bool raw) {
  const std::string marker = without_slash(folder) + "-unfinished";
  if (file_system->status(marker).kind != PathKind::missing) {
    fail(ErrorKind::not_found,
         "{}: NeMo's marker {} is next to it: the checkpoint is unfinished. Remove the marker if "
         "its save is known to have finished",
         folder, marker);
  }
  StoredTorchDist stored = read_torch_dist(file_system, join(folder, "weights"));
  Checkpoint& checkpoint = stored.checkpoint;
  checkpoint.format = Format::nemo;
  checkpoint.path = folder;
  checkpoint.writer = "NeMo 2 (" + checkpoint.writer + ")";
  checkpoint.iteration = stored.common.value.get("global_step").integer();
  fill_from_context(stored, *file_system, join(folder, "context"));
  if (!raw) {
    strip_module_names(checkpoint.catalog.edit());
    apply_megatron_meaning(stored);
    recognise_remainders(checkpoint);
  }
  return std::move(stored.checkpoint);
}

}  // namespace ferry
