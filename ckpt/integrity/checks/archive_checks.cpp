#include "ckpt/integrity/checks/archive_checks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/format/torch/archive/zip_directory.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/io/zstd_stream.h"

namespace ferry {
namespace {

constexpr size_t kReadBytes = 1 << 20;

bool is_archive(const ReadableFile& file, uint64_t offset, uint64_t bytes) {
  std::array<char, 4> start{};
  if (bytes < start.size()) return false;
  file.read(offset, std::as_writable_bytes(std::span(start)));
  return std::string_view(start.data(), start.size()) == "PK\3\4";
}

bool has_archive_name(const std::string& path) {
  static constexpr std::string_view kSuffixes[] = {".pt", ".pth", ".bin", ".ckpt"};
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                     [&](std::string_view suffix) { return path.ends_with(suffix); });
}

// What cannot be read is: looking at it will say why.
bool may_be_archive(const FileSystem& file_system, const std::string& path) {
  try {
    const auto file = file_system.open(path);
    return is_archive(*file, 0, file->size());
  } catch (const Error&) {
    return true;
  }
}

using FileNumbers = std::unordered_map<std::string, uint32_t>;

void add_stored(const Catalog& stored, const FileNumbers& numbers, std::vector<Archive>& archives) {
  const auto add = [&](const Extent& extent, Archive archive) {
    const auto number = numbers.find(stored.files.at(extent.file).path);
    if (number == numbers.end()) return;
    archive.file = number->second;
    archive.offset = extent.offset;
    archive.bytes = extent.length;
    archives.push_back(std::move(archive));
  };
  for (const Entry& entry : stored.entries) {
    for (const Chunk& chunk : entry.chunks) {
      if (chunk.extent.encoding != Encoding::torch_zip && !chunk.extent.zstd) continue;
      add(chunk.extent, {0, 0, 0, fmt::format("tensor {} {}", entry.name, to_string(chunk.box)),
                         &entry, &chunk, nullptr});
    }
  }
  for (const Object& object : stored.objects) {
    if (!object.path.empty()) continue;  // inside a file that is an archive as a whole
    add(object.extent, {0, 0, 0, "object " + object.name, nullptr, nullptr, &object});
  }
}

void add_whole_files(std::span<const FileInfo> files, const FileSystem& file_system,
                     std::vector<Archive>& archives) {
  std::vector<bool> is_item(files.size(), false);
  for (const Archive& archive : archives) {
    if (archive.offset == 0 && archive.bytes == files[archive.file].bytes) {
      is_item[archive.file] = true;
    }
  }
  for (uint32_t i = 0; i < files.size(); ++i) {
    if (is_item[i] || !has_archive_name(files[i].path)) continue;
    if (may_be_archive(file_system, files[i].path)) {
      archives.push_back({i, 0, files[i].bytes, {}, {}, {}, {}});
    }
  }
}

// One thread's part of the work.
class Looker {
 public:
  Looker(const Catalog* stored, std::span<const FileInfo> files, const FileSystem& file_system,
         const std::atomic<bool>* cancel)
      : stored_(stored), files_(files), file_system_(file_system), cancel_(cancel) {}

  void look(const Archive& archive) {
    stop_on_request();
    try {
      check(archive);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::cancelled || error.kind() == ErrorKind::internal) throw;
      std::string what = error.what();
      if (what.find(archive.holds) == std::string::npos) what = archive.holds + ": " + what;
      result.problems.push_back({files_[archive.file].path, archive.offset, archive.bytes,
                                 archive.holds, std::move(what)});
    }
  }

  ArchiveChecks result;

