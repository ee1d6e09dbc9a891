#include "tools/data/mixture/token_folders.h"

#include <algorithm>
#include <filesystem>

#include "ckpt/base/error.h"
#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/lock_record.h"
#include "ops/output/paths.h"

namespace ferry::tool {
namespace {

namespace fs = std::filesystem;

// `above`: the folders that lead here, so that a link to one of them is no way without end.
void add_files(const fs::path& folder, const fs::path& relative, FolderLinks links,
               std::vector<fs::path>& above, std::vector<std::string>& files) {
  const fs::path true_folder = fs::canonical(folder);
  if (std::find(above.begin(), above.end(), true_folder) != above.end()) return;
  above.push_back(true_folder);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    std::error_code error;
    const fs::path name = relative / entry.path().filename();
    if (!entry.is_directory(error)) {
      files.push_back(name.string());
    } else if (links == FolderLinks::follow || !entry.is_symlink(error)) {
      add_files(entry.path(), name, links, above, files);
    }
  }
  above.pop_back();
}

}  // namespace

std::vector<std::string> files_below(const std::string& folder, FolderLinks links) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    fail(ErrorKind::not_found, "{} is not a folder", folder);
  }
  std::vector<std::string> files;
  std::vector<fs::path> above;
  try {
    add_files(folder, {}, links, above, files);
  } catch (const fs::filesystem_error& problem) {
    fail(ErrorKind::io, "cannot look through {}: {}", folder, problem.what());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool has_ending(const std::string& path, std::string_view ending) {
  if (path.size() < ending.size()) return false;
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(ending.begin(), ending.end(), path.end() - std::ssize(ending),
                    [&](char a, char b) { return lower(a) == lower(b); });
}

std::vector<std::string> pairs_below(const std::string& folder, FolderLinks links) {
  const std::vector<std::string> files = files_below(folder, links);
  std::vector<std::string> prefixes;
  for (const std::string& file : files) {
    if (!has_ending(file, ".bin")) continue;
    if (parse_aside(split_path(file).name)) continue;  // of one that is being written
    std::string prefix = file.substr(0, file.size() - 4);
    for (const char* ending : {".bin", ".idx"}) {
      if (std::binary_search(files.begin(), files.end(), prefix + ending)) continue;
      fail(
          ErrorKind::not_found,
          "{}/{} has no {}{}; token files are pairs: move it elsewhere, or tokenize its text again",
          folder, file, split_path(prefix).name, ending);
    }
    prefixes.push_back(std::move(prefix));
  }
  if (prefixes.empty()) {
    fail(ErrorKind::not_found, "no .bin file in the folder {} or below it", folder);
  }
  return prefixes;
}

std::string plain_folder(const std::string& folder) {
  std::string path = absolute(folder);
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace ferry::tool
