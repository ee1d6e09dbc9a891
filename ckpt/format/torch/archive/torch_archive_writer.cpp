#include "ckpt/format/torch/archive/torch_archive_writer.h"

#include <functional>
#include <map>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle_emitter.h"
#include "ckpt/format/pickle/pickle_opcodes.h"
#include "ckpt/format/pickle/pickle_writer.h"
#include "ckpt/format/torch/archive/zip_writer.h"

namespace ferry {
namespace {

// Storages in the order in which the pickle mentions them.
class Storages {
 public:
  std::string name_of(std::string_view key, uint64_t bytes) {
    const auto [at, is_new] = numbers_.try_emplace(std::string(key), lengths_.size());
    if (is_new) {
      keys_.push_back(at->first);
      lengths_.push_back(bytes);
    } else if (lengths_[at->second] != bytes) {
      fail(ErrorKind::mismatch, "storage {} has {} bytes for one tensor and {} for another", key,
           lengths_[at->second], bytes);
    }
    return std::to_string(at->second);
  }

  const std::vector<std::string>& keys() const { return keys_; }
  uint64_t length(size_t number) const { return lengths_[number]; }

 private:
  std::map<std::string, size_t, std::less<>> numbers_;
  std::vector<std::string> keys_;
  std::vector<uint64_t> lengths_;
};

void add_first_records(ZipWriter& zip, std::string_view pickle) {
  zip.add("data.pkl", pickle);
  zip.add(".format_version", "1");
  zip.add(".storage_alignment", "64");
  zip.add("byteorder", "little");
}

TorchArchiveLayout finish(ZipWriter& zip) {
  zip.add("version", "3\n");
  zip.add(".data/serialization_id", zip.serialization_id());
  return std::move(zip).finish();
}

}  // namespace

TorchArchiveLayout lay_out_torch_archive(const Value& value, std::string_view folder) {
  Storages storages;
  const std::string pickle = write_pickle(
      value, [&](std::string_view key, uint64_t bytes) { return storages.name_of(key, bytes); });
  ZipWriter zip(folder);
  add_first_records(zip, pickle);
  for (size_t i = 0; i < storages.keys().size(); ++i) {
    const std::string name = "data/" + std::to_string(i), &key = storages.keys()[i];
    const auto& held = value.document()->storages;
    const auto bytes = held.find(key);
    if (bytes == held.end()) {
      zip.add_payload(name, key, storages.length(i));
      continue;
    }
    if (bytes->second.size() != storages.length(i)) {
      fail(ErrorKind::mismatch, "storage {} has {} bytes where a tensor needs {}", key,
           bytes->second.size(), storages.length(i));
    }
    zip.add(name, bytes->second);
  }
  return finish(zip);
}

TorchArchiveLayout lay_out_torch_tensor(DType dtype, const Dims& shape, std::string_view folder) {
  StoredTensor tensor;
  tensor.dtype = dtype;
  tensor.storage_elements = element_count(shape, "tensor");
  tensor.shape = shape;
  tensor.strides = row_major_strides(shape);
  const int64_t bytes = checked_multiply(tensor.storage_elements, size_bytes(dtype), "tensor");
  PickleEmitter pickle;
  pickle.tensor_call(tensor, "0");
  pickle.opcode(pickle::REDUCE);
  pickle.put();
  ZipWriter zip(folder);
  add_first_records(zip, std::move(pickle).finish());
  zip.add_payload("data/0", "0", static_cast<uint64_t>(bytes));
  return finish(zip);
}

std::string write_torch_archive(const Value& value, std::string_view folder) {
  TorchArchiveLayout layout = lay_out_torch_archive(value, folder);
  if (!layout.payloads.empty()) {
    fail(ErrorKind::invalid, "the elements of storage {} are not held in memory",
         layout.payloads[0].storage);
  }
  return std::move(layout.literals.at(0).bytes);
}

}  // namespace ferry
