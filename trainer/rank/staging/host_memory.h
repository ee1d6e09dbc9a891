// How much memory this machine still has for processes of this one's kind.
#pragma once

#include <cstdint>
#include <string>

namespace ferry {

/// Bytes that can be taken without others being pushed out: what the kernel calls available, or
/// what the control groups that the process is in leave, where that is less (memory that files are
/// cached in counts as free). UINT64_MAX where nothing tells. `root` stands for "/".
uint64_t available_host_memory(const std::string& root = "");

/// The machine's name, the same for all processes on it.
std::string host_name();

}  // namespace ferry
