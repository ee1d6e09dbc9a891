// Open files of the operating system.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "ckpt/io/file_system.h"
#include "ckpt/io/page_writer.h"
#include "ckpt/io/posix_descriptor.h"

namespace ferry {

class PosixReadableFile final : public ReadableFile {
 public:
  /// Takes the descriptor.
  PosixReadableFile(std::string path, int descriptor, uint64_t bytes)
      : path_(std::move(path)), descriptor_(descriptor), bytes_(bytes) {}

  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return bytes_; }
  void read(uint64_t offset, std::span<std::byte> into) const override;

  int descriptor() const noexcept { return descriptor_.get(); }

 private:
  std::string path_;
  Descriptor descriptor_;
  uint64_t bytes_;
};

/// A file mapped into memory, read-only; the mapping needs no open descriptor.
class PosixMappedFile final : public ReadableFile {
 public:
  /// Maps what `file` has; io when the system does not let.
  explicit PosixMappedFile(const PosixReadableFile& file);
  ~PosixMappedFile() override;
  PosixMappedFile(const PosixMappedFile&) = delete;
  PosixMappedFile& operator=(const PosixMappedFile&) = delete;

  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return bytes_.size(); }
  void read(uint64_t offset, std::span<std::byte> into) const override;
  std::span<const std::byte> view(uint64_t offset, uint64_t bytes) const override;

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

/// A file mapped into memory that may be written to, which changes this memory alone; the mapping
/// needs no open descriptor.
class PrivateMapping {
 public:
  /// Takes the mapping.
  PrivateMapping(std::string path, std::span<std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}
  ~PrivateMapping();
  PrivateMapping(const PrivateMapping&) = delete;
  PrivateMapping& operator=(const PrivateMapping&) = delete;

  /// corrupt where the file ended before.
  std::span<std::byte> part(uint64_t offset, uint64_t bytes) const;

 private:
  std::string path_;
  std::span<std::byte> bytes_;
};

/// Null for what is not a file of the operating system's, or when that does not map it.
std::shared_ptr<PrivateMapping> map_privately(const ReadableFile& file);

class PosixWritableFile final : public WritableFile {
 public:
  /// Takes the descriptor. `pages` writes whole pages, always or while several threads write at
  /// once; null where it cannot write to this file.
  PosixWritableFile(std::string path, int descriptor, std::shared_ptr<PageWriter> pages,
                    bool always_pages);
  ~PosixWritableFile() override;

  const std::string& path() const noexcept override { return path_; }
  void write(uint64_t offset, std::span<const std::byte> from) override;
  void read(uint64_t offset, std::span<std::byte> into) const override;
  void sync() override;
  void close() override;

  /// Gives a new file its size, and its space where the file system can.
  void reserve(uint64_t bytes);
  int descriptor() const noexcept { return descriptor_.get(); }
  bool shares_blocks() const noexcept { return shares_blocks_; }

 private:
  bool is_crowded(int writers);
  void write_pages(uint64_t offset, std::span<const std::byte> from);
  void write_plainly(uint64_t offset, std::span<const std::byte> from);
  void unmap();

  std::string path_;
  Descriptor descriptor_;
  bool shares_blocks_;
  std::shared_ptr<PageWriter> pages_;
  bool always_pages_;
  std::once_flag is_mapped_;
  std::shared_ptr<const MappedFile> mapped_;  // for pages_, from the first time on
  std::atomic<int> writers_{0};               // of large pieces, at the moment
  std::atomic<int> crowded_{0};               // so many more pieces count as written by several
};

class PosixAppendableFile final : public AppendableFile {
 public:
  /// Takes the descriptor, which was opened with O_APPEND.
  PosixAppendableFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  const std::string& path() const noexcept override { return path_; }
  void append(std::span<const std::byte> from) override;
  std::optional<std::byte> last_byte() const override;
  void sync() override;

 private:
  void take_back(size_t bytes);

  std::string path_;
  Descriptor descriptor_;
};

}  // namespace ferry
