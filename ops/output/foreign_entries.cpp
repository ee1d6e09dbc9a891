#include "ops/output/foreign_entries.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/base/glob.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/integrity/manifest/sha256_manifest.h"
#include "convert/tokenizer.h"

namespace ferry {
namespace {

// Which paths are parts, and which folders may hold some.
struct Parts {
  std::function<bool(const std::string& path)> file;
  std::function<bool(const std::string& path)> folder;
};

constexpr std::string_view kManifests[] = {kManifestName, kSha256ManifestName};

constexpr std::string_view kModelFiles[] = {"config.json",
                                            "generation_config.json",
                                            "*.safetensors",
                                            "*.safetensors.index.json",
                                            "pytorch_model.bin",
                                            "pytorch_model-*.bin",
                                            "pytorch_model.bin.index.json"};

// Megatron-LM's files, and what Megatron Bridge adds.
constexpr std::string_view kCheckpointFiles[] = {".metadata",       "metadata.json",  "common.pt",
                                                 "*.distcp",        "mp_rank_*/*.pt", "tokenizer/*",
                                                 "run_config.yaml", "train_state.pt"};

bool matches_any(std::span<const std::string_view> patterns, std::string_view path) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](std::string_view pattern) { return glob_matches(pattern, path); });
}

Parts parts_by_name(FolderContent content) {
  if (content == FolderContent::model) {
    return {[](const std::string& path) {
              return matches_any(kModelFiles, path) || is_tokenizer_file(path);
            },
            [](const std::string&) { return false; }};
  }
  return {[](const std::string& path) { return matches_any(kCheckpointFiles, path); },
          [](const std::string& path) {
            return std::any_of(std::begin(kCheckpointFiles), std::end(kCheckpointFiles),
                               [&](std::string_view pattern) {
                                 const size_t slash = pattern.find('/');
                                 return slash != std::string_view::npos &&
                                        glob_matches(pattern.substr(0, slash), path);
                               });
          }};
}

// Nothing where there is no manifest, or a damaged one.
std::optional<Parts> parts_by_manifest(const FileSystem& file_system, const std::string& folder) {
  std::set<std::string> files, folders;
  try {
    const std::string path = join(folder, kManifestName);
    if (file_system.status(path).kind != PathKind::file) return std::nullopt;
    const std::string text = read_file(file_system, path, kMostManifestBytes);
    for (const ManifestFile& file : parse_manifest(text, path).files) {
      for (size_t slash = file.path.find('/'); slash != std::string::npos;
           slash = file.path.find('/', slash + 1)) {
        folders.insert(file.path.substr(0, slash));
      }
      files.insert(file.path);
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return Parts{[files](const std::string& path) { return files.contains(path); },
               [folders](const std::string& path) { return folders.contains(path); }};
}

void collect(const FileSystem& file_system, const std::string& folder, const std::string& inside,
             const Parts& parts, std::vector<std::string>& foreign) {
  for (const std::string& name : file_system.list(join(folder, inside))) {
    const std::string path = inside + name;
    const PathStatus status = file_system.status(join(folder, path));
    if (status.kind == PathKind::folder && !status.link && parts.folder(path)) {
      collect(file_system, folder, path + "/", parts, foreign);
    } else if (status.kind == PathKind::folder) {
      foreign.push_back(path + "/");
    } else if (!parts.file(path) && !matches_any(kManifests, path)) {
      foreign.push_back(path);
    }
  }
}

}  // namespace

std::vector<std::string> foreign_entries(const FileSystem& file_system, const std::string& folder,
                                         FolderContent content) {
  std::vector<std::string> foreign;
  const std::optional<Parts> named = parts_by_manifest(file_system, folder);
  collect(file_system, folder, "", named ? *named : parts_by_name(content), foreign);
  return foreign;
}

}  // namespace ferry
