// Folders for plans that read no data: small files by name, and files of any size that
// are zeros and take no room.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/io/forwarding_file_system.h"
#include "tests/io/memory_file_system.h"

namespace ferry::test {

/// Begins with some bytes; the rest are zeros.
class ZeroFile final : public ReadableFile {
 public:
  ZeroFile(std::string path, std::string head, uint64_t bytes)
      : path_(std::move(path)), head_(std::move(head)), bytes_(bytes) {}
  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return bytes_; }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    if (offset > bytes_ || into.size() > bytes_ - offset) {
      fail(ErrorKind::corrupt, "{}: read outside of it", path_);
    }
    std::fill(into.begin(), into.end(), std::byte{0});
    if (offset >= head_.size() || into.empty()) return;
    std::memcpy(into.data(), head_.data() + offset,
                std::min<uint64_t>(into.size(), head_.size() - offset));
  }

 private:
  std::string path_, head_;
  uint64_t bytes_;
};

class ZeroFiles final : public ForwardingFileSystem {
 public:
  ZeroFiles() : ZeroFiles(std::make_shared<MemoryFileSystem>()) {}

  void put(const std::string& path, std::string content) { memory_->put(path, std::move(content)); }
  void put_zeros(const std::string& path, std::string head, uint64_t bytes) {
    memory_->put(path, "");  // so that it is listed
    zeros_[path] = std::make_shared<ZeroFile>(path, std::move(head), bytes);
  }

  PathStatus status(const std::string& path) const override {
    const auto found = zeros_.find(path);
    return found == zeros_.end() ? inner().status(path)
                                 : PathStatus{PathKind::file, found->second->size()};
  }
  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    const auto found = zeros_.find(path);
    return found == zeros_.end() ? inner().open(path) : found->second;
  }

 private:
  explicit ZeroFiles(std::shared_ptr<MemoryFileSystem> memory)
      : ForwardingFileSystem(memory), memory_(std::move(memory)) {}

  std::shared_ptr<MemoryFileSystem> memory_;
  std::map<std::string, std::shared_ptr<const ZeroFile>> zeros_;
};

}  // namespace ferry::test
