// The `.metadata` pickle of a PyTorch distributed checkpoint, as plain numbers and names.
//
// Source: torch/distributed/checkpoint/metadata.py (Metadata, TensorStorageMetadata,
// MetadataIndex), filesystem.py (_StorageInfo), _extension.py (transform descriptors).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

struct DcpTensor {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  std::vector<Box> chunks;
};

/// Where one stored item is: an entry of the pickle's storage_data.
struct DcpItem {
  std::string_view file;  // relative path as written: not yet trusted
  uint64_t offset = 0;
  uint64_t length = 0;
  bool zstd = false;
};

/// Finds items by name and chunk offset, as PyTorch does; the `index` of a MetadataIndex is only a
/// hint of its position and is ignored. Refers to the strings of the document.
class DcpStorage {
 public:
  /// Reads storage_data. corrupt when it is not one; unsupported for unknown transforms.
  DcpStorage(const Value& storage_data, std::string_view what);

  const DcpItem* find(std::string_view name, const Dims& offset) const;  // null when absent
  const DcpItem* find(std::string_view name) const;                      // stored without offset

 private:
  struct Key {
    std::string_view name;
    std::optional<Dims> offset;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const noexcept;
  };
  const DcpItem* find(const Key& key) const;

  std::unordered_map<Key, DcpItem, KeyHash> items_;
};

struct DcpMetadata {
  std::vector<DcpTensor> tensors;    // in the order of the pickle
  std::vector<std::string> objects;  // byte objects, likewise
};

/// Reads state_dict_metadata of a Metadata object (or of Megatron-LM's subclass of it). `what`
/// names the file for messages. corrupt when a field is missing or of another kind or a name is
/// there twice; unsupported for a dtype that is unknown here.
DcpMetadata read_dcp_metadata(const Value& root, std::string_view what);

}  // namespace ferry
