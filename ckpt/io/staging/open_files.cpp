#include "ckpt/io/staging/open_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace ferry {
namespace {

namespace fs = std::filesystem;

// Paths inside a folder; what vanishes or may not be seen is left out.
std::vector<fs::path> list(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    paths.push_back(it->path());
  }
  return paths;
}

// What a process has open or mapped below `prefix`; without the prefix.
std::vector<std::string> files_of(const fs::path& process, const std::string& prefix) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& path) {
    if (path.starts_with(prefix)) found.push_back(path.substr(prefix.size()));
  };
  for (const fs::path& link : list(process / "fd")) {
    std::error_code error;
    add(fs::read_symlink(link, error).string());
  }
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');  // the line's last field
    if (path != std::string::npos) add(line.substr(path));
  }
  return found;
}

std::string name_of(const fs::path& process) {
  std::string name;
  std::getline(std::ifstream(process / "comm"), name);
  return fmt::format("{} (process {})", name, process.filename().string());
}

}  // namespace

std::vector<OpenFile> files_open_below(const std::string& folder) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (error) return {};
  const std::string prefix = (real / "").string();
  std::vector<OpenFile> open;
  for (const fs::path& process : list("/proc")) {
    const std::string number = process.filename().string();
    const bool is_process = number.find_first_not_of("0123456789") == std::string::npos;
    if (!is_process || number == std::to_string(::getpid())) continue;
    for (std::string& path : files_of(process, prefix)) {
      open.push_back({std::move(path), name_of(process)});
    }
  }
  return open;
}

}  // namespace ferry
