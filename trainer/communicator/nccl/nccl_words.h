// Error messages for results of NCCL functions.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <string>

namespace ferry {

/// Hint appended to NCCL errors.
constexpr const char* kNcclHint =
    "set NCCL_DEBUG=INFO for details, and NCCL_SOCKET_IFNAME to the network interface by which all "
    "hosts reach each other";

/// NCCL's own message about the process's last failure, if any.
inline std::string nccl_words(ncclResult_t result) {
  std::string words = ncclGetErrorString(result);
  words.resize(std::min(words.size(), words.find(" (run with")));
  const char* const more = ncclGetLastError(nullptr);
  return more == nullptr || *more == '\0' ? words : words + ": " + more;
}

}  // namespace ferry
