// What the sources over the operating system's files share: descriptors, interrupted calls, and
// errors by errno.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Throws the Error of errno: "cannot ACTION PATH: REASON" and what to do.
[[noreturn]] void fail_errno(const char* action, const std::string& path);

/// Calls again as long as a signal interrupts.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Owns a file descriptor; negative: none.
class Descriptor {
 public:
  explicit Descriptor(int value) noexcept : value_(value) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return value_; }
  int release() noexcept { return std::exchange(value_, -1); }

 private:
  int value_;
};

/// statfs::f_type of tmpfs.
inline constexpr uint32_t kTmpfs = 0x01021994;

/// FileSystem::open_lockable() of the operating system's files.
std::unique_ptr<LockableFile> open_posix_lockable(const std::string& path, LockMode strongest);

}  // namespace ferry
