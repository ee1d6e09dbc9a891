// Files of torch.save before PyTorch 1.6, or with _use_new_zipfile_serialization=False: five
// pickles in a row (a magic number, the protocol, the machine, the value, the storages' keys), then
// the storages in the keys' order, each after its number of elements as a 64-bit number.
//
// Source: torch/serialization.py (_legacy_save).
#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

#include "ckpt/core/checked.h"
#include "ckpt/core/error.h"
#include "ckpt/format/pickle.h"
#include "ckpt/format/torch_file.h"

namespace ferry {
namespace {

constexpr uint64_t kFirstBytes = uint64_t{4} << 20;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of the pickles

struct Pickles {
  std::shared_ptr<const Document> system, value, keys;
  uint64_t bytes = 0;
};

Pickles parse_pickles(std::string_view bytes, const std::string& what) {
  Pickles pickles;
  std::shared_ptr<const Document> documents[5];
  for (auto& document : documents) {
    uint64_t consumed = 0;
    document = parse_pickle(std::as_bytes(std::span(bytes)), what, {}, &consumed);
    bytes.remove_prefix(consumed);
    pickles.bytes += consumed;
  }
  pickles.system = documents[2];
  pickles.value = documents[3];
  pickles.keys = documents[4];
  return pickles;
}

// How long the pickles are stands nowhere: more of the file is read until they parse.
Pickles read_pickles(const ReadableFile& file) {
  for (uint64_t length = kFirstBytes;; length *= 8) {
    length = std::min({length, kMostBytes, file.size()});
    std::string bytes(length, '\0');
    file.read(0, std::as_writable_bytes(std::span(bytes)));
    try {
      return parse_pickles(bytes, file.path());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::corrupt || length == file.size() || length == kMostBytes) {
        throw;
      }
    }
  }
}

// Bytes of an element of each storage, by its key.
std::unordered_map<std::string, int64_t> element_sizes(const Document& document) {
  std::unordered_map<std::string, int64_t> sizes;
  for (uint32_t node = 0; node < document.nodes.size(); ++node) {
    const StoredTensor* tensor = document.root_at(node).tensor();
    if (tensor) sizes.emplace(tensor->storage_key, size_bytes(tensor->dtype));
  }
  return sizes;
}

}  // namespace

TorchArchive read_torch_file(const ReadableFile& file, uint64_t* pickle_bytes) {
  if (pickle_bytes) *pickle_bytes = 0;
  std::string first(std::min<uint64_t>(file.size(), 32), '\0');
  file.read(0, std::as_writable_bytes(std::span(first)));
  if (!is_legacy_torch_file(first)) return read_torch_archive(file, 0, file.size());

  const Pickles pickles = read_pickles(file);
  if (pickle_bytes) *pickle_bytes = pickles.bytes;
  TorchArchive archive;
  archive.pickle = pickles.value;
  archive.big_endian = pickles.system->root().get("little_endian").boolean() == false;
  const auto sizes = element_sizes(*pickles.value);
  const Value keys = pickles.keys->root();
  uint64_t position = pickles.bytes;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto key = keys[i].string();
    const auto size = key ? sizes.find(std::string(*key)) : sizes.end();
    if (size == sizes.end()) {
      fail(ErrorKind::unsupported, "{}: storage {} of {} is used by no tensor", file.path(), i,
           keys.size());
    }
    int64_t elements = 0;
    file.read(position, std::as_writable_bytes(std::span(&elements, 1)));
    position = checked_add<uint64_t>(position, sizeof elements, file.path());
    const int64_t bytes = checked_multiply(elements, size->second, file.path());
    if (elements < 0 || position > file.size() ||
        static_cast<uint64_t>(bytes) > file.size() - position) {
      fail(ErrorKind::corrupt,
           "{}: storage {} of {} elements at byte {} leaves the file ({} bytes)", file.path(), *key,
           elements, position, file.size());
    }
    archive.records["data/" + std::string(*key)] = {position, static_cast<uint64_t>(bytes), 0};
    position += static_cast<uint64_t>(bytes);
  }
  return archive;
}

}  // namespace ferry
