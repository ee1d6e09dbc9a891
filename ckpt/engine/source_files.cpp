#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/engine/memory_files.h"
#include "ckpt/engine/tiles/tile.h"
#include "ckpt/io/memory_file_system.h"
#include "ckpt/io/zstd_stream.h"

namespace ferry {
namespace {

// A checkpoint of thousands of ranks has more files than a process may hold open.
constexpr size_t kMostOpen = 256;
constexpr size_t kDecodeBytes = 1 << 20;

// One open file, or decoded stream; whoever comes first opens it while the others wait.
struct Slot {
  std::mutex mutex;
  std::shared_ptr<const ReadableFile> file;
};

}  // namespace

struct SourceFiles::State {
  using Key = std::pair<uint32_t, const Extent*>;  // the extent is null for the file itself

  State(const Catalog& c, SpoolPlace s) : catalog(c), spool(std::move(s)) {}

  std::shared_ptr<const ReadableFile> get(const Key& key);
  std::shared_ptr<const ReadableFile> open(uint32_t file) const;
  std::shared_ptr<const ReadableFile> decode(const Extent& extent);
  void keep_in_memory(const Key& key, uint64_t bytes);

  const Catalog& catalog;
  SpoolPlace spool;
  MemoryFileSystem memory;  // for streams decoded without a spool folder
  std::mutex mutex;         // guards what follows
  std::map<Key, std::shared_ptr<Slot>> slots;
  std::deque<Key> order;  // oldest first
  uint64_t spooled = 0;
  std::deque<std::pair<Key, uint64_t>> in_memory;  // decoded streams and their bytes, oldest first
  uint64_t bytes_in_memory = 0;
};

std::shared_ptr<const ReadableFile> SourceFiles::State::get(const Key& key) {
  std::shared_ptr<Slot> slot;
  {
    const std::lock_guard lock(mutex);
    slot = slots[key];
    if (!slot) {
      slot = slots[key] = std::make_shared<Slot>();
      order.push_back(key);
      if (order.size() > kMostOpen) {
        slots.erase(order.front());
        order.pop_front();
      }
    }
  }
  const std::lock_guard lock(slot->mutex);
  if (!slot->file) {
    slot->file = key.second ? decode(*key.second) : open(key.first);
    if (key.second && !spool.file_system) keep_in_memory(key, slot->file->size());
  }
  return slot->file;
}

// Forgets the oldest streams where there are too many: who needs them again decodes them again.
void SourceFiles::State::keep_in_memory(const Key& key, uint64_t bytes) {
  const std::lock_guard lock(mutex);
  in_memory.emplace_back(key, bytes);
  bytes_in_memory += bytes;
  while (bytes_in_memory > spool.memory_bytes && in_memory.size() > 1) {
    slots.erase(in_memory.front().first);
    bytes_in_memory -= in_memory.front().second;
    in_memory.pop_front();
  }
}

std::shared_ptr<const ReadableFile> SourceFiles::State::open(uint32_t file) const {
  const FileInfo& info = catalog.files.at(file);
  if (info.memory) {
    return std::make_shared<MemorySource>(info.path, std::span(info.memory, info.bytes));
  }
  if (!catalog.file_system) fail(ErrorKind::internal, "{} lies in no file", info.path);
  return catalog.file_system->open(info.path);
}

std::shared_ptr<const ReadableFile> SourceFiles::State::decode(const Extent& extent) {
  std::string path = "spool-";
  {
    const std::lock_guard lock(mutex);
    path += std::to_string(spooled++);
  }
  const FileSystem& files = spool.file_system ? *spool.file_system : memory;
  if (spool.file_system) path = join(spool.folder, "." + path);
  ZstdStream stream(get({extent.file, nullptr}), extent.offset, extent.length);
  const auto target = files.create(path, 0);
  std::vector<std::byte> buffer(kDecodeBytes);
  uint64_t at = 0;
  const uint64_t end = extent.decoded_end > 0 ? extent.decoded_end : UINT64_MAX;
  while (at < end) {
    const size_t wanted = std::min<uint64_t>(buffer.size(), end - at);
    const size_t bytes = stream.read_some(std::span(buffer).first(wanted));
    if (bytes == 0) break;  // whoever reads what is missing is told
    target->write(at, std::span(buffer).first(bytes));
    at += bytes;
  }
  auto file = files.open(path);
  files.remove_all(path);  // stays readable until it is closed, and nothing is left behind
  return file;
}

SourceFiles::SourceFiles(const Catalog& catalog, SpoolPlace spool)
    : state_(std::make_unique<State>(catalog, std::move(spool))) {}
SourceFiles::~SourceFiles() = default;

std::shared_ptr<const ReadableFile> SourceFiles::get(const Transfer& transfer) {
  return state_->get({transfer.in_file, transfer.zstd});
}

}  // namespace ferry
