#include "ckpt/format/other_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/json_events.h"

namespace ferry {
namespace {

constexpr uint64_t kHeadBytes = 16;
constexpr uint64_t kTailBytes = 256 << 10;  // of an archive: its directory
constexpr uint64_t kMostConfigBytesOfAdapter = uint64_t{1} << 20;

constexpr std::string_view kGguf =
    "a GGUF file of llama.cpp, for inference; convert the Hugging Face model that it was made from";
constexpr std::string_view kOnnx =
    "an ONNX graph, for inference; convert the Hugging Face model that it was made from";
constexpr std::string_view kKeras =
    "weights of TensorFlow (HDF5); load them with transformers 4 (from_tf=True), and convert what "
    "save_pretrained() writes";
constexpr std::string_view kFlax =
    "weights of Flax; load them with transformers 4 (from_flax=True), and convert what "
    "save_pretrained() writes";
constexpr std::string_view kTorchScript =
    "a TorchScript program; torch.save(torch.jit.load(FILE).state_dict(), NEW) makes a file of its "
    "weights that can be read";
constexpr std::string_view kSavedModel =
    "a program of TensorFlow (SavedModel); convert the model that it was made from";
constexpr std::string_view kTensorFlow =
    "a checkpoint of TensorFlow; load it there and write its variables as safetensors "
    "(safetensors.tensorflow)";
constexpr std::string_view kOrbax =
    "a checkpoint of Orbax (JAX); restore it there (ocp.PyTreeCheckpointer().restore) and write "
    "the arrays as safetensors (safetensors.flax)";
constexpr std::string_view kEngine =
    "an engine of TensorRT-LLM, for inference; convert the model that it was built from";

std::string read_part(const ReadableFile& file, uint64_t offset, uint64_t bytes) {
  std::string part(bytes, '\0');
  file.read(offset, std::as_writable_bytes(std::span(part)));
  return part;
}

bool is_torch_script(const ReadableFile& file, std::string_view head) {
  if (!head.starts_with("PK\3\4")) return false;
  const uint64_t bytes = std::min(file.size(), kTailBytes);
  return read_part(file, file.size() - bytes, bytes).find("/constants.pkl") != std::string::npos;
}

// By the end of a name, for folders and for formats without a mark of their own.
std::string_view by_name(std::string_view name) {
  if (name.ends_with(".gguf")) return kGguf;
  if (name.ends_with(".onnx")) return kOnnx;
  if (name.ends_with(".h5") || name.ends_with(".keras")) return kKeras;
  if (name.ends_with(".msgpack")) return kFlax;
  if (name == "saved_model.pb") return kSavedModel;
  if (name.ends_with(".data-00000-of-00001")) return kTensorFlow;
  if (name == "manifest.ocdbt" || name.starts_with("ocdbt.process_")) return kOrbax;
  if (name == "_CHECKPOINT_METADATA" || name == "commit_success.txt") return kOrbax;
  if (name == "rank0.engine") return kEngine;
  return {};
}

}  // namespace

std::string other_file(const ReadableFile& file) {
  const std::string head = read_part(file, 0, std::min(file.size(), kHeadBytes));
  std::string_view what;
  if (head.starts_with("GGUF")) what = kGguf;
  if (head.starts_with("\x89HDF\r\n")) what = kKeras;
  if (is_torch_script(file, head)) what = kTorchScript;
  if (what.empty()) what = by_name(split_path(file.path()).name);
  return what.empty() ? std::string() : fmt::format("is {}", what);
}

std::string other_folder(const FileSystem& file_system, const std::string& folder,
                         const std::vector<std::string>& names) {
  if (const auto base = adapter_base(file_system, folder)) return what_adapter(*base);
  for (const std::string& name : names) {
    const std::string_view what = by_name(name);
    if (!what.empty()) return fmt::format("holds {}: {}", name, what);
  }
  return {};
}

std::optional<std::string> adapter_base(const FileSystem& file_system, const std::string& folder) {
  const std::string path = join(folder, "adapter_config.json");
  if (file_system.status(path).kind != PathKind::file) return std::nullopt;
  try {
    const auto config =
        parse_python_json(read_file(file_system, path, kMostConfigBytesOfAdapter), path);
    if (!config.is_object()) return "";
    const auto base = config.find("base_model_name_or_path");
    return base != config.end() && base->is_string() ? base->get<std::string>() : "";
  } catch (const Error&) {
    return "";
  }
}

std::string what_adapter(const std::string& base) {
  return fmt::format(
      "is an adapter of PEFT (LoRA and the like){}, no model; merge it first (peft's "
      "merge_and_unload() and save_pretrained()), and convert that",
      base.empty() ? "" : " for " + base);
}

}  // namespace ferry
