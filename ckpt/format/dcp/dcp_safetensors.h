// Safetensors inside PyTorch distributed checkpoints.
//
// Two forms. With SerializationFormat.SAFETENSORS the file-system writer puts one safetensors blob
// after the byte objects of a data file; all of its items then name the blob's start and the
// tensor's own length. The Hugging Face writer leaves no `.metadata`: every rank writes
// `shard-0000k-model-0000i-of-0000N.safetensors`, and the place of each piece in its tensor is in
// the file's own metadata (DCP_SHARDING_INFO).
//
// Source: torch/distributed/checkpoint/{filesystem,hf_storage,_hf_utils}.py.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ckpt/core/catalog.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Finds tensors in the safetensors blobs of data files; each blob's header is read once.
class SafetensorsBlobs {
 public:
  explicit SafetensorsBlobs(const FileSystem& file_system) : file_system_(file_system) {}

  /// Where `name` is, in the blob that starts at `offset` of file number `file` and ends with it.
  /// corrupt when there is no such blob or tensor, or its dtype or shape is another.
  Extent find(const Catalog& catalog, uint32_t file, uint64_t offset, std::string_view name,
              DType dtype, const Dims& shape);

 private:
  using Blob = std::map<std::string, Entry, std::less<>>;
  const Blob& open(const Catalog& catalog, uint32_t file, uint64_t offset);

  const FileSystem& file_system_;
  std::map<std::pair<uint32_t, uint64_t>, Blob> blobs_;
};

/// True when `folder` holds safetensors files of the Hugging Face writer that are pieces of one
/// another (not a plain Hugging Face folder, which convention says is read by itself).
bool has_safetensors_shards(const FileSystem& file_system, const std::string& folder);

/// Catalog of all *.safetensors files of `folder`, pieces joined. The global shape is the furthest
/// end of any piece. corrupt when pieces overlap or leave a hole, naming tensor and file.
Catalog open_safetensors_shards(std::shared_ptr<const FileSystem> file_system,
                                const std::string& folder);

}  // namespace ferry
