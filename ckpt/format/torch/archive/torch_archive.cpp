#include "ckpt/format/torch/archive/torch_archive.h"

#include <algorithm>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/torch/archive/zip_directory.h"
#include "ckpt/format/torch/torch_legacy.h"

namespace ferry {
namespace {

// Elements of a view that shows some of its storage's more than once (Tensor.expand): a few bytes
// must not become terabytes.
constexpr int64_t kMostRepeated = int64_t{1} << 30;

// "archive/data/0" -> "data/0"; all records of an archive have the same first part.
std::string without_prefix(const std::string& name, std::string& prefix, const std::string& what) {
  const size_t slash = name.find('/');
  const bool is_inside = slash != std::string::npos && slash > 0 && slash + 1 < name.size();
  if (prefix.empty() && is_inside) prefix = name.substr(0, slash);
  if (!is_inside || name.compare(0, slash, prefix) != 0) {
    fail(ErrorKind::corrupt,
         "{}: zip record '{}' is not in the archive's folder '{}'; not a file that torch.save "
         "wrote",
         what, name, prefix);
  }
  return name.substr(slash + 1);
}

}  // namespace

TorchArchive read_torch_archive(const ReadableFile& file, uint64_t offset, uint64_t length) {
  ItemReader item(file, offset, length);
  if (is_legacy_torch_file(item.bytes(0, std::min<uint64_t>(length, 32)))) {
    return read_legacy_torch_file(item);
  }
  TorchArchive archive;
  std::string prefix;
  const TorchArchive::Record* pickle = nullptr;
  for (const ZipRecord& record : read_zip_directory(item)) {
    const auto [at, is_new] = archive.records.try_emplace(
        without_prefix(record.name, prefix, item.what()),
        TorchArchive::Record{offset + record.offset, record.length, record.crc32});
    if (!is_new) {
      fail(ErrorKind::corrupt, "{}: zip record {} is there twice", item.what(), record.name);
    }
    if (at->first == "data.pkl") pickle = &at->second;
  }
  if (!pickle) {
    fail(ErrorKind::corrupt, "{}: no record data.pkl; not a file that torch.save wrote",
         item.what());
  }
  if (pickle->length > TorchArchive::kMostPickleBytes) {
    fail(ErrorKind::exhausted, "{}: its pickle has {} bytes; at most {} are read", item.what(),
         pickle->length, TorchArchive::kMostPickleBytes);
  }
  if (const auto order = archive.records.find("byteorder"); order != archive.records.end()) {
    const uint64_t bytes = std::min<uint64_t>(order->second.length, 8);
    archive.big_endian = item.bytes(order->second.offset - offset, bytes) == "big";
  }
  const auto bytes = item.bytes(pickle->offset - offset, pickle->length);
  archive.pickle = parse_pickle(std::as_bytes(std::span(bytes)), item.what());
  return archive;
}

TorchArchive::Record TorchArchive::storage(const StoredTensor& tensor,
                                           const std::string& what) const {
  const auto record = records.find("data/" + tensor.storage_key);
  if (record == records.end()) {
    fail(ErrorKind::corrupt, "{}: no record data/{} for the elements of a tensor", what,
         tensor.storage_key);
  }
  if (big_endian && size_bytes(tensor.dtype) > 1) {
    fail(
        ErrorKind::unsupported,
        "{}: written on a big-endian machine; save it again with torch.save on a little-endian one",
        what);
  }
  check_view(tensor, what);
  const int64_t needed = checked_multiply(tensor.storage_elements, size_bytes(tensor.dtype), what);
  if (static_cast<uint64_t>(needed) > record->second.length) {
    fail(ErrorKind::corrupt, "{}: record data/{} has {} bytes where {} elements of {} need {}",
         what, tensor.storage_key, record->second.length, tensor.storage_elements,
         torch_name(tensor.dtype), needed);
  }
  return record->second;
}

void check_view(const StoredTensor& tensor, const std::string& what) {
  const bool is_empty =
      std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  int64_t last = tensor.storage_offset;
  bool inside = true;
  for (size_t axis = 0; axis < tensor.shape.size() && !is_empty; ++axis) {
    inside = inside && tensor.shape[axis] > 0 && tensor.strides[axis] >= 0;
    last = checked_add(last, checked_multiply(tensor.shape[axis] - 1, tensor.strides[axis], what),
                       what);
  }
  inside = inside && tensor.storage_offset >= 0 &&
           (is_empty ? tensor.storage_offset <= tensor.storage_elements
                     : last < tensor.storage_elements);
  if (!inside) {
    fail(
        ErrorKind::corrupt,
        "{}: a tensor of shape {} and strides {} from element {} leaves its storage of {} elements",
        what, to_string(tensor.shape), to_string(tensor.strides), tensor.storage_offset,
        tensor.storage_elements);
  }
  const int64_t elements = element_count(tensor.shape, what);
  if (elements > tensor.storage_elements && elements > kMostRepeated) {
    fail(ErrorKind::unsupported,
         "{}: a tensor of shape {} repeats the {} elements of its storage; save its contiguous() "
         "form if it is meant to be that large",
         what, to_string(tensor.shape), tensor.storage_elements);
  }
}

}  // namespace ferry
