#include "ckpt/megatron/nemo/nemo.h"

#include <algorithm>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/name_pattern.h"
#include "ckpt/format/torch/torch_file.h"
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
         "{}: NeMo's marker {} is next to it: the checkpoint is unfinished; remove the marker if "
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

namespace {

constexpr const char* kWeights = "model_weights.ckpt";
constexpr const char* kDistributed = "model_weights";

PathKind kind(const FileSystem& files, const std::string& folder, const std::string& name) {
  return files.status(join(folder, name)).kind;
}

// Folders of ranks, with weights in them.
std::vector<std::string> rank_folders(const FileSystem& files, const std::string& folder) {
  std::vector<std::string> found;
  for (const std::string& name : files.list(folder)) {
    const bool is_rank =
        fits_pattern("mp_rank_#", name) || fits_pattern("tp_rank_#_pp_rank_#", name);
    if (is_rank && kind(files, join(folder, name), kWeights) == PathKind::file) {
      found.push_back(name);
    }
  }
  return found;
}

bool is_of_megatron(const Catalog& catalog) {
  return std::ranges::any_of(catalog.entries, [](const Entry& entry) {
    return entry.name.find("decoder.layers.") != std::string::npos ||
           entry.name.find("language_model.encoder.layers.") != std::string::npos;
  });
}

}  // namespace

bool is_nemo1_folder(const FileSystem& file_system, const std::string& folder) {
  return kind(file_system, folder, "model_config.yaml") == PathKind::file &&
         (kind(file_system, folder, kWeights) == PathKind::file ||
          kind(file_system, folder, kDistributed) == PathKind::folder ||
          !rank_folders(file_system, folder).empty());
}

Checkpoint open_nemo1(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                      bool) {
  Checkpoint checkpoint;
  if (kind(*file_system, folder, kWeights) == PathKind::file) {
    checkpoint.catalog = open_torch_file(file_system, join(folder, kWeights));
  } else if (kind(*file_system, folder, kDistributed) == PathKind::folder) {
    checkpoint = read_torch_dist(file_system, join(folder, kDistributed)).checkpoint;
  } else {
    fail(ErrorKind::unsupported,
         "{}: a model of NeMo 1 in {} parts of tensor or pipeline ranks; NeMo's "
         "examples/nlp/language_modeling/megatron_change_num_partitions.py joins them "
         "(--target_tensor_model_parallel_size=1 --target_pipeline_model_parallel_size=1)",
         folder, rank_folders(*file_system, folder).size());
  }
  checkpoint.format = Format::torch_file;
  checkpoint.path = folder;
  checkpoint.writer = "NeMo 1";
  if (is_of_megatron(checkpoint.catalog)) {
    checkpoint.conversion =
        "its names are Megatron's; NeMo's scripts/checkpoint_converters/convert_*_nemo_to_hf.py "
        "makes a Hugging Face model of it";
  }
  return checkpoint;
}

}  // namespace ferry
