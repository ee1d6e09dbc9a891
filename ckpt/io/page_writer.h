// Whole pages of files in memory (tmpfs), written by many threads at once.
//
// pwrite() holds the file's lock: threads that write to one file take turns, on any file system. A
// page that a file in memory does not have yet can also be given to it by userfaultfd, which is
// there for processes that handle their own page faults: ioctl(UFFDIO_COPY) copies bytes to new
// pages of a mapping and locks the file's list of pages for the moment in which each is added.
//
// The file is mapped for it, but without permission to read or write, and nothing in this process
// ever touches the mapping. Where a file is cut short meanwhile, or the file system or the control
// group has no memory left, the call says so: there is no page fault, and so no SIGBUS.
// Figures: docs/decisions/0011-cores.md. Source: userfaultfd(2), ioctl_userfaultfd(2).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>

#include "ckpt/io/posix_descriptor.h"

namespace ferry {

/// A file that is mapped for a PageWriter; unmapped with its last owner.
struct MappedFile {
  MappedFile(std::byte* at, uint64_t length);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::byte* const begin;
  const uint64_t bytes;  // whole pages
  const pid_t process;   // a forked one does not have the mapping
};

/// For one file system. Safe from several threads.
class PageWriter {
 public:
  /// Null where the system does not give a userfaultfd to this process: Linux before 5.11, or a
  /// sandbox that forbids it.
  static std::shared_ptr<PageWriter> open();

  /// True when files that `descriptor` leads to can be written: those of tmpfs, whose pages are not
  /// huge ones (which are given by write() alone).
  static bool takes(int descriptor);

  static uint64_t page_bytes();

  /// Maps a file of which pages will be written, as long as it is now. The descriptor must be one
  /// for reading and writing. Null when the system does not let, and in a forked process.
  std::shared_ptr<const MappedFile> map(int descriptor) const;

  /// Writes whole pages from the front of `from` to the file at `offset`, both at the beginning of
  /// a page, and returns how many bytes. Stops where the file has a page already, or ends, or there
  /// is no room: what is left is for pwrite(), which knows what to do or what to say.
  uint64_t write(const std::shared_ptr<const MappedFile>& file, uint64_t offset,
                 std::span<const std::byte> from);

  /// To be called when a file that was written to is closed.
  void forget(const MappedFile& file);

 private:
  // Pages that were written and are still in the mapping.
  struct Run {
    std::shared_ptr<const MappedFile> file;
    uint64_t begin, end;  // bytes of the file
    uint64_t bytes() const { return end - begin; }
  };

  explicit PageWriter(int descriptor);
  uint64_t copy(std::byte* pages, std::span<const std::byte> from) const;
  void note(Run run);
  std::list<Run> add(Run run);

  Descriptor userfault_;
  const pid_t process_;  // in a forked one the descriptor is still for the memory of this one
  std::mutex mutex_;
  // Guarded by the mutex:
  std::list<Run> runs_;        // those that grew last at the back
  uint64_t mapped_bytes_ = 0;  // of all runs
};

}  // namespace ferry
