// The C library's functions, defined again in the program: the dynamic linker takes these for all
// callers, and they reach the kernel by syscall().
#include "tests/faults/syscalls.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace ferry::test {
namespace {

constexpr uint64_t kPageBytes = 4 << 10;  // of the systems that the tests run on

FaultPlan armed;
std::atomic<uint64_t> count{0};

enum class Kind : uint8_t { transfer, interruptible, atomic_change, removal };

// True when the call is to fail, with errno set. Does not return when the process dies here.
bool strikes(Kind kind) {
  const uint64_t number = ++count;
  if (armed.fault == Fault::none) return false;
  const bool now = armed.at == 0 || number == armed.at;
  const bool later = armed.stays && number > armed.at && kind != Kind::removal;
  if (!now && !later) return false;
  switch (armed.fault) {
    case Fault::kill:
      ::kill(::getpid(), SIGKILL);
      for (;;) ::pause();
    case Fault::error:
      errno = armed.error_number;
      return true;
    case Fault::interrupt:
      // With at == 0 every other call, so that the repeated one gets through.
      if (kind == Kind::atomic_change || kind == Kind::removal) return false;
      if (armed.at == 0 && number % 2 == 0) return false;
      errno = EINTR;
      return true;
    default:
      return false;
  }
}

size_t shortened(size_t length) {
  const bool here = armed.fault == Fault::short_count && (armed.at == 0 || count == armed.at);
  return here && length > 1 ? (length + 1) / 2 : length;
}

long open_at(int folder, const char* path, int flags, mode_t mode) {
  const bool creates = (flags & O_CREAT) != 0;
  if ((creates || armed.reads) && strikes(Kind::interruptible)) return -1;
  return ::syscall(SYS_openat, folder, path, flags, mode);
}

void cut_short(int descriptor, off_t bytes) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", descriptor);
  std::array<char, 4096> name{};
  if (::readlink(path.data(), name.data(), name.size() - 1) < 0) return;
  if (std::strstr(name.data(), armed.shrinks) == nullptr) return;
  const long file = ::syscall(SYS_openat, AT_FDCWD, path.data(), O_WRONLY | O_CLOEXEC, 0);
  if (file < 0) return;
  struct stat info {};
  if (::fstat(static_cast<int>(file), &info) == 0 && info.st_size > bytes) {
    ::syscall(SYS_ftruncate, file, bytes);
  }
  ::syscall(SYS_close, file);
}

long read_at(int descriptor, void* buffer, size_t length, off_t offset) {
  if (armed.reads) {
    if (strikes(Kind::transfer)) return -1;
    if (armed.fault == Fault::shrink && count == armed.at) {
      cut_short(descriptor, offset + static_cast<off_t>(length / 2));
    }
    length = shortened(length);
  }
  return ::syscall(SYS_pread64, descriptor, buffer, length, offset);
}

long write_at(int descriptor, const void* buffer, size_t length, off_t offset) {
  if (strikes(Kind::transfer)) return -1;
  if (armed.fault == Fault::short_count) {
    return ::syscall(SYS_pwrite64, descriptor, buffer, shortened(length), offset);
  }
  if (length < 2 || armed.fault == Fault::interrupt) {
    return ::syscall(SYS_pwrite64, descriptor, buffer, length, offset);
  }
  const size_t half = length / 2;
  const long first = ::syscall(SYS_pwrite64, descriptor, buffer, half, offset);
  if (first != static_cast<long>(half)) return first;
  if (strikes(Kind::transfer)) return -1;
  const long second = ::syscall(SYS_pwrite64, descriptor, static_cast<const char*>(buffer) + half,
                                length - half, offset + static_cast<off_t>(half));
  return second < 0 ? second : first + second;
}

// Pages of files in memory, past write().
long pages_at(int descriptor, struct uffdio_copy& copy) {
  if (strikes(Kind::transfer)) return -1;
  if (armed.fault == Fault::interrupt || copy.len < 2 * kPageBytes) {
    return ::syscall(SYS_ioctl, descriptor, UFFDIO_COPY, &copy);
  }
  const uint64_t length = copy.len;
  copy.len = length / 2 / kPageBytes * kPageBytes;
  long result = ::syscall(SYS_ioctl, descriptor, UFFDIO_COPY, &copy);
  copy.len = length;
  if (result != 0 || armed.fault == Fault::short_count) return result;
  const int64_t first = copy.copy;
  if (strikes(Kind::transfer)) return -1;
  copy.dst += static_cast<uint64_t>(first);
  copy.src += static_cast<uint64_t>(first);
  copy.len -= static_cast<uint64_t>(first);
  result = ::syscall(SYS_ioctl, descriptor, UFFDIO_COPY, &copy);
  copy.copy = first + std::max<int64_t>(copy.copy, 0);
  return result;
}

