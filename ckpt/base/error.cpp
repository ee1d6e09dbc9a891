#include "ckpt/base/error.h"

namespace ferry {

std::string_view name(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::not_found:
      return "not found";
    case ErrorKind::corrupt:
      return "corrupt";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::invalid:
      return "invalid";
    case ErrorKind::mismatch:
      return "mismatch";
    case ErrorKind::io:
      return "io";
    case ErrorKind::exhausted:
      return "exhausted";
    case ErrorKind::busy:
      return "busy";
    case ErrorKind::internal:
      return "internal";
    case ErrorKind::cancelled:
      return "cancelled";
  }
  return "internal";
}

}  // namespace ferry
