// Files that the program carries with it: presets, and the scripts that launches are made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry::tool {

/// A file of tools/launch ("scripts/rank.sh"). internal when there is none.
std::string_view embedded_file(std::string_view name);

/// A preset's YAML. invalid, with all names, when there is none.
std::string_view preset(std::string_view name);
std::vector<std::string> preset_names();

struct EmbeddedFile {
  std::string_view name, text;
};
/// All of them, by name. (Made by tools/CMakeLists.txt.)
const std::vector<EmbeddedFile>& embedded_files();

}  // namespace ferry::tool
