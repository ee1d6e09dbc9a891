// One interface to storage: the real file system, memory, and (in tests) one that fails on demand.
// Positional reads and writes only; no shared file cursor, so that any number of threads may use
// one open file.
//
// Every error is a ferry::Error that names the path: not_found, io, exhausted (disk full or quota),
// invalid (a path that is not a regular file where one is needed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ferry {

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual const std::string& path() const noexcept = 0;
  virtual uint64_t size() const noexcept = 0;  // bytes, when it was opened
  /// Fills `into` from `offset`. corrupt when the file ends before (it shrank, or a header lied).
  /// Interrupted and short reads are continued. Safe from several threads.
  virtual void read(uint64_t offset, std::span<std::byte> into) const = 0;
  /// A view of the bytes from `offset` where they are in this process's memory, valid as long as
  /// the file; empty when they have to be read.
  virtual std::span<const std::byte> view(uint64_t offset, uint64_t bytes) const {
    static_cast<void>(offset), static_cast<void>(bytes);
    return {};
  }
};

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes; call sync() first to know that it worked
  virtual const std::string& path() const noexcept = 0;
  /// Writes all of `from` at `offset`. Safe from several threads.
  virtual void write(uint64_t offset, std::span<const std::byte> from) = 0;
  /// Fills `into` with bytes that were written, from `offset`. Errors as those of a ReadableFile.
  /// Safe from several threads.
  virtual void read(uint64_t offset, std::span<std::byte> into) const = 0;
  /// Returns when the bytes and the size are on disk.
  virtual void sync() = 0;
  /// Call last; reports errors that show only at close (over NFS closing writes).
  virtual void close() {}
  /// The memory of the bytes from `offset`, where the file is in this process's memory: what is put
  /// there is written. Empty when they have to be written.
  virtual std::span<std::byte> room(uint64_t offset, uint64_t bytes) {
    static_cast<void>(offset), static_cast<void>(bytes);
    return {};
  }
};

/// A file that only grows by this object, but that others may cut short meanwhile, as programs that
/// rotate logs do. One thread at a time, and one process: over NFS, appends of two hosts may
/// overwrite each other.
class AppendableFile {
 public:
  virtual ~AppendableFile() = default;
  virtual const std::string& path() const noexcept = 0;
  /// Appends all of `from` to what the file holds at that moment. On error what was written of it
  /// is removed again, where the file system can.
  virtual void append(std::span<const std::byte> from) = 0;
  /// The last byte that the file holds at that moment; nothing when it is empty.
  virtual std::optional<std::byte> last_byte() const = 0;
  /// Returns when the bytes and the size are on disk.
  virtual void sync() = 0;
};

enum class PathKind : uint8_t { missing, file, folder, other /* FIFO, socket, device */ };

struct PathStatus {
  PathKind kind = PathKind::missing;
  uint64_t bytes = 0;
  int64_t changed_seconds = 0;  // when content last changed, by the file system's clock (Unix time)
  bool link = false;            // reached through a symbolic link
};

/// What a file system says of the room for new files.
struct FreeSpace {
  uint64_t bytes = 0;  // that this user may write
  /// A file takes its own size of them. Else the file system may compress what it stores, or share
  /// it among files, and more may fit.
  bool is_exact = false;
};

enum class LockMode : uint8_t { shared, exclusive };

enum class LockState : uint8_t {
  taken,       // lock(): held now. probe(): nobody holds it
  busy,        // someone else holds one that excludes it
  unsupported  // this file system, or these permissions, give no lock
};

/// An open file that advisory locks can be taken on. They belong to this object, not to the
/// process: two objects of one process exclude each other, and the kernel drops them when the
/// process dies. Local file systems, NFS 4 and Lustre mounted with `flock` show locks to every
/// host; Lustre without it gives none, Lustre with `localflock` and NFS with `local_lock` only
/// among the processes of one host.
class LockableFile {
 public:
  virtual ~LockableFile() = default;  // drops the lock
  /// Takes a lock, or changes the one that is held, without waiting.
  virtual LockState lock(LockMode mode) = 0;
  /// Whether lock(mode) could be had, without taking it: nobody else notices.
  virtual LockState probe(LockMode mode) const = 0;
  /// True while the path leads to this very file: it was neither removed nor replaced.
  virtual bool still_at_path() const = 0;
};

