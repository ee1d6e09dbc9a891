#include "tools/launch/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr std::string_view kPresets = "presets/", kYaml = ".yaml";

}  // namespace

std::string_view embedded_file(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return file.text;
  }
  fail(ErrorKind::internal, "the program lacks its file {}", name);
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.name.starts_with(kPresets)) continue;
    names.emplace_back(
        file.name.substr(kPresets.size(), file.name.size() - kPresets.size() - kYaml.size()));
  }
  return names;
}

std::string_view preset(std::string_view name) {
  const std::vector<std::string> names = preset_names();
  if (std::ranges::find(names, name) != names.end()) {
    return embedded_file(fmt::format("{}{}{}", kPresets, name, kYaml));
  }
  const std::string nearest = nearest_word(name, names);
  fail(ErrorKind::invalid, "there is no preset '{}'{}{}; there are {}", printable(name),
       nearest.empty() ? "" : "; the nearest is ", nearest, fmt::join(names, ", "));
}

}  // namespace ferry::tool
