// What is said of what NCCL's functions return.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <string>

namespace ferry {

/// Where to look, behind what failed.
constexpr const char* kNcclHint =
    "NCCL_DEBUG=INFO tells more; NCCL_SOCKET_IFNAME names the network interface by which all hosts "
    "reach each other";

/// NCCL's own words: of the last failure of the process, where it has some.
inline std::string nccl_words(ncclResult_t result) {
  std::string words = ncclGetErrorString(result);
  words.resize(std::min(words.size(), words.find(" (run with")));
  const char* const more = ncclGetLastError(nullptr);
  return more == nullptr || *more == '\0' ? words : words + ": " + more;
}

}  // namespace ferry