/// When the kernel copies between files, instead of the caller reading and writing: only on file
/// systems that share blocks or leave the copy to a server (btrfs, XFS, NFS), or on all. On the
/// others bytes go through memory once instead of twice, but under the file's lock: good for a
/// single writer.
enum class KernelCopy : uint8_t { where_shared, always };

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Follows symbolic links. A dangling link is `missing`.
  virtual PathStatus status(const std::string& path) const = 0;
  /// Where a path leads once its links are followed; the path itself where that is unknown.
  virtual std::string real_path(const std::string& path) const { return path; }
  /// Names (not paths) in a folder, sorted.
  virtual std::vector<std::string> list(const std::string& path) const = 0;
  /// Opens a regular file; invalid for anything else, without blocking on a FIFO.
  virtual std::shared_ptr<const ReadableFile> open(const std::string& path) const = 0;
  /// The same for a file whose bytes are needed in memory, at random and for long: view() returns
  /// them where the file system can map files. Such a file must not be cut short while it is open.
  virtual std::shared_ptr<const ReadableFile> map(const std::string& path) const {
    return open(path);
  }

  /// Creates a file of `bytes` bytes that must not exist. Space is reserved where the file system
  /// can, so that a full disk shows before the work.
  virtual std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const = 0;
  /// Opens a file that another process created, to write parts of it that no other one writes.
  /// unsupported where the file system cannot.
  virtual std::unique_ptr<WritableFile> open_to_write(const std::string& path) const;
  /// Opens a file that exists, to append to it. unsupported where the file system cannot.
  virtual std::unique_ptr<AppendableFile> open_to_append(const std::string& path) const;
  /// Free space of a folder's file system; nothing where there is no limit or it is unknown.
  virtual std::optional<FreeSpace> free_space(const std::string& folder) const {
    static_cast<void>(folder);
    return std::nullopt;
  }
  /// Whether this user may create files and folders in a folder.
  virtual bool may_create_in(const std::string& folder) const {
    static_cast<void>(folder);
    return true;
  }
  /// Creates a folder; the parent must exist. invalid when `path` exists.
  virtual void create_folder(const std::string& path) const = 0;
  /// Moves a file or folder; `to` must not exist.
  virtual void rename(const std::string& from, const std::string& to) const = 0;
  /// Moves a file to a path that may hold a file, which it replaces in one step.
  virtual void replace(const std::string& from, const std::string& to) const = 0;
  /// Swaps two paths in one step. unsupported where the file system cannot.
  virtual void exchange(const std::string& a, const std::string& b) const = 0;
  /// Removes a file, or a folder with all it holds; does not follow links. Nothing when missing.
  virtual void remove_all(const std::string& path) const = 0;
  /// Returns when the folder's entries are on disk.
  virtual void sync_folder(const std::string& path) const = 0;

  /// Opens a file for locking, with permission for locks up to `strongest`: an exclusive one needs
  /// that to write, a shared one that to read; probe() takes any. not_found when it is missing.
  virtual std::unique_ptr<LockableFile> open_lockable(const std::string& path,
                                                      LockMode strongest) const = 0;

  /// Lets the kernel copy bytes between two files of this file system. Returns how many it copied
  /// from the start of the run: fewer than `length`, or 0, where it cannot or is not asked to.
  virtual uint64_t copy(const ReadableFile& from, uint64_t from_offset, WritableFile& to,
                        uint64_t to_offset, uint64_t length, KernelCopy when) const = 0;
};

/// Whether whole pages are put into files in memory (tmpfs) past the file's lock, where the system
/// lets, so that threads which write to one file do not wait for each other.
enum class PageWrites : uint8_t {
  when_crowded,  // as long as several threads write to a file at once
  always,
  never
};

struct PosixOptions {
  PageWrites page_writes = PageWrites::when_crowded;
};

/// The operating system's files.
std::shared_ptr<const FileSystem> posix_file_system(const PosixOptions& options = {});

/// Whole content of a file of at most `limit` bytes; exhausted when it is larger.
std::string read_file(const FileSystem& file_system, const std::string& path, uint64_t limit);

/// "folder/name". Throws corrupt when `name`, found in a file, would leave the folder: empty,
/// absolute, containing NUL or a ".." part.
std::string join_untrusted(const std::string& folder, const std::string& name);

/// "folder/name" for names of our own.
std::string join(const std::string& folder, const std::string& name);

/// The parent folder of a path ("." for a bare name), and its last part.
struct SplitPath {
  std::string parent;
  std::string name;
};
SplitPath split_path(const std::string& path);

/// Makes a folder and those above it, where they are missing; their names are on disk then.
void make_folders(const FileSystem& file_system, const std::string& path);

/// Writes a new small file and syncs it.
void write_file(const FileSystem& file_system, const std::string& path, const std::string& content);

}  // namespace ferry
