#include "tools/launch/presets.h"

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
  std::string all;
  for (const std::string& one : preset_names()) {
    if (one == name) return embedded_file(std::string(kPresets) + one + std::string(kYaml));
    all += (all.empty() ? "" : ", ") + one;
  }
  fail(ErrorKind::invalid, "there is no preset '{}'; there are {}", printable(name), all);
}

}  // namespace ferry::tool
