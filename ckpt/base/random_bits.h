// Bits that no other process draws, for names of files and meetings of ranks.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "ckpt/base/error.h"

namespace ferry {

/// 64 bits of the system's own generator, which costs less than std::random_device: that asks the
/// processor what it can do each time, and a virtual machine's answer takes long. io.
inline uint64_t random_bits() {
  uint64_t bits = 0;
  if (::getentropy(&bits, sizeof bits) != 0) {
    fail(ErrorKind::io, "the system has no random bits: {}", std::strerror(errno));
  }
  return bits;
}

}  // namespace ferry
