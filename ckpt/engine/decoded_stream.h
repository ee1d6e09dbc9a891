// What a zstd stream decodes to, for reading by position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

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

}  // namespace ferry
