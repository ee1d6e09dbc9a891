#include "ckpt/format/torch/torch_legacy.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle.h"

namespace ferry {
namespace {

constexpr uint64_t kFirstWindow = 256 << 10;

struct Pickles {
  std::shared_ptr<const Document> magic, protocol, system, value, keys;
  uint64_t bytes = 0;  // of all
};

Pickles parse_pickles(std::string_view bytes, const std::string& what) {
  Pickles pickles;
  for (auto* document :
       {&pickles.magic, &pickles.protocol, &pickles.system, &pickles.value, &pickles.keys}) {
    uint64_t consumed = 0;
    *document =
        parse_pickle(std::as_bytes(std::span(bytes.substr(pickles.bytes))), what, {}, &consumed);
    pickles.bytes += consumed;
  }
  return pickles;
}

// Where the pickles end shows only when they are parsed: a window that is too small fails as
// truncated, and a larger one is tried.
Pickles read_pickles(ItemReader& item) {
  const uint64_t most = std::min(item.length(), TorchArchive::kMostPickleBytes);
  for (uint64_t window = std::min(most, kFirstWindow);; window = std::min(most, window * 8)) {
    try {
      return parse_pickles(item.bytes(0, window), item.what());
    } catch (const Error& error) {
      if (window == most || error.kind() != ErrorKind::corrupt) throw;
    }
  }
}

struct Storage {
  int64_t elements = 0;
  int64_t element_bytes = 0;
};

// The storages that the value names by ("storage", class, key, location, elements[, view]).
std::map<std::string, Storage> find_storages(const Document& document, const std::string& what) {
  std::map<std::string, Storage> storages;
  for (uint32_t node = 0; node < document.nodes.size(); ++node) {
    const Value id = document.root_at(node);
    if (id.kind() != ValueKind::object || id.text() != "persistent_id" ||
        id[0].text() != "storage") {
      continue;
    }
    const std::string& storage_class = id[1].text();
    const auto dtype = dtype_from_torch_storage(storage_class.substr(storage_class.rfind('.') + 1));
    const auto elements = id[4].integer();
    if (id[2].kind() != ValueKind::string || !elements || *elements < 0) {
      fail(ErrorKind::corrupt, "{}: a storage without key or size", what);
    }
    if (!dtype || !id[5].is_none()) {
      fail(ErrorKind::unsupported,
           "{}: storage {} is of type {}{}; load and torch.save the file again with PyTorch 1.6 or "
           "newer",
           what, id[2].text(), storage_class, id[5].is_none() ? "" : ", a view of another");
    }
    const Storage storage{*elements, size_bytes(*dtype)};
    const Storage& known = storages.try_emplace(id[2].text(), storage).first->second;
    if (known.elements != storage.elements || known.element_bytes != storage.element_bytes) {
      fail(ErrorKind::corrupt, "{}: storage {} has two sizes", what, id[2].text());
    }
  }
  return storages;
}

}  // namespace

bool is_legacy_torch_file(std::string_view first_bytes) {
  // Protocol 2, and the magic number in ten bytes.
  static constexpr std::string_view kMagic(
      "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  return first_bytes.starts_with(kMagic);
}

std::shared_ptr<const Document> read_legacy_value(ItemReader& item) {
  return read_pickles(item).value;
}

TorchArchive read_legacy_torch_file(ItemReader& item, uint64_t* pickle_bytes) {
  const Pickles pickles = read_pickles(item);
  if (pickle_bytes) *pickle_bytes = pickles.bytes;
  constexpr int64_t kProtocol = 1001;
  if (pickles.protocol->root().integer() != kProtocol) {
    fail(ErrorKind::unsupported,
         "{}: the old torch.save format in a version other than 1001; load and torch.save the file "
         "again with PyTorch 1.6 or newer",
         item.what());
  }
  TorchArchive archive;
  archive.pickle = pickles.value;
  archive.big_endian = pickles.system->root().get("little_endian").boolean() == false;
  const auto storages = find_storages(*pickles.value, item.what());
  const Value keys = pickles.keys->root();
  uint64_t at = pickles.bytes;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto storage = storages.find(keys[i].text());
    if (storage == storages.end()) {
      fail(ErrorKind::corrupt, "{}: storage {} is not used by the value", item.what(),
           keys[i].text());
    }
    int64_t elements = 0;
    std::memcpy(&elements, item.bytes(at, sizeof elements).data(), sizeof elements);
    at += sizeof elements;
    const int64_t bytes =
        checked_multiply(storage->second.elements, storage->second.element_bytes, item.what());
    if (!archive.big_endian && elements != storage->second.elements) {
      fail(ErrorKind::corrupt, "{}: storage {} has {} elements where {} are expected", item.what(),
           keys[i].text(), elements, storage->second.elements);
    }
    if (static_cast<uint64_t>(bytes) > item.length() - at) {
      fail(ErrorKind::corrupt, "{}: storage {} of {} bytes leaves the {} bytes there are",
           item.what(), keys[i].text(), bytes, item.length());
    }
    const TorchArchive::Record record{item.offset() + at, static_cast<uint64_t>(bytes), 0};
    if (!archive.records.emplace("data/" + keys[i].text(), record).second) {
      fail(ErrorKind::corrupt, "{}: storage {} is there twice", item.what(), keys[i].text());
    }
    at += static_cast<uint64_t>(bytes);
  }
  return archive;
}

}  // namespace ferry
