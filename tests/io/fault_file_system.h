// A file system that fails on demand, for tests: the n-th operation of a chosen kind throws.
//
// One loop over n then proves that whatever fails, and whenever, nothing appears under a final name
// and there are no leftovers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/io/forwarding_file_system.h"

namespace ferry {

class FaultFileSystem final : public ForwardingFileSystem {
 public:
  /// Passes everything on to `inner`. Operations that change something are counted from 1: create,
  /// open_to_write, write, sync, create_folder, rename, replace, exchange, sync_folder, copy.
  /// Operation number `fail_at` throws Error(kind) and is not carried out, nor is any later one but
  /// remove_all when `stays_broken` is set (a disk that filled up, a server that went away). 0:
  /// none fails.
  FaultFileSystem(std::shared_ptr<const FileSystem> inner, uint64_t fail_at, ErrorKind kind,
                  bool stays_broken = false);
  /// The same, but that `fault` throws what it likes, given a message.
  using Fault = std::function<void(const std::string& message)>;
  FaultFileSystem(std::shared_ptr<const FileSystem> inner, uint64_t fail_at, Fault fault,
                  bool stays_broken = false);

  /// Changing operations so far.
  uint64_t operations() const noexcept { return *count_; }

  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override;
  std::unique_ptr<WritableFile> open_to_write(const std::string& path) const override;
  void create_folder(const std::string& path) const override;
  void rename(const std::string& from, const std::string& to) const override;
  void replace(const std::string& from, const std::string& to) const override;
  void exchange(const std::string& a, const std::string& b) const override;
  void sync_folder(const std::string& path) const override;
  uint64_t copy(const ReadableFile& from, uint64_t from_offset, WritableFile& to,
                uint64_t to_offset, uint64_t length, KernelCopy when) const override;

 private:
  class File;
  void count(const char* operation, const std::string& path) const;

  uint64_t fail_at_;
  Fault fault_;
  bool stays_broken_;
  std::shared_ptr<std::atomic<uint64_t>> count_ = std::make_shared<std::atomic<uint64_t>>(0);
};

}  // namespace ferry
