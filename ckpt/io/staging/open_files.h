// Which files of a folder other programs have open, as far as this machine's kernel shows: for
// programs that know nothing of ferry's locks (a trainer that writes, an uploader that reads).
//
// What /proc shows: open files and mapped ones, of the processes of this host (of the same process
// namespace) whose files this user may see, root all. Nothing of other hosts, and nothing where
// there is no /proc: an empty answer is no proof.
#pragma once

#include <string>
#include <vector>

namespace ferry {

struct OpenFile {
  std::string path;  // inside the folder
  std::string who;   // "python3 (process 123)"
};

/// The files below `folder` that other processes than this one have open. Never fails.
std::vector<OpenFile> files_open_below(const std::string& folder);

}  // namespace ferry
