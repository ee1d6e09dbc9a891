// Processes: whether one still runs, and which files of a folder others have open.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// By which another process sees later whether this one still runs.
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

// Which files of a folder other programs have open, as far as this machine's kernel shows: for
// programs that know nothing of ferry's locks (a trainer that writes, an uploader that reads).
//
// What /proc shows: open files and mapped ones, of the processes of this host (of the same process
// namespace) whose files this user may see, root all. Nothing of other hosts, and nothing where
// there is no /proc: an empty answer is not a proof.

struct OpenFile {
  std::string path;  // inside the folder
  std::string who;   // "python3 (process 123)"
};

/// The files below `folder` that other processes than this one have open. Never fails.
std::vector<OpenFile> files_open_below(const std::string& folder);

}  // namespace ferry
