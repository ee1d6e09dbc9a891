// A file system in memory, for tests and for plans whose target is memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Paths are plain strings with '/' between parts. Files and folders may be used from several
/// threads; an open file stays readable after it was removed or replaced.
class MemoryFileSystem : public FileSystem {
 public:
  MemoryFileSystem();
  ~MemoryFileSystem() override;

  /// Adds a file with the folders above it, or replaces one.
  void put(const std::string& path, std::string content);
  /// Content of a file; not_found when there is none.
  std::string get(const std::string& path) const;
  /// The clock of PathStatus::changed_seconds: what is created or put from now on has this time.
  void set_clock(int64_t seconds);

  PathStatus status(const std::string& path) const override;
  std::vector<std::string> list(const std::string& path) const override;
  std::shared_ptr<const ReadableFile> open(const std::string& path) const override;
  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override;
  std::unique_ptr<WritableFile> open_to_write(const std::string& path) const override;
  std::unique_ptr<AppendableFile> open_to_append(const std::string& path) const override;
  void create_folder(const std::string& path) const override;
  void rename(const std::string& from, const std::string& to) const override;
  void replace(const std::string& from, const std::string& to) const override;
  void exchange(const std::string& a, const std::string& b) const override;
  void remove_all(const std::string& path) const override;
  void sync_folder(const std::string& path) const override;
  std::unique_ptr<LockableFile> open_lockable(const std::string& path,
                                              LockMode strongest) const override;
  uint64_t copy(const ReadableFile& from, uint64_t from_offset, WritableFile& to,
                uint64_t to_offset, uint64_t length, KernelCopy when) const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ferry
