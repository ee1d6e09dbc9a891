#include "ckpt/engine/source_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/random_bits.h"
#include "ckpt/core/quantised.h"
#include "ckpt/engine/memory_files.h"
#include "ckpt/io/file_system.h"
#include "ckpt/io/open_file_limit.h"
#include "ckpt/io/zstd_stream.h"

namespace ferry {
namespace {

// What a zstd stream decodes to, for reading by position.

/// Filled by one thread, then read. Kept in memory while it is small, else in a file.
class DecodedStream final : public ReadableFile {
 public:
  using CreateFile = std::function<std::unique_ptr<WritableFile>()>;

  /// `name` is for messages. Beyond `most_in_memory` bytes it is moved to the file that
  /// `create_file` makes.
  DecodedStream(std::string name, uint64_t most_in_memory, CreateFile create_file)
      : name_(std::move(name)),
        most_in_memory_(most_in_memory),
        create_file_(std::move(create_file)) {}

  /// Makes room for so many bytes, or for what memory may hold of them.
  void expect(uint64_t bytes);
  void append(std::span<const std::byte> bytes);

  /// Bytes of memory that it takes; 0 once it is in a file.
  uint64_t memory_bytes() const noexcept { return memory_.capacity(); }

  const std::string& path() const noexcept override { return name_; }
  uint64_t size() const noexcept override { return size_; }
  void read(uint64_t offset, std::span<std::byte> into) const override;
  std::span<const std::byte> view(uint64_t offset, uint64_t bytes) const override;

 private:
  std::string name_;
  uint64_t most_in_memory_;
  CreateFile create_file_;
  uint64_t size_ = 0;
  std::vector<std::byte> memory_;
  std::unique_ptr<WritableFile> file_;
};

void DecodedStream::expect(uint64_t bytes) { memory_.reserve(std::min(bytes, most_in_memory_)); }

void DecodedStream::append(std::span<const std::byte> bytes) {
  if (!file_ && bytes.size() > most_in_memory_ - memory_.size()) {
    file_ = create_file_();
    if (!memory_.empty()) file_->write(0, memory_);
    memory_ = {};
  }
  if (file_) {
    file_->write(size_, bytes);
  } else {
    // Not by doubling: the limit is one of memory.
    const size_t needed = memory_.size() + bytes.size();
    if (needed > memory_.capacity())
      memory_.reserve(std::min<uint64_t>(2 * needed, most_in_memory_));
    memory_.insert(memory_.end(), bytes.begin(), bytes.end());
  }
  size_ += bytes.size();
}

void DecodedStream::read(uint64_t offset, std::span<std::byte> into) const {
  if (offset > size_ || into.size() > size_ - offset) {
    fail(ErrorKind::corrupt,
         "{}: the zstd stream ends at decoded byte {} where {} from byte {} on are needed", name_,
         size_, into.size(), offset);
  }
  if (file_) return file_->read(offset, into);
  std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
}

std::span<const std::byte> DecodedStream::view(uint64_t offset, uint64_t bytes) const {
  if (file_ || offset > size_ || bytes > size_ - offset) return {};
  return std::span(memory_).subspan(offset, bytes);
}

// A checkpoint of thousands of ranks has more files than a process may hold open.
constexpr size_t kMostOpen = 256;
constexpr size_t kDecodeBytes = 256 << 10;  // at once

// One open file, or decoded stream.
struct Slot {
  std::mutex opening;  // whoever comes first opens it while the others wait
  // The files' mutex guards what follows.
  std::shared_ptr<const ReadableFile> file;
  bool was_dropped = false;
};

std::string temporary_folder() {
  std::error_code code;
  const std::string folder = std::filesystem::temp_directory_path(code).string();
  if (code) {
    fail(ErrorKind::io,
         "there is no folder for temporary files ({}); set TMPDIR to one with room for what zstd "
         "streams of the source decode to",
         code.message());
  }
  return folder;
}

}  // namespace

struct SourceFiles::State {
  using Key = std::pair<uint32_t, const Extent*>;  // the extent is null for the file itself

