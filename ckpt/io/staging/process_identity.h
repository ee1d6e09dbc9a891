// The identity of a process, by which another one sees later whether it still runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ferry {

struct ProcessIdentity {
  std::string host;           // gethostname
  std::string boot;           // of the running kernel, random at every boot; empty: unknown
  std::string pid_namespace;  // "pid:[4026531836]": numbers of two namespaces cannot be compared
  int64_t process = 0;
  int64_t started = 0;  // clock ticks after boot; a later process of the same number has another

  static ProcessIdentity current();

  bool operator==(const ProcessIdentity&) const = default;
};

enum class Life {
  alive,
  dead,
  unknown  // of another host or process namespace
};

/// Whether the process runs, as far as this one can see. A process of this host's name and another
/// boot is dead: hosts that share a file system must have different names.
Life life_of(const ProcessIdentity& process);

}  // namespace ferry