long rename_at(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (strikes(Kind::atomic_change)) return -1;
  if (flags != 0 && armed.no_exchange) {
    errno = EINVAL;
    return -1;
  }
  return ::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

long unlink_at(int folder, const char* path, int flags) {
  if (strikes(Kind::removal)) return -1;
  return ::syscall(SYS_unlinkat, folder, path, flags);
}

long control(int descriptor, int command, void* argument) {
  const bool locks = command == F_OFD_SETLK || command == F_OFD_GETLK;
  if (locks && armed.no_locks) {
    errno = ENOLCK;
    return -1;
  }
  return ::syscall(SYS_fcntl, descriptor, command, argument);
}

bool is_regular(int descriptor) {
  struct stat info {};
  return ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

void arm(const FaultPlan& plan) {
  armed = plan;
  count = 0;
}

uint64_t operations() { return count; }

}  // namespace ferry::test

using namespace ferry::test;  // NOLINT

namespace {
mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}
}  // namespace

// The C library declares some of these with attributes that a definition cannot repeat.
#pragma GCC diagnostic ignored "-Wmissing-attributes"

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return static_cast<int>(open_at(AT_FDCWD, path, flags, mode));
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return static_cast<int>(open_at(AT_FDCWD, path, flags, mode));
}
int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return static_cast<int>(open_at(folder, path, flags, mode));
}
int openat64(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return static_cast<int>(open_at(folder, path, flags, mode));
}
int __open_2(const char* path, int flags) {
  return static_cast<int>(open_at(AT_FDCWD, path, flags, 0));
}
int __open64_2(const char* path, int flags) {
  return static_cast<int>(open_at(AT_FDCWD, path, flags, 0));
}

ssize_t pread(int descriptor, void* buffer, size_t length, off_t offset) {
  return read_at(descriptor, buffer, length, offset);
}
ssize_t pread64(int descriptor, void* buffer, size_t length, off64_t offset) {
  return read_at(descriptor, buffer, length, offset);
}
ssize_t __pread_chk(int descriptor, void* buffer, size_t length, off_t offset, size_t) {
  return read_at(descriptor, buffer, length, offset);
}
ssize_t __pread64_chk(int descriptor, void* buffer, size_t length, off64_t offset, size_t) {
  return read_at(descriptor, buffer, length, offset);
}

ssize_t pwrite(int descriptor, const void* buffer, size_t length, off_t offset) {
  return write_at(descriptor, buffer, length, offset);
}
ssize_t pwrite64(int descriptor, const void* buffer, size_t length, off64_t offset) {
  return write_at(descriptor, buffer, length, offset);
}
ssize_t write(int descriptor, const void* buffer, size_t length) {
  if (is_regular(descriptor) && strikes(Kind::transfer)) return -1;
  return ::syscall(SYS_write, descriptor, buffer, length);
}

int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == UFFDIO_COPY) {
    return static_cast<int>(pages_at(descriptor, *static_cast<struct uffdio_copy*>(argument)));
  }
  return static_cast<int>(::syscall(SYS_ioctl, descriptor, request, argument));
}

int ftruncate(int descriptor, off_t length) noexcept {
  if (strikes(Kind::interruptible)) return -1;
  return static_cast<int>(::syscall(SYS_ftruncate, descriptor, length));
}
int ftruncate64(int descriptor, off64_t length) noexcept { return ftruncate(descriptor, length); }
int fallocate(int descriptor, int mode, off_t offset, off_t length) {
  if (strikes(Kind::interruptible)) return -1;
  return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, offset, length));
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t length) {
  return fallocate(descriptor, mode, offset, length);
}
int fsync(int descriptor) {
  if (strikes(Kind::interruptible)) return -1;
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
int fdatasync(int descriptor) {
  if (strikes(Kind::interruptible)) return -1;
  return static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}
ssize_t copy_file_range(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t length,
                        unsigned flags) {
  if (strikes(Kind::transfer)) return -1;
  return ::syscall(SYS_copy_file_range, in, in_offset, out, out_offset, shortened(length), flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (strikes(Kind::atomic_change)) return -1;
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(rename_at(AT_FDCWD, from, AT_FDCWD, to, 0));
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return static_cast<int>(rename_at(from_folder, from, to_folder, to, 0));
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  return static_cast<int>(rename_at(from_folder, from, to_folder, to, flags));
}
int link(const char* from, const char* to) noexcept {
  if (strikes(Kind::atomic_change)) return -1;
  return static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* path) noexcept { return static_cast<int>(unlink_at(AT_FDCWD, path, 0)); }
int unlinkat(int folder, const char* path, int flags) noexcept {
  return static_cast<int>(unlink_at(folder, path, flags));
}
int rmdir(const char* path) noexcept {
  return static_cast<int>(unlink_at(AT_FDCWD, path, AT_REMOVEDIR));
}
int remove(const char* path) noexcept {
  const int code = unlink(path);
  return code != 0 && (errno == EISDIR || errno == EPERM) ? rmdir(path) : code;
}

int fcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return static_cast<int>(control(descriptor, command, argument));
}
int fcntl64(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return static_cast<int>(control(descriptor, command, argument));
}

}  // extern "C"
