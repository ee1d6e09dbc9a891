#include "tools/runs/copy.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/io/staging/staging.h"
#include "tools/report/training/run_sources.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kMostLogBytes = uint64_t{4} << 30;  // of a file
constexpr int kMostFolders = 6;                        // in each other

// Below the folder, and nowhere else.
void check_name(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(name).lexically_normal();
  const bool leads_away = name.empty() || path.is_absolute() || *path.begin() == "..";
  if (leads_away || path == ".") {
    fail(ErrorKind::invalid, "'{}' is not a name of a run below a folder", printable(name));
  }
}

// Whether a figure is missing: null, or one of Python's names (NaN, Infinity) that JSON has not.
bool is_no_number(const nlohmann::json& value) {
  return value.is_null() || (value.is_number_float() && !std::isfinite(value.get<double>()));
}

// A line without its members that are not numbers; as it is where there are none, or it is no
// object.
std::string without_nan(const std::string& line, const std::string& what) {
  try {
    std::vector<std::string> dropped;
    const nlohmann::json members = parse_python_json(line, what);
    if (!members.is_object()) return line;
    for (const auto& [name, value] : members.items()) {
      if (is_no_number(value)) dropped.push_back(name);
    }
    if (dropped.empty()) return line;
    const std::string edited = edit_python_json(line, what, [&](nlohmann::ordered_json& json) {
      for (const std::string& name : dropped) json.erase(name);
    });
    return nlohmann::ordered_json::parse(edited).dump();
  } catch (const Error&) {
    return line;
  } catch (const nlohmann::json::exception&) {  // such a name stands deeper
    return line;
  }
}

std::string lines_without_nan(const std::string& text, const std::string& what) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    kept += without_nan(text.substr(begin, end - begin), what) + "\n";
    begin = end + 1;
  }
  return kept;
}

bool is_event_file(const std::string& name) { return name.find("tfevents") != std::string::npos; }

// Returns how many files it copied.
int copy_folder(const FileSystem& files, const std::string& from, const std::string& to,
                int depth) {
  int copied = 0;
  for (const std::string& name : files.list(from)) {
    const std::string source = join(from, name), target = join(to, name);
    const PathKind kind = files.status(source).kind;
    std::error_code error;
    const bool is_link = std::filesystem::is_symlink(source, error);
    if (kind == PathKind::folder && !is_link && depth < kMostFolders) {
      copied += copy_folder(files, source, target, depth + 1);
    } else if (kind == PathKind::file && (is_run_source(name) || is_event_file(name))) {
      make_folders(files, to);
      const std::string text = read_file(files, source, kMostLogBytes);
      write_file(files, target, name.ends_with(".jsonl") ? lines_without_nan(text, source) : text);
      ++copied;
    }
  }
  return copied;
}

std::vector<std::string> new_names(const FileSystem& files, const CopyRuns& options) {
  if (!options.names.empty() && options.names.size() != options.runs.size()) {
    fail(ErrorKind::invalid, "--names has {} names for {} runs; give one for each",
         options.names.size(), options.runs.size());
  }
  std::error_code error;
  const bool is_same = std::filesystem::equivalent(options.from, options.to, error);
  std::vector<std::string> names = options.names.empty() ? options.runs : options.names;
  for (size_t i = 0; i < names.size(); ++i) {
    check_name(options.runs[i]);
    if (files.status(join(options.from, options.runs[i])).kind != PathKind::folder) {
      fail(ErrorKind::not_found, "{}: has no folder {}", printable(options.from),
           printable(options.runs[i]));
    }
    if (options.names.empty() && is_same) names[i] += "-copy";
    check_name(names[i]);
    if (files.status(join(options.to, names[i])).kind != PathKind::missing) {
      fail(ErrorKind::invalid, "{} exists; --names gives copies other names",
           printable(join(options.to, names[i])));
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> copy_runs(const std::shared_ptr<const FileSystem>& file_system,
                                   const CopyRuns& options) {
  const FileSystem& files = *file_system;
  const std::vector<std::string> names = new_names(files, options);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string target = join(options.to, names[i]);
    make_folders(files, std::filesystem::path(target).parent_path().string());
    StagedFolder staged(file_system, target, false);
    if (copy_folder(files, join(options.from, options.runs[i]), staged.path(), 0) == 0) {
      fail(ErrorKind::not_found, "{}: has no logs or metrics to copy",
           printable(join(options.from, options.runs[i])));
    }
    staged.commit();
  }
  return names;
}

}  // namespace ferry::tool
