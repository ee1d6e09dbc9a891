// Where a path leads, whatever its spelling.
#pragma once

#include <filesystem>
#include <string>

namespace ferry {

/// `path` from the root on; itself where the working folder cannot be told.
std::string absolute(const std::string& path);

/// The path without links, "." and ".." parts, as far as it exists, and without a slash at its end.
std::filesystem::path canonical(const std::string& path);

bool is_same_or_inside(const std::string& inner, const std::string& outer);

}  // namespace ferry
