// Forwards to another file system; derived classes change what they need.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Everything is passed on to `inner`, and done as safely from several threads as that does it.
class ForwardingFileSystem : public FileSystem {
 public:
  explicit ForwardingFileSystem(std::shared_ptr<const FileSystem> inner)
      : inner_(std::move(inner)) {}

  PathStatus status(const std::string& path) const override { return inner_->status(path); }
  std::string real_path(const std::string& path) const override { return inner_->real_path(path); }
  std::vector<std::string> list(const std::string& path) const override {
    return inner_->list(path);
  }
  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    return inner_->open(path);
  }
  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override {
    return inner_->create(path, bytes);
  }
  std::unique_ptr<WritableFile> open_to_write(const std::string& path) const override {
    return inner_->open_to_write(path);
  }
  std::unique_ptr<AppendableFile> open_to_append(const std::string& path) const override {
    return inner_->open_to_append(path);
  }
  std::optional<FreeSpace> free_space(const std::string& folder) const override {
    return inner_->free_space(folder);
  }
  bool may_create_in(const std::string& folder) const override {
    return inner_->may_create_in(folder);
  }
  void create_folder(const std::string& path) const override { inner_->create_folder(path); }
  void rename(const std::string& from, const std::string& to) const override {
    inner_->rename(from, to);
  }
  void replace(const std::string& from, const std::string& to) const override {
    inner_->replace(from, to);
  }
  void exchange(const std::string& a, const std::string& b) const override {
    inner_->exchange(a, b);
  }
  void remove_all(const std::string& path) const override { inner_->remove_all(path); }
  void sync_folder(const std::string& path) const override { inner_->sync_folder(path); }
  std::unique_ptr<LockableFile> open_lockable(const std::string& path,
                                              LockMode strongest) const override {
    return inner_->open_lockable(path, strongest);
  }
  uint64_t copy(const ReadableFile& from, uint64_t from_offset, WritableFile& to,
                uint64_t to_offset, uint64_t length, KernelCopy when) const override {
    return inner_->copy(from, from_offset, to, to_offset, length, when);
  }

 protected:
  const FileSystem& inner() const noexcept { return *inner_; }

 private:
  std::shared_ptr<const FileSystem> inner_;
};

}  // namespace ferry
