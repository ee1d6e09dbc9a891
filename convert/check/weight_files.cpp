#include "convert/check/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/hugging_face_layout.h"

namespace ferry {
namespace {

constexpr uint64_t kMostIndexBytes = 100'000'000;
constexpr size_t kMostFiles = 20;  // a finding each
constexpr std::string_view kWeightsEnd = ".safetensors", kWeightsFile = "model.safetensors";
constexpr const char* kCopyAgain = "complete the download or copy";

using WeightMap = std::vector<std::pair<std::string, std::string>>;

// Nothing, and a finding, where it is none.
std::optional<WeightMap> read_index(const FileSystem& files, const std::string& folder,
                                    Findings& findings) {
  const std::string path = join(folder, kSafetensorsIndexName);
  if (files.status(path).kind != PathKind::file) return std::nullopt;
  try {
    return parse_weight_map(read_file(files, path, kMostIndexBytes), path);
  } catch (const Error& error) {
    findings.problem("index", kSafetensorsIndexName, error.what(), kCopyAgain);
    return std::nullopt;
  }
}

// Files that `map` names, with the number of tensors in each.
std::map<std::string, size_t> files_in(const WeightMap& map) {
  std::map<std::string, size_t> counts;
  for (const auto& [tensor, file] : map) ++counts[file];
  return counts;
}

void find_missing_files(const FileSystem& files, const std::string& folder, const WeightMap& map,
                        Findings& findings) {
  size_t missing = 0;
  for (const auto& [file, tensors] : files_in(map)) {
    std::string path;
    try {
      path = join_untrusted(folder, file);
    } catch (const Error& error) {
      findings.problem("index", kSafetensorsIndexName, error.what(), kCopyAgain);
      continue;
    }
    if (files.status(path).kind != PathKind::missing || ++missing > kMostFiles) continue;
    findings.problem("files", file,
                     fmt::format("{} is missing: the index has {} of {} tensors in it", file,
                                 tensors, map.size()),
                     kCopyAgain);
  }
  if (missing > kMostFiles) {
    findings.problem("files", folder, fmt::format("{} shards are missing in all", missing),
                     kCopyAgain);
  }
}

void find_unreadable_files(const std::shared_ptr<const FileSystem>& files,
                           const std::string& folder, Findings& findings) {
  size_t unreadable = 0;
  for (const std::string& name : files->list(folder)) {
    if (!name.ends_with(kWeightsEnd) || name.starts_with('.')) continue;
    try {
      open_safetensors_file(files, join(folder, name));
    } catch (const Error& error) {
      if (++unreadable <= kMostFiles) {
        findings.problem("files", name, error.what(), "copy or download the file again");
      }
    }
  }
  if (unreadable > kMostFiles) {
    findings.problem("files", folder, fmt::format("{} files cannot be read in all", unreadable),
                     kCopyAgain);
  }
}

std::set<std::string> opened_files(const Checkpoint& checkpoint) {
  std::set<std::string> names;
  for (const FileInfo& file : checkpoint.catalog->files) names.insert(split_path(file.path).name);
  return names;
}

}  // namespace

void find_unread_weights(const std::shared_ptr<const FileSystem>& files, const std::string& folder,
                         const std::string& error, Findings& findings) {
  const size_t before = findings.list().size();
  if (const auto map = read_index(*files, folder, findings)) {
    find_missing_files(*files, folder, *map, findings);
  }
  find_unreadable_files(files, folder, findings);
  if (findings.list().size() == before) findings.problem("files", folder, error);
}

void check_weight_files(const Checkpoint& checkpoint, Loader loader, Findings& findings) {
  const FileSystem& files = *checkpoint.catalog->file_system;
  const std::vector<std::string> names = files.list(checkpoint.path);
  for (const std::string& damage : checkpoint.damage) {
    findings.problem("index", kSafetensorsIndexName, damage,
                     fmt::format("write the folder anew from its shards (convert with {} {})",
                                 option("to", "hugging_face"), option("ignore_index")));
  }
  const std::set<std::string> opened = opened_files(checkpoint);
  const bool has_index = has_name(names, kSafetensorsIndexName);
  const bool is_safetensors = std::ranges::any_of(
      opened, [](const std::string& name) { return name.ends_with(kWeightsEnd); });
  if (is_safetensors && !has_index && !has_name(names, kWeightsFile)) {
    const bool reads_all = loader == Loader::vllm || loader == Loader::sglang;
    findings.add(
        !reads_all, "index", kSafetensorsIndexName,
        fmt::format("there is neither {} nor {}: transformers does not find the weights "
                    "({}), engines read every .safetensors file",
                    kWeightsFile, kSafetensorsIndexName,
                    some_of({opened.begin(), opened.end()}, 2)),
        fmt::format("write the folder anew (convert with {})", option("to", "hugging_face")));
  }
  std::vector<std::string> other_forms;
  for (const std::string& name : names) {
    const bool is_other = name.starts_with("consolidated") && name.ends_with(kWeightsEnd);
    if (is_other && !opened.contains(name)) other_forms.push_back(name);
  }
  if (!other_forms.empty() && (loader == Loader::any || loader == Loader::vllm)) {
    findings.warning("files", other_forms.front(),
                     fmt::format("vLLM reads {} and not the weights that were checked, because "
                                 "files of that name are there",
                                 some_of(other_forms, 2)),
                     "remove them, or give vLLM --load-format safetensors");
  }
  const bool is_reported = !has_index && !findings.empty();
  for (const std::string& note : checkpoint.notes) {
    const bool is_said =
        (is_reported && note.starts_with("there is no ")) || has_name(checkpoint.damage, note);
    if (is_said) continue;
    findings.warning("files", checkpoint.path, note,
                     "remove files that are not the model's, name those that are in the index");
  }
}

}  // namespace ferry