 private:
  void check(const Archive& archive) {
    if (!file_ || file_->path() != files_[archive.file].path) {
      file_ = file_system_.open(files_[archive.file].path);
    }
    const bool zstd =
        archive.object ? archive.object->extent.zstd : archive.chunk && archive.chunk->extent.zstd;
    if (zstd) ++result.zstd;
    if (archive.chunk) {
      ++result.tensors;
      const Chunk located = stored_->locator
                                ? stored_->locator->locate(*stored_, *archive.entry, *archive.chunk)
                                : *archive.chunk;
      if (zstd) decode(archive, located.extent.decoded_end);
    } else if (archive.object) {
      ++result.objects;
      read_object(*stored_, *archive.object);  // decodes all of a stream, up to a limit
    } else {
      ++result.whole_files;
    }
    if (!zstd && is_archive(*file_, archive.offset, archive.bytes)) add_records(archive);
  }

  // To the checksum at the end, wherever that is: the rest of a storage that a tensor is a part of
  // may be of any length. `end` is that of the elements; 0: not known.
  void decode(const Archive& archive, uint64_t end) {
    buffer_.resize(kReadBytes);
    ZstdStream stream(file_, archive.offset, archive.bytes);
    do {
      stop_on_request();
    } while (stream.read_some(buffer_) > 0);
    if (stream.position() < end) {
      fail(ErrorKind::corrupt,
           "{} in {} at byte {}: its zstd stream ends at decoded byte {} but the tensor's elements "
           "at {}; the file is damaged",
           archive.holds, file_->path(), archive.offset, stream.position(), end);
    }
  }

  void stop_on_request() const {
    if (cancel_ && *cancel_) fail(ErrorKind::cancelled, "stopped on request");
  }

  void add_records(const Archive& archive) {
    ItemReader item(*file_, archive.offset, archive.bytes);
    bool has_all = true;
    for (ZipRecord& record : read_zip_directory(item)) {
      // torch.serialization.set_crc32_options(False) leaves them out.
      has_all = has_all && (record.crc32 != 0 || record.length == 0);
      if (record.crc32 == 0) continue;
      result.list.add(
          {archive.file, archive.offset + record.offset, record.length, Crc32{record.crc32}},
          {nullptr, &archive.holds, std::move(record.name)});
    }
    if (!has_all) ++result.without_crc32;
  }

  const Catalog* stored_;
  std::span<const FileInfo> files_;
  const FileSystem& file_system_;
  const std::atomic<bool>* cancel_;
  std::shared_ptr<const ReadableFile> file_;
  std::vector<std::byte> buffer_;
};

void append(ArchiveChecks& all, ArchiveChecks& part) {
  all.list.append(std::move(part.list));
  std::move(part.problems.begin(), part.problems.end(), std::back_inserter(all.problems));
  all.tensors += part.tensors;
  all.objects += part.objects;
  all.whole_files += part.whole_files;
  all.zstd += part.zstd;
  all.without_crc32 += part.without_crc32;
}

}  // namespace

std::vector<Archive> find_archives(const Catalog* stored, std::span<const FileInfo> files,
                                   const FileSystem& file_system) {
  FileNumbers numbers;
  for (uint32_t i = 0; i < files.size(); ++i) numbers.emplace(files[i].path, i);
  std::vector<Archive> archives;
  if (stored) add_stored(*stored, numbers, archives);
  add_whole_files(files, file_system, archives);
  return archives;
}

ArchiveChecks check_archives(const Catalog* stored, std::span<const Archive> archives,
                             std::span<const FileInfo> files, const FileSystem& file_system,
                             const EngineOptions& options) {
  ArchiveChecks all;
  std::mutex mutex;
  std::atomic<size_t> next{0};
  const auto threads =
      std::min<size_t>(static_cast<size_t>(thread_count(options.threads)), archives.size());
  on_threads(static_cast<int>(threads), [&](int, const std::atomic<bool>& stop) {
    Looker looker(stored, files, file_system, options.cancel);
    for (size_t i = next++; i < archives.size() && !stop; i = next++) looker.look(archives[i]);
    const std::lock_guard lock(mutex);
    append(all, looker.result);
  });
  return all;
}

}  // namespace ferry
