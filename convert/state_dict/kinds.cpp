// What a checkpoint says of its model, and where the rest is to be found.
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "convert/language_part.h"
#include "convert/state_dict/state_dict.h"

namespace ferry {
namespace {

std::string folder_around(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

bool is_state_dict(const Checkpoint& checkpoint) {
  switch (checkpoint.format) {
    case Format::safetensors:
    case Format::torch_file:
    case Format::fsdp:
    case Format::deepspeed:
      return true;
    case Format::dcp:
      return !checkpoint.args.value;
    default:
      return false;
  }
}

bool lacks_arguments(const Checkpoint& checkpoint) {
  const bool of_megatron =
      checkpoint.format == Format::torch_dist || checkpoint.format == Format::megatron_torch;
  return of_megatron && !checkpoint.args.value;
}

bool has_language_part(const Checkpoint& checkpoint, const std::optional<std::string>& family) {
  if (checkpoint.format != Format::hugging_face) return false;
  const auto config = read_hugging_face_config(*checkpoint.catalog->file_system, checkpoint.path);
  return config && language_part(*config, family);
}

std::string find_config_folder(const Checkpoint& checkpoint, const std::string& requested,
                               const std::string& fallback) {
  if (!requested.empty()) return requested;
  const FileSystem& files = *checkpoint.catalog->file_system;
  const std::string around = folder_around(checkpoint.path);
  for (const std::string& folder : {checkpoint.path, join(checkpoint.path, "huggingface"), around,
                                    join(around, "huggingface")}) {
    if (files.status(folder).kind == PathKind::folder &&
        files.status(join(folder, "config.json")).kind == PathKind::file) {
      return folder;
    }
  }
  if (!fallback.empty()) return fallback;
  fail(ErrorKind::not_found,
       "{}: holds names and shapes of tensors, but not what the model is; {} names a "
       "folder with its config.json (and tokenizer files, which are copied)",
       checkpoint.path, option("config_folder", "DIR"));
}

}  // namespace ferry
