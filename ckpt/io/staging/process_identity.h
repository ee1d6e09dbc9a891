// Who a process is, so that another one can tell later whether it still runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ferry {

struct ProcessIdentity {
  std::string host;           // gethostname
  std::string boot;           // of the running kernel, random at every boot; empty: unknown
  std::string pid_namespace;  // "pid:[4026531836]": numbers of two namespaces say nothing together
  int64_t process = 0;
  int64_t started = 0;  // clock ticks after boot; tells a process from a later one of its number

  static ProcessIdentity current();

  bool operator==(const ProcessIdentity&) const = default;
};

enum class Life {
  alive,
  dead,
  unknown  // of another host, or behind another namespace
};

/// Whether the process runs, as far as this one can see. A process of this host's name and another
/// boot is dead: hosts that share a file system must have different names.
Life life_of(const ProcessIdentity& process);

}  // namespace ferry
