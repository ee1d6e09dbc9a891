// How many files a process may have open.
#pragma once

#include <cstddef>

namespace ferry {

/// Files that this process may have open at once, by the operating system's limit.
size_t most_open_files();

}  // namespace ferry
