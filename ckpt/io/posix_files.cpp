#include "ckpt/io/posix_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Too short to be worth two calls.
constexpr uint64_t kLeastPagesBytes = 64 << 10;
// Where two threads met, they and others will meet again.
constexpr int kCrowdedPieces = 64;

// True on file systems where copy_file_range shares blocks or leaves the copy to a server.
// Elsewhere (ext4, tmpfs) it moves the same bytes through the page cache, but under the target's
// lock, so that several threads which read and write by themselves are faster.
bool file_system_shares_blocks(int descriptor) {
  struct statfs info {};
  if (::fstatfs(descriptor, &info) != 0) return false;
  switch (static_cast<uint32_t>(info.f_type)) {
    case 0x9123683e:  // btrfs
    case 0x58465342:  // xfs
    case 0xca451a4e:  // bcachefs
    case 0x2fc12fc1:  // zfs
    case 0x7461636f:  // ocfs2
    case 0x6969:      // nfs
    case 0xfe534d42:  // smb2
    case 0xff534d42:  // cifs
    case 0x00c36400:  // ceph
      return true;
    default:
      return false;
  }
}

void flush(const Descriptor& descriptor, const std::string& path) {
  if (uninterrupted([&] { return ::fsync(descriptor.get()); }) != 0)
    fail_errno("flush to disk", path);
}

// Reserves space, so that a disk which is too small says so now; false with errno when it does. Not
// every file system can. tmpfs would clear all the memory that is about to be written, which takes
// as long as writing does: there only the free space is checked.
bool has_room(int descriptor, off_t bytes) {
  struct statfs info {};
  if (::fstatfs(descriptor, &info) == 0 && static_cast<uint32_t>(info.f_type) == kTmpfs) {
    const auto free_bytes =
        static_cast<uint64_t>(info.f_bavail) * static_cast<uint64_t>(info.f_bsize);
    if (info.f_blocks == 0 || static_cast<uint64_t>(bytes) <= free_bytes)
      return true;  // 0: no limit
    errno = ENOSPC;
    return false;
  }
  return ::fallocate(descriptor, 0, 0, bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS ||
         errno == EINTR;
}

void read_all(const Descriptor& descriptor, const std::string& path, uint64_t offset,
              std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t n =
        ::pread(descriptor.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("read", path);
    if (n == 0) {
      fail(ErrorKind::corrupt,
           "{} ends at byte {} where {} more were expected; the file is truncated or was changed "
           "while it was read",
           path, offset, into.size());
    }
    offset += static_cast<uint64_t>(n);
    into = into.subspan(static_cast<size_t>(n));
  }
}

}  // namespace

void PosixReadableFile::read(uint64_t offset, std::span<std::byte> into) const {
  read_all(descriptor_, path_, offset, into);
}

PosixWritableFile::PosixWritableFile(std::string path, int descriptor,
                                     std::shared_ptr<PageWriter> pages, bool always_pages)
    : path_(std::move(path)),
      descriptor_(descriptor),
      shares_blocks_(file_system_shares_blocks(descriptor)),
      pages_(std::move(pages)),
      always_pages_(always_pages) {}

PosixWritableFile::~PosixWritableFile() { unmap(); }

void PosixWritableFile::reserve(uint64_t bytes) {
  const auto length = static_cast<off_t>(bytes);
  if (uninterrupted([&] { return ::ftruncate(descriptor_.get(), length); }) != 0)
    fail_errno("size", path_);
  if (bytes > 0 && !has_room(descriptor_.get(), length)) fail_errno("reserve space for", path_);
}

void PosixWritableFile::write(uint64_t offset, std::span<const std::byte> from) {
  if (!pages_ || from.size() < kLeastPagesBytes) return write_plainly(offset, from);
  struct Writer {
    explicit Writer(std::atomic<int>& n) : number(++n), count(n) {}
    ~Writer() { --count; }
    int number;
    std::atomic<int>& count;
  };
  const Writer writer(writers_);
  if (is_crowded(writer.number) || always_pages_) {
    write_pages(offset, from);
  } else {
    write_plainly(offset, from);
  }
}

// A thread that writes alone has no lock to wait for, and the system less to do for each page.
bool PosixWritableFile::is_crowded(int writers) {
  if (writers > 1) {
    crowded_ = kCrowdedPieces;
  } else if (crowded_ > 0) {
    --crowded_;
  }
  return crowded_ > 0;
}

// Pages that are written in part may have bytes of others in them: they go the plain way, as does
// what the pages' way did not do.
void PosixWritableFile::write_pages(uint64_t offset, std::span<const std::byte> from) {
  std::call_once(is_mapped_, [&] { mapped_ = pages_->map(descriptor_.get()); });
  if (!mapped_) return write_plainly(offset, from);
  const uint64_t page = PageWriter::page_bytes();
  const auto head = from.first((page - offset % page) % page);
  write_plainly(offset, head);
  offset += head.size();
  from = from.subspan(head.size());
  const uint64_t done = pages_->write(mapped_, offset, from);
  write_plainly(offset + done, from.subspan(done));
}

void PosixWritableFile::write_plainly(uint64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t n =
        ::pwrite(descriptor_.get(), from.data(), from.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("write", path_);
    offset += static_cast<uint64_t>(n);
    from = from.subspan(static_cast<size_t>(n));
  }
}

void PosixWritableFile::read(uint64_t offset, std::span<std::byte> into) const {
  read_all(descriptor_, path_, offset, into);
}

void PosixWritableFile::sync() { flush(descriptor_, path_); }

void PosixWritableFile::close() {
  unmap();
  // Where a signal interrupts, the descriptor is gone all the same.
  if (::close(descriptor_.release()) != 0 && errno != EINTR) fail_errno("write", path_);
}

void PosixWritableFile::unmap() {
  if (mapped_) pages_->forget(*mapped_);
  mapped_.reset();
}

void PosixAppendableFile::append(std::span<const std::byte> from) {
  size_t written = 0;
  while (written < from.size()) {
    const auto rest = from.subspan(written);
    const ssize_t n =
        uninterrupted([&] { return ::write(descriptor_.get(), rest.data(), rest.size()); });
    if (n < 0) {
      const int code = errno;
      take_back(written);
      errno = code;
      fail_errno("write", path_);
    }
    written += static_cast<size_t>(n);
  }
}

// The cursor is after what was written last: where that is still the end, nobody truncated the file
// or wrote to it.
void PosixAppendableFile::take_back(size_t bytes) {
  struct stat info {};
  const off_t end = ::lseek(descriptor_.get(), 0, SEEK_CUR);
  const auto length = static_cast<off_t>(bytes);
  if (bytes == 0 || end < length || ::fstat(descriptor_.get(), &info) != 0) return;
  if (info.st_size != end) return;
  // Where this fails too, the write's error says why.
  static_cast<void>(uninterrupted([&] { return ::ftruncate(descriptor_.get(), end - length); }));
}

std::optional<std::byte> PosixAppendableFile::last_byte() const {
  struct stat info {};
  if (::fstat(descriptor_.get(), &info) != 0) fail_errno("stat", path_);
  if (info.st_size == 0) return std::nullopt;
  std::byte last{};
  const ssize_t n =
      uninterrupted([&] { return ::pread(descriptor_.get(), &last, 1, info.st_size - 1); });
  if (n < 0) fail_errno("read", path_);
  if (n == 0) return std::nullopt;  // it was emptied meanwhile
  return last;
}

void PosixAppendableFile::sync() { flush(descriptor_, path_); }

}  // namespace ferry
