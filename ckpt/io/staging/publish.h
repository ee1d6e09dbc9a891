// Files that appear under their final names only when they are complete and on disk.
//
// What StagedFolder (staging.h) does for a folder is done here for the files of a lock
// (write_lock.h): they are written at its partial_path(), synced, moved to their names when all are
// complete, and their folder is synced. Whatever ends the process before leaves what was there as
// it was; what a dead process left is removed by the next lock of the same target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/write_lock.h"

namespace ferry {

/// What becomes of a file that has the name already.
enum class Existing : uint8_t {
  refuse,  // it stays, and publishing is invalid
  replace  // it is replaced in one step
};

struct NewFile {
  std::string name;
  std::vector<std::span<const std::byte>> pieces;  // its content, in order
};

/// Puts files into `folder`, which is in the same file system as the lock's target. They get their
/// names in the order given, so that the last one can signal to readers that the others are there.
/// busy when another process took the lock over: nothing is put in place then. An error removes
/// what was written aside; where only the last sync failed, it begins with `done`, by default "PATH
/// is complete and in place" of the last file.
void publish_files(const FileSystem& file_system, const WriteLock& write_lock,
                   const std::string& folder, std::span<const NewFile> files, Existing existing,
                   const std::string& done = {});

/// The same of the one file `path`.
void publish_file(const FileSystem& file_system, const WriteLock& write_lock,
                  const std::string& path, const std::string& content, Existing existing,
                  const std::string& done = {});

/// Syncs a folder in which something was put in place. An error begins with `done`, which says that
/// it was ("a.csv is complete and in place"), and ends with `more`.
void sync_published(const FileSystem& file_system, const std::string& folder,
                    const std::string& done, const std::string& more = {});

}  // namespace ferry
