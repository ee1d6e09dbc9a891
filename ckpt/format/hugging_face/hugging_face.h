// Hugging Face model folders: config.json and the weights.
//
// The weights are, in transformers' order of preference: model.safetensors; the shards that
// model.safetensors.index.json names; pytorch_model.bin; the shards that
// pytorch_model.bin.index.json names. Where none of these is there: all *.safetensors of the
// folder but other forms of the model and adapters, or the shards pytorch_model-*.bin. Parts of the
// model in further files are added (further_weights.h). (Pieces of tensors, as a distributed save
// leaves them, are ckpt/format/dcp/dcp.h's.)
//
// Source: transformers modeling_utils, huggingface_hub serialization.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/io/file_system.h"

namespace ferry {

enum class HuggingFaceWeights : uint8_t { safetensors, torch_bin };

struct HuggingFaceModel {
  Catalog catalog;  // in the order of the files' names and of the bytes in each
  std::shared_ptr<const nlohmann::json> config;  // of config.json; null when there is none
  HuggingFaceWeights weights = HuggingFaceWeights::safetensors;
  std::map<std::string, std::string> metadata;  // of the first safetensors file
  std::vector<std::string> notes;               // worth knowing, one sentence each
  /// Where the index and the shards disagree, one sentence each: tensors that it names are in none
  /// of them, or it is of another save; files of weights that cannot be read. The catalog has the
  /// tensors of the shards.
  std::vector<std::string> damage;
};

/// True when `folder` holds weights that open_hugging_face would take.
bool is_hugging_face_folder(const FileSystem& file_system, const std::string& folder);

/// Opens the folder from headers alone; only of tensors that two shards hold elements are read, to
/// compare them. not_found when weights or shards are missing (names them); corrupt for bad files,
/// a shard's name that leaves the folder, a tensor that two shards hold with other values.
HuggingFaceModel open_hugging_face(std::shared_ptr<const FileSystem> file_system,
                                   const std::string& folder);

/// config.json of a folder; null when there is none, corrupt when it is not a JSON object.
std::shared_ptr<const nlohmann::json> read_hugging_face_config(const FileSystem& file_system,
                                                               const std::string& folder);

/// One .safetensors file.
Catalog open_safetensors_file(std::shared_ptr<const FileSystem> file_system,
                              const std::string& path);

/// (tensor, file) pairs of the `weight_map` of an index (`text`, of the file `path`), in the file's
/// order. corrupt for anything else.
std::vector<std::pair<std::string, std::string>> parse_weight_map(const std::string& text,
                                                                  const std::string& path);

}  // namespace ferry
