#include "ckpt/format/other_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/base/name_pattern.h"
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

constexpr std::string_view kZarr =
    "a zarr store, a folder of chunk files for each array; load it with what wrote it and save it "
    "in another form (Megatron Core 0.6 to 0.15: --ckpt-format torch_dist), and convert that";
constexpr std::string_view kNanotron =
    "a checkpoint of nanotron, a file for each tensor and rank; its "
    "examples/llama/convert_nanotron_to_hf.py (--checkpoint_path, --save_path) writes a Hugging "
    "Face model, and convert that";
constexpr std::string_view kPipelineLayers =
    "a file for each layer, of DeepSpeed's pipeline engine; GPT-NeoX's "
    "tools/ckpts/convert_neox_to_hf.py, or Megatron-DeepSpeed's "
    "tools/convert_checkpoint/deepspeed_to_transformers.py, writes a Hugging Face model, and "
    "convert that";
constexpr std::string_view kNumpy =
    "arrays of NumPy (MLX, JAX); write them as safetensors (safetensors.numpy.save_file)";

// By the first bytes.
struct Compression {
  std::string_view magic, name, program;
};
constexpr Compression kCompressions[] = {{"\x1f\x8b", "gzip", "gunzip"},
                                         {"\x28\xb5\x2f\xfd", "zstd", "zstd -d"},
                                         {"\xfd"
                                          "7zXZ",
                                          "xz", "unxz"},
                                         {"BZh", "bzip2", "bunzip2"}};

// Whether there is an array of zarr's in a folder of its own.
bool has_zarr_array(const FileSystem& files, const std::string& folder,
                    const std::vector<std::string>& names) {
  constexpr size_t kMostTried = 200;
  for (size_t i = 0; i < names.size() && i < kMostTried; ++i) {
    const std::string inside = join(folder, names[i]);
    if (files.status(join(inside, ".zarray")).kind == PathKind::file) return true;
  }
  return false;
}

// Its steps are folders that are called by their numbers.
bool is_nanotron_run(const std::vector<std::string>& names) {
  return has_name(names, "latest.txt") &&
         std::ranges::any_of(names, [](const auto& name) { return fits_pattern("#", name); });
}

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
  if (name == ".zarray" || name == ".zgroup" || name == "zarr.json") return kZarr;
  if (name.ends_with(".npz")) return kNumpy;
  return {};
}

bool is_hub_part(std::string_view text) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text[0] != '.' && std::ranges::all_of(text, is_plain);
}

// "ORGANISATION/NAME", which may be a model of the hub.
bool is_hub_name(std::string_view path) {
  const size_t slash = path.find('/');
  return slash != std::string_view::npos && is_hub_part(path.substr(0, slash)) &&
         is_hub_part(path.substr(slash + 1));
}

std::string download_of(std::string_view hub_name) {
  return fmt::format("`hf download {} --local-dir {}`", hub_name,
                     hub_name.substr(hub_name.find('/') + 1));
}

// How to get what is at a URL; `rest` is what comes after "://".
std::string fetch_of(std::string_view scheme, std::string_view url, std::string_view rest) {
  constexpr std::string_view kHub = "huggingface.co/";
  if (scheme == "http" || scheme == "https") {
    if (!rest.starts_with(kHub)) return fmt::format("`curl -LO {}`", url);
    rest.remove_prefix(kHub.size());
  }
  if (scheme == "s3") return fmt::format("`aws s3 sync {} DIR`", url);
  if (scheme == "gs") return fmt::format("`gcloud storage cp -r {} DIR`", url);
  if (scheme == "az" || scheme == "abfs" || scheme == "abfss") return "`azcopy copy URL DIR`";
  if (scheme == "hdfs") return fmt::format("`hdfs dfs -get {} DIR`", url);
  if (scheme != "hf" && !scheme.starts_with("http")) return "the program that wrote it";
  if (rest.starts_with("models/")) rest.remove_prefix(7);
  const size_t end = rest.find('/', std::min(rest.find('/'), rest.size() - 1) + 1);
  const std::string_view model = rest.substr(0, end);
  return is_hub_name(model) ? download_of(model) : "`hf download MODEL --local-dir DIR`";
}

}  // namespace

std::string what_url(std::string_view path) {
  const size_t end = path.find("://");
  if (end == std::string_view::npos || end == 0) return {};
  const std::string_view scheme = path.substr(0, end);
  const auto is_letter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '-';
  };
  if (!std::ranges::all_of(scheme, is_letter)) return {};
  if (scheme == "file") {
    return fmt::format("is a URL; give the path itself: {}", path.substr(end + 3));
  }
  return fmt::format("is not on a file system here, where files are read and written: {} copies it",
                     fetch_of(scheme, path, path.substr(end + 3)));
}

void fail_missing(const FileSystem& file_system, const std::string& path) {
  if (const std::string url = what_url(path); !url.empty()) {
    fail(ErrorKind::unsupported, "{} {}", path, url);
  }
  const bool may_be_hub =
      is_hub_name(path) &&
      file_system.status(path.substr(0, path.find('/'))).kind == PathKind::missing;
  fail(ErrorKind::not_found, "{} does not exist, or is a link to something that does not{}", path,
       may_be_hub ? "; check the path, or download it if it is a model of the Hugging Face hub: " +
                        download_of(path)
                  : "; check the path");
}

std::string other_file(const ReadableFile& file) {
  const std::string head = read_part(file, 0, std::min(file.size(), kHeadBytes));
  std::string_view what;
  if (head.starts_with("GGUF")) what = kGguf;
  if (head.starts_with("\x89HDF\r\n")) what = kKeras;
  if (is_torch_script(file, head)) what = kTorchScript;
  for (const Compression& form : kCompressions) {
    if (!head.starts_with(form.magic)) continue;
    const SplitPath path = split_path(file.path());
    const bool archive = path.name.ends_with(".nemo") ||
                         path.name.find(".tar") < path.name.size() || path.name.ends_with(".tgz");
    return archive ? fmt::format(
                         "is an archive compressed by {}; extract it (mkdir NEW && tar -xf "
                         "FILE -C NEW) and give the folder NEW",
                         form.name)
                   : fmt::format("is compressed by {}; decompress it ({} FILE) and give that",
                                 form.name, form.program);
  }
  if (what.empty()) what = by_name(split_path(file.path()).name);
  return what.empty() ? std::string() : fmt::format("is {}", what);
}

std::string other_folder(const FileSystem& file_system, const std::string& folder,
                         const std::vector<std::string>& names) {
  if (const auto base = adapter_base(file_system, folder)) return what_adapter(*base);
  if (has_name(names, "checkpoint_metadata.json") && has_name(names, "model_config.json")) {
    return fmt::format("is {}", kNanotron);
  }
  if (is_nanotron_run(names)) {
    return fmt::format("is a run of nanotron; each of its steps is {}", kNanotron);
  }
  if (has_pipeline_layers(names)) return fmt::format("holds {}", kPipelineLayers);
  if (has_zarr_array(file_system, folder, names)) return fmt::format("is {}", kZarr);
  for (const std::string& name : names) {
    const std::string_view what = by_name(name);
    if (!what.empty()) return fmt::format("holds {}: {}", name, what);
  }
  return {};
}

bool has_pipeline_layers(const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [](const std::string& name) {
    return fits_pattern("layer_#-model_#-model_states.pt", name) ||
           fits_pattern("layer_#-model_states.pt", name);
  });
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
