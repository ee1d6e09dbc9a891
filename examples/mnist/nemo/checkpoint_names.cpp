#include "nemo/checkpoint_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "ckpt/base/error.h"
#include "ckpt/megatron/nemo/nemo.h"

namespace ferry::mnist {
namespace {

// Names in a folder that may be missing.
std::vector<std::string> names_in(const FileSystem& files, const std::string& folder) {
  if (files.status(folder).kind != PathKind::folder) return {};
  return files.list(folder);
}

bool is_marked(const FileSystem& files, const std::string& path) {
  return files.status(marker_of(path)).kind != PathKind::missing;
}

std::string newest_of(const FileSystem& files, const std::string& folder,
                      const std::vector<std::string>& names) {
  const auto changed = [&](const std::string& name) {
    return files.status(join(folder, name)).changed_seconds;
  };
  // Among those that changed in one second the name decides, which has the consumed samples.
  return *std::ranges::max_element(names, [&](const std::string& a, const std::string& b) {
    return std::pair(changed(a), a) < std::pair(changed(b), b);
  });
}

}  // namespace

std::string checkpoint_name(const std::string& run, const std::string& monitor, double value,
                            int64_t epoch, int64_t consumed_samples) {
  return fmt::format("{}--{}={:.4f}-epoch={}-consumed_samples={:.1f}", run, monitor, value, epoch,
                     static_cast<double>(consumed_samples));
}

std::optional<double> value_in_name(std::string_view name, std::string_view monitor) {
  const std::string key = std::string(monitor) + "=";
  const size_t at = name.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string rest(name.substr(at + key.size()));
  char* end = nullptr;
  const double value = std::strtod(rest.c_str(), &end);
  if (end == rest.c_str()) return std::nullopt;
  return value;
}

std::string marker_of(const std::string& path) {
  std::string plain = path;
  for (const std::string_view end : {".ckpt", "-EMA"}) {
    if (plain.ends_with(end)) plain.resize(plain.size() - end.size());
  }
  return plain + std::string(kUnfinished);
}

std::vector<std::string> finished_checkpoints(const FileSystem& files, const std::string& folder) {
  std::vector<std::string> finished;
  for (const std::string& name : names_in(files, folder)) {
    const std::string path = join(folder, name);
    if (is_nemo_folder(files, path) && !is_marked(files, path)) finished.push_back(name);
  }
  return finished;
}

std::vector<std::string> remove_unfinished(const FileSystem& files, const std::string& folder) {
  std::vector<std::string> removed;
  for (const std::string& name : names_in(files, folder)) {
    if (!name.ends_with(kUnfinished)) continue;
    const std::string of = name.substr(0, name.size() - kUnfinished.size());
    files.remove_all(join(folder, of));
    files.remove_all(join(folder, name));  // the mark goes last
    removed.push_back(of);
  }
  return removed;
}

std::optional<std::string> find_resume(const FileSystem& files, const std::string& folder,
                                       const ResumeOptions& options) {
  if (!options.from_path.empty()) return options.from_path;
  if (!options.if_exists) return std::nullopt;
  std::vector<std::string> lasts, unfinished, ends;
  for (const std::string& name : names_in(files, folder)) {
    if (files.status(join(folder, name)).kind != PathKind::folder) continue;
    const bool is_bad = is_marked(files, join(folder, name));
    if (name.ends_with("end") && !is_bad) ends.push_back(name);
    if (name.ends_with("last")) (is_bad ? unfinished : lasts).push_back(name);
  }
  if (!ends.empty() && !options.past_end) {
    fail(ErrorKind::invalid, "{} is the end of a run that is over: give another folder",
         join(folder, ends.front()));
  }
  if (ends.size() > 1) return join(folder, newest_of(files, folder, ends));
  if (!lasts.empty()) return join(folder, newest_of(files, folder, lasts));
  if (!unfinished.empty()) {
    fail(
        ErrorKind::not_found,
        "{} is unfinished, and no other last checkpoint is there: give one to go on from (--from), "
        "or begin anew (--no-resume)",
        join(folder, unfinished.front()));
  }
  if (!options.ignore_no_checkpoint) {
    fail(ErrorKind::not_found, "{} has no last checkpoint to go on from", folder);
  }
  return std::nullopt;
}

}  // namespace ferry::mnist
