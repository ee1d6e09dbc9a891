#include "ckpt/megatron/nemo/nemo1.h"

#include <algorithm>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/name_pattern.h"
#include "ckpt/format/torch/torch_file.h"
#include "ckpt/megatron/torch_dist/torch_dist.h"

namespace ferry {
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
