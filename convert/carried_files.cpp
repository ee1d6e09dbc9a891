#include "convert/carried_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "ckpt/base/name_list.h"
#include "ckpt/base/utf8.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/integrity/manifest/sha256_manifest.h"

namespace ferry {
namespace {

constexpr int kMostFolders = 4;  // a link may lead back to its own folder
constexpr size_t kMostCarriedFiles = 1000;
constexpr uint64_t kMostCarriedBytes = uint64_t{256} << 20;  // of one file
constexpr std::string_view kTemplateFolder = "additional_chat_templates";
constexpr std::string_view kTrainerState = "trainer_state.json";

constexpr std::string_view kModelIndexes[] = {"model.safetensors.index.json",
                                              "pytorch_model.bin.index.json"};
constexpr std::string_view kOwnFiles[] = {"config.json", kManifestName, kSha256ManifestName};
constexpr std::string_view kWeightEnds[] = {
    ".safetensors", ".bin",  ".pt",        ".pth", ".ckpt",       ".h5",     ".msgpack",
    ".gguf",        ".onnx", ".onnx_data", ".npz", ".index.json", ".distcp", ".nemo"};

// What DeepSpeed and Accelerate write.
bool is_training_state(std::string_view name) {
  return name == kTrainerState || name == "latest" || name == "zero_to_fp32.py" ||
         name == "zero_to_torch.py" ||
         (name.ends_with(".pkl") &&
          (name.starts_with("random_states_") || name.starts_with("custom_checkpoint_")));
}

// The model's own weights, which are converted.
bool is_model_file(const std::string& path) {
  if (path.find('/') != std::string::npos) return false;
  return path.ends_with(".safetensors") || has_name(kModelIndexes, path) ||
         (path.starts_with("pytorch_model") && path.ends_with(".bin"));
}

class Collector {
 public:
  Collector(const FileSystem& files, const std::string& folder, bool top_only)
      : files_(files), folder_(folder), top_only_(top_only) {}

  CarriedFiles run() {
    collect("", 0);
    return std::move(result_);
  }

 private:
  void collect(const std::string& inside, int depth) {
    for (const std::string& name : files_.list(inside.empty() ? folder_ : join(folder_, inside))) {
      if (name.starts_with('.')) continue;
      const std::string path = inside.empty() ? name : inside + "/" + name;
      const PathStatus status = files_.status(join(folder_, path));
      if (utf8_prefix(name, false) != name.size()) {
        result_.left.push_back(path);
      } else if (status.kind == PathKind::folder) {
        collect_folder(path, depth + 1);
      } else if (status.kind == PathKind::file) {
        add(path, name, status.bytes);
      }
    }
  }

  void collect_folder(const std::string& path, int depth) {
    if (top_only_ && path != kTemplateFolder) return;
    const std::string state = join(join(folder_, path), std::string(kTrainerState));
    if (depth > kMostFolders || files_.status(state).kind == PathKind::file) {
      result_.left.push_back(path + "/");
    } else {
      collect(path, depth);
    }
  }

  void add(const std::string& path, const std::string& name, uint64_t bytes) {
    if (is_model_file(path) || has_name(kOwnFiles, path)) return;
    const bool is_weight = std::any_of(std::begin(kWeightEnds), std::end(kWeightEnds),
                                       [&](std::string_view end) { return path.ends_with(end); });
    if (is_weight || is_training_state(name) || bytes > kMostCarriedBytes ||
        result_.files.size() == kMostCarriedFiles) {
      result_.left.push_back(path);
    } else {
      result_.files.push_back({join(folder_, path), path, bytes});
    }
  }

  const FileSystem& files_;
  const std::string& folder_;
  bool top_only_;
  CarriedFiles result_;
};

}  // namespace

CarriedFiles carried_files(const FileSystem& file_system, const std::string& folder,
                           bool top_only) {
  return Collector(file_system, folder, top_only).run();
}

std::string left_out(const std::vector<std::string>& left) {
  if (left.empty()) return {};
  return fmt::format(
      "{} file{} next to the model's weights {} left out, as other weights, state of a training or "
      "too large: {}",
      left.size(), left.size() == 1 ? "" : "s", left.size() == 1 ? "is" : "are", some_of(left));
}

}  // namespace ferry
