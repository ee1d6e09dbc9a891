// A disk in memory that loses power: what was not synced is gone, or only partly there.
//
// Files and folders are nodes. A file has the bytes that were written and those that were synced; a
// folder has its entries after each change since it was last synced. crash() leaves what a disk may
// hold then: of each folder the entries after any one of those changes (a journal keeps their
// order), of each file the synced bytes or the written ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry::test {

class PowerLossFileSystem final : public FileSystem {
 public:
  PowerLossFileSystem();
  ~PowerLossFileSystem() override;

  /// Operation number n from here on (create, write, sync, rename, an unlink, ...) and all later
  /// ones throw Error(io) and do nothing, until crash(). 0: none.
  void lose_power_at(uint64_t operation);
  bool lost_power() const;

  /// Picks one of `count` states of a folder or a file, 0 the one that was synced last.
  using Choose = std::function<uint64_t(uint64_t count, bool folder)>;
  /// What is found when power is back.
  void crash(const Choose& choose);

  PathStatus status(const std::string& path) const override;
  std::vector<std::string> list(const std::string& path) const override;
  std::shared_ptr<const ReadableFile> open(const std::string& path) const override;
  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override;
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

}  // namespace ferry::test