  // Half of the memory is for streams that are kept, half for those that threads still read when
  // they are dropped.
  State(const Catalog& c, SpoolPlace s, uint64_t memory_bytes, int threads,
        const BorrowedSources* l)
      : catalog(c),
        spool(std::move(s)),
        borrowed(l),
        most_in_memory(memory_bytes / 2),
        most_of_a_stream(most_in_memory / static_cast<uint64_t>(std::max(1, threads))),
        most_open(std::clamp<size_t>(most_open_files() / 4, 1, kMostOpen)) {}

  std::shared_ptr<const ReadableFile> get(const Key& key);
  std::shared_ptr<const ReadableFile> open(uint32_t file) const;
  std::shared_ptr<const DecodedStream> decode(const Extent& extent, bool into_file);
  std::unique_ptr<WritableFile> create_spool();
  std::string tensor_at(const Extent& extent) const;
  void keep(const std::shared_ptr<Slot>& slot, bool is_stream, uint64_t memory_bytes);

  const Catalog& catalog;
  const SpoolPlace spool;
  const BorrowedSources* const borrowed;
  const uint64_t most_in_memory;    // of all streams
  const uint64_t most_of_a_stream;  // in memory
  const size_t most_open;
  const uint64_t token = random_bits();  // in names of files

  std::mutex mutex;  // guards what follows
  std::map<Key, std::shared_ptr<Slot>> slots;
  // Open ones, oldest first: files, streams in files, streams in memory with their bytes.
  std::deque<std::shared_ptr<Slot>> files, spooled;
  std::deque<std::pair<std::shared_ptr<Slot>, uint64_t>> in_memory;
  uint64_t bytes_in_memory = 0;
  uint64_t next_spool = 0;
};

std::shared_ptr<const ReadableFile> SourceFiles::State::get(const Key& key) {
  std::shared_ptr<Slot> slot;
  {
    const std::lock_guard lock(mutex);
    std::shared_ptr<Slot>& known = slots[key];
    if (!known) known = std::make_shared<Slot>();
    if (known->file) return known->file;
    slot = known;
  }
  const std::lock_guard opening(slot->opening);
  bool into_file = false;
  {
    const std::lock_guard lock(mutex);
    if (slot->file) return slot->file;
    into_file = slot->was_dropped;
  }
  std::shared_ptr<const ReadableFile> file;
  uint64_t memory_bytes = 0;
  if (key.second) {
    const auto decoded = decode(*key.second, into_file);
    memory_bytes = decoded->memory_bytes();
    file = decoded;
  } else {
    file = open(key.first);
  }
  const std::lock_guard lock(mutex);
  slot->file = file;
  keep(slot, key.second != nullptr, memory_bytes);
  return file;
}

// Drops the oldest of what is too many. Who reads it at the moment keeps it until then.
void SourceFiles::State::keep(const std::shared_ptr<Slot>& slot, bool is_stream,
                              uint64_t memory_bytes) {
  const auto drop = [](Slot& old) {
    old.file.reset();
    old.was_dropped = true;
  };
  if (memory_bytes == 0) {
    std::deque<std::shared_ptr<Slot>>& opened = is_stream ? spooled : files;
    opened.push_back(slot);
    if (opened.size() <= most_open) return;
    drop(*opened.front());
    opened.pop_front();
    return;
  }
  in_memory.emplace_back(slot, memory_bytes);
  bytes_in_memory += memory_bytes;
  while (bytes_in_memory > most_in_memory && in_memory.size() > 1) {
    drop(*in_memory.front().first);
    bytes_in_memory -= in_memory.front().second;
    in_memory.pop_front();
  }
}

std::shared_ptr<const ReadableFile> SourceFiles::State::open(uint32_t file) const {
  const FileInfo& info = catalog.files.at(file);
  if (auto own = borrowed ? borrowed->file(file) : nullptr) return own;
  if (info.memory) {
    return std::make_shared<MemorySource>(info.path, std::span(info.memory, info.bytes));
  }
  if (!catalog.file_system) fail(ErrorKind::internal, "{} is in no file", info.path);
  return catalog.file_system->open(info.path);
}

std::shared_ptr<const DecodedStream> SourceFiles::State::decode(const Extent& extent,
                                                                bool into_file) try {
  const auto source = get({extent.file, nullptr});
  ZstdStream stream(source, extent.offset, extent.length);
  const auto decoded = std::make_shared<DecodedStream>(
      fmt::format("{} at byte {}", source->path(), extent.offset),
      into_file || extent.decoded_end > most_of_a_stream ? 0 : most_of_a_stream,
      [this] { return create_spool(); });
  decoded->expect(extent.decoded_end);
  std::vector<std::byte> buffer(kDecodeBytes);
  const uint64_t end = extent.decoded_end > 0 ? extent.decoded_end : UINT64_MAX;
  while (stream.position() < end) {
    const size_t count = std::min<uint64_t>(buffer.size(), end - stream.position());
    const size_t bytes = stream.read_some(std::span(buffer).first(count));
    if (bytes == 0) break;  // whoever reads what is missing gets an error
    decoded->append(std::span(buffer).first(bytes));
  }
  stream.check_to_end(kMostStreamTailBytes);
  return decoded;
} catch (const Error& error) {
  const bool is_full = error.kind() == ErrorKind::exhausted && !spool.file_system;
  fail(error.kind(), "tensor {}: {}{}", tensor_at(extent), error.what(),
       is_full ? "; TMPDIR names the folder for what zstd streams decode to" : "");
}

// Without a name from the start: nothing can be left over.
std::unique_ptr<WritableFile> SourceFiles::State::create_spool() {
  std::string name;
  {
    const std::lock_guard lock(mutex);
    name = fmt::format(".ferry-spool.{:x}.{:08x}.{}", ::getpid(), token, next_spool++);
  }
  const auto disk = spool.file_system ? nullptr : posix_file_system();
  const FileSystem& file_system = disk ? *disk : *spool.file_system;
  const std::string path = join(disk ? temporary_folder() : spool.folder, name);
  auto file = file_system.create(path, 0);
  file_system.remove_all(path);
  return file;
}

// For messages.
std::string SourceFiles::State::tensor_at(const Extent& extent) const {
  for (const Entry& entry : catalog.entries) {
    for (const Chunk& chunk : entry.chunks) {
      if (chunk.extent.file == extent.file && chunk.extent.offset == extent.offset)
        return entry.name;
    }
  }
  return "without a name";
}

uint64_t stream_memory(const Catalog& catalog, uint64_t memory_bytes) {
  for (const Entry& entry : catalog.entries) {
    if (const uint64_t bytes = stream_memory(entry, memory_bytes)) return bytes;
  }
  return 0;
}

uint64_t stream_memory(const Entry& entry, uint64_t memory_bytes) {
  bool has_streams = false;
  for_each_stored(entry, [&](const Entry& part) {
    has_streams = has_streams || std::ranges::any_of(part.chunks, [](const Chunk& chunk) {
                    return chunk.extent.zstd;
                  });
  });
  return has_streams ? memory_bytes / 4 : 0;
}

SourceFiles::SourceFiles(const Catalog& catalog, SpoolPlace spool, uint64_t memory_bytes,
                         int threads, const BorrowedSources* borrowed)
    : state_(std::make_unique<State>(catalog, std::move(spool), memory_bytes, threads, borrowed)) {}
SourceFiles::~SourceFiles() = default;

std::shared_ptr<const ReadableFile> SourceFiles::get(const Transfer& transfer) {
  return state_->get({transfer.in_file, transfer.zstd});
}

}  // namespace ferry
