// Token files anywhere in folders.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::tool {

enum class FolderLinks { follow, pass_over };  // links to folders; those to files are followed

/// Paths of the files in a folder, at any depth, relative to it, by name; a folder that a link
/// leads back to is not entered again. not_found when there is no such folder.
std::vector<std::string> files_below(const std::string& folder, FolderLinks links);

/// A path with an ending such as ".bin" in any case.
bool has_ending(const std::string& path, std::string_view ending);

/// The prefixes, relative to the folder, of the pairs in it, by name. not_found for a .bin file
/// without its .idx, or where there is none.
std::vector<std::string> pairs_below(const std::string& folder, FolderLinks links);

/// Without slashes at its end, and from the root on.
std::string plain_folder(const std::string& folder);

}  // namespace ferry::tool
