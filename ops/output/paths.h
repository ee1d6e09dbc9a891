// Where a path leads, whatever its spelling.
#pragma once

#include <filesystem>
#include <string>

namespace ferry {

/// The absolute path; `path` itself where the working folder is unknown.
std::string absolute(const std::string& path);

/// The path without links, "." and ".." parts, as far as it exists, and without a slash at its end.
std::filesystem::path canonical(const std::string& path);

bool is_same_or_inside(const std::string& inner, const std::string& outer);

}  // namespace ferry
