#include "ckpt/integrity/checks/manifest_checks.h"

#include <fmt/format.h>

#include <unordered_map>

namespace ferry {
namespace {

// Looks files up by their path inside the folder, and remembers which were asked for.
class FileTable {
 public:
  FileTable(const std::string& folder, std::span<const FileInfo> files) : named_(files.size()) {
    for (uint32_t i = 0; i < files.size(); ++i) numbers_.emplace(files[i].path, i);
    folder_ = folder;
  }

  const uint32_t* find(const std::string& name) {
    const auto found = numbers_.find(join(folder_, name));
    if (found == numbers_.end()) return nullptr;
    named_[found->second] = true;
    return &found->second;
  }

  std::vector<uint32_t> not_named() const {
    std::vector<uint32_t> numbers;
    for (uint32_t i = 0; i < named_.size(); ++i) {
      if (!named_[i]) numbers.push_back(i);
    }
    return numbers;
  }

 private:
  std::string folder_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<bool> named_;
};

Problem missing(const std::string& folder, const std::string& file, const char* list) {
  return {file, 0, 0, {}, fmt::format("{}: is missing; {} names it", join(folder, file), list)};
}

Problem wrong_size(const FileInfo& found, const ManifestFile& file) {
  std::string what =
      fmt::format("{}: has {} bytes, {} were written", found.path, found.bytes, file.bytes);
  std::string holds;
  size_t cut = 0;
  for (const ManifestItem& item : file.items) {
    if (item.offset + item.bytes <= found.bytes) continue;
    if (cut++ == 0) holds = describe(item);
  }
  if (!holds.empty()) what += fmt::format("; {} is cut off or missing", holds);
  if (cut > 1) what += fmt::format("{} {} more items", holds.empty() ? ";" : ", and", cut - 1);
  const uint64_t common = std::min(found.bytes, file.bytes);
  return {file.path, common, std::max(found.bytes, file.bytes) - common, holds, std::move(what)};
}

}  // namespace

ManifestChecks checks_of(const Manifest& manifest, const std::string& folder,
                         std::span<const FileInfo> files) {
  ManifestChecks result;
  FileTable table(folder, files);
  for (const ManifestFile& file : manifest.files) {
    const uint32_t* number = table.find(file.path);
    if (!number) {
      result.problems.push_back(missing(folder, file.path, kManifestName));
      continue;
    }
    const uint64_t bytes = files[*number].bytes;
    if (bytes != file.bytes) result.problems.push_back(wrong_size(files[*number], file));
    for (const ManifestItem& item : file.items) {
      if (item.offset + item.bytes > bytes) break;
      result.list.add({*number, item.offset, item.bytes, item.digest}, {&item, nullptr, {}});
    }
  }
  result.not_named = table.not_named();
  return result;
}

ManifestChecks checks_of(const Sha256Files& hashes, const std::string& folder,
                         std::span<const FileInfo> files) {
  ManifestChecks result;
  FileTable table(folder, files);
  for (const auto& [name, hash] : hashes) {
    if (const uint32_t* number = table.find(name)) {
      result.list.add({*number, 0, files[*number].bytes, hash});
    } else {
      result.problems.push_back(missing(folder, name, kSha256ManifestName));
    }
  }
  result.not_named = table.not_named();
  return result;
}

}  // namespace ferry
