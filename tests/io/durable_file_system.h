// A file system that knows of which folders the names of files and folders may not outlast a power
// loss, for tests.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "ckpt/io/forwarding_file_system.h"

namespace ferry {

/// For one thread. A name that is removed, or moved away, needs no sync.
class DurableFileSystem final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;

  /// Folders that got a name since they were synced last.
  const std::set<std::string>& unsynced_folders() const noexcept { return unsynced_; }

  /// Files that were opened to be synced, which others had written, by their paths then.
  const std::set<std::string>& files_synced_for_others() const noexcept { return synced_; }

  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override {
    unsynced_.insert(split_path(path).parent);
    return ForwardingFileSystem::create(path, bytes);
  }
  std::unique_ptr<WritableFile> open_to_write(const std::string& path) const override {
    return std::make_unique<OpenFile>(ForwardingFileSystem::open_to_write(path), synced_);
  }
  void create_folder(const std::string& path) const override {
    ForwardingFileSystem::create_folder(path);
    unsynced_.insert(split_path(path).parent);
  }
  void rename(const std::string& from, const std::string& to) const override {
    ForwardingFileSystem::rename(from, to);
    unsynced_.insert(split_path(to).parent);
  }
  void replace(const std::string& from, const std::string& to) const override {
    ForwardingFileSystem::replace(from, to);
    unsynced_.insert(split_path(to).parent);
  }
  void exchange(const std::string& a, const std::string& b) const override {
    ForwardingFileSystem::exchange(a, b);
    unsynced_.insert(split_path(a).parent);
    unsynced_.insert(split_path(b).parent);
  }
  void sync_folder(const std::string& path) const override {
    ForwardingFileSystem::sync_folder(path);
    unsynced_.erase(path);
  }
  void remove_all(const std::string& path) const override {
    ForwardingFileSystem::remove_all(path);
    std::erase_if(unsynced_, [&](const std::string& folder) {
      return folder == path || folder.starts_with(path + "/");
    });
  }

 private:
  class OpenFile final : public WritableFile {
   public:
    OpenFile(std::unique_ptr<WritableFile> inner, std::set<std::string>& synced)
        : inner_(std::move(inner)), synced_(synced) {}
    const std::string& path() const noexcept override { return inner_->path(); }
    void write(uint64_t offset, std::span<const std::byte> from) override {
      inner_->write(offset, from);
    }
    void read(uint64_t offset, std::span<std::byte> into) const override {
      inner_->read(offset, into);
    }
    void sync() override {
      inner_->sync();
      synced_.insert(path());
    }

   private:
    std::unique_ptr<WritableFile> inner_;
    std::set<std::string>& synced_;
  };

  mutable std::set<std::string> unsynced_, synced_;
};

}  // namespace ferry
