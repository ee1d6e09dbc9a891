#include "convert/rewrite/carried_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "ckpt/base/utf8.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/integrity/manifest/sha256_manifest.h"

namespace ferry {
namespace {

constexpr int kMostFolders = 4;  // a link may lead back to its own folder
constexpr size_t kMostCarriedFiles = 1000;
constexpr uint64_t kMostCarriedBytes = uint64_t{256} << 20;  // of one file

constexpr std::string_view kModelIndexes[] = {"model.safetensors.index.json",
                                              "pytorch_model.bin.index.json"};
constexpr std::string_view kOwnFiles[] = {"config.json", kManifestName, kSha256ManifestName};
constexpr std::string_view kWeightEnds[] = {
    ".safetensors", ".bin",  ".pt",        ".pth", ".ckpt",       ".h5",     ".msgpack",
    ".gguf",        ".onnx", ".onnx_data", ".npz", ".index.json", ".distcp", ".nemo"};

bool is_among(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The model's own weights, which are converted.
bool is_model_file(const std::string& path) {
  if (path.find('/') != std::string::npos) return false;
  return path.ends_with(".safetensors") || is_among(path, kModelIndexes) ||
         (path.starts_with("pytorch_model") && path.ends_with(".bin"));
}

class Collector {
 public:
  Collector(const FileSystem& files, const std::string& folder, std::vector<std::string>& left)
      : files_(files), folder_(folder), left_(left) {}

  std::vector<CopiedFile> run() {
    look_into("", 0);
    return std::move(found_);
  }

 private:
  void look_into(const std::string& inside, int depth) {
    for (const std::string& name : files_.list(inside.empty() ? folder_ : join(folder_, inside))) {
      if (name.starts_with('.') || utf8_prefix(name, false) != name.size()) continue;
      const std::string path = inside.empty() ? name : inside + "/" + name;
      const PathStatus status = files_.status(join(folder_, path));
      if (status.kind == PathKind::folder && depth < kMostFolders) look_into(path, depth + 1);
      if (status.kind == PathKind::file) add(path, status.bytes);
    }
  }

  void add(const std::string& path, uint64_t bytes) {
    if (is_model_file(path) || is_among(path, kOwnFiles)) return;
    const bool is_weight = std::any_of(std::begin(kWeightEnds), std::end(kWeightEnds),
                                       [&](std::string_view end) { return path.ends_with(end); });
    if (is_weight || bytes > kMostCarriedBytes || found_.size() == kMostCarriedFiles) {
      left_.push_back(path);
    } else {
      found_.push_back({join(folder_, path), path, bytes});
    }
  }

  const FileSystem& files_;
  const std::string& folder_;
  std::vector<std::string>& left_;
  std::vector<CopiedFile> found_;
};

}  // namespace

std::vector<CopiedFile> carried_files(const FileSystem& file_system, const std::string& folder,
                                      std::vector<std::string>& left) {
  return Collector(file_system, folder, left).run();
}

}  // namespace ferry
