#include "ckpt/open_file.h"

#include <array>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/format/torch/torch_file.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/io/tar_file_system.h"
#include "ckpt/megatron/nemo/nemo.h"
#include "ckpt/open_folders.h"
#include "ckpt/store/run_folder.h"

namespace ferry {
namespace {

enum class FileKind { safetensors, torch, tar, unknown };

FileKind sniff(const ReadableFile& file) {
  std::array<std::byte, 9> head{};
  if (file.size() < head.size()) return FileKind::unknown;
  file.read(0, head);
  const auto at = [&](size_t i) { return std::to_integer<unsigned char>(head[i]); };
  if (at(0) == 'P' && at(1) == 'K') return FileKind::torch;
  if (at(0) == 0x80 && at(1) >= 1 && at(1) <= 5) return FileKind::torch;
  if (is_tar(file)) return FileKind::tar;
  uint64_t header = 0;
  for (size_t i = 8; i-- > 0;) header = header << 8 | at(i);
  const bool plausible = at(8) == '{' && header <= file.size() - 8;
  return plausible ? FileKind::safetensors : FileKind::unknown;
}

FileKind kind_of(const ReadableFile& file, const std::string& path) {
  if (path.ends_with(".safetensors")) return FileKind::safetensors;
  const FileKind kind = sniff(file);
  const bool torch_suffix =
      path.ends_with(".pt") || path.ends_with(".pth") || path.ends_with(".bin");
  return torch_suffix && kind == FileKind::unknown ? FileKind::torch : kind;
}

void check_is_whole(FileKind kind, const std::string& path) {
  const std::string name = split_path(path).name;
  const bool inside_checkpoint = name.ends_with(".distcp") || name.ends_with(".metadata") ||
                                 name == kTrackerName || name == "metadata.json" ||
                                 name == "config.json" || name.ends_with(".index.json");
  if (inside_checkpoint) {
    fail(ErrorKind::invalid,
         "{}: this file is a part of a checkpoint; give the folder that holds it", path);
  }
  if (kind == FileKind::unknown) {
    fail(ErrorKind::unsupported, "{}: neither a safetensors file nor one that torch.save wrote",
         path);
  }
}

// NeMo 1 archives are read as they are.
Checkpoint open_archive(std::shared_ptr<const FileSystem> files, const std::string& path,
                        bool raw) {
  const auto archive = with_archive(std::move(files), path);
  if (!is_nemo1_folder(*archive, path)) {
    fail(ErrorKind::unsupported,
         "{}: is a tar archive, but not of NeMo (model_config.yaml, model_weights.ckpt); extract "
         "it (tar -xf) and give the folder",
         path);
  }
  return open_nemo1(archive, path, raw);
}

}  // namespace

Checkpoint open_checkpoint_file(std::shared_ptr<const FileSystem> file_system,
                                const std::string& path, bool raw) {
  const auto file = file_system->open(path);
  const FileKind kind = kind_of(*file, path);
  if (kind != FileKind::safetensors) {
    const std::string other = other_file(*file);
    if (!other.empty()) fail(ErrorKind::unsupported, "{}: {}", path, other);
  }
  check_is_whole(kind, path);
  auto lock = std::make_shared<ReaderLock>(*file_system, path);
  Checkpoint checkpoint;
  if (kind == FileKind::tar) {
    checkpoint = open_archive(std::move(file_system), path, raw);
  } else if (kind == FileKind::safetensors) {
    checkpoint.format = Format::safetensors;
    checkpoint.writer = "safetensors";
    checkpoint.catalog = open_safetensors_file(std::move(file_system), path);
  } else {
    checkpoint.format = Format::torch_file;
    checkpoint.writer = "torch.save";
    checkpoint.catalog = open_torch_file(std::move(file_system), path);
    if (!raw) drop_extra_states(checkpoint);
  }
  checkpoint.path = path;
  checkpoint.catalog.edit().reader_locks = {std::move(lock)};
  return checkpoint;
}

std::shared_ptr<const FileSystem> with_archive(std::shared_ptr<const FileSystem> file_system,
                                               const std::string& path) {
  if (file_system->status(path).kind != PathKind::file) return file_system;
  return sniff(*file_system->open(path)) == FileKind::tar
             ? tar_file_system(std::move(file_system), path)
             : file_system;
}

bool is_torch_save_file(const ReadableFile& file) { return sniff(file) == FileKind::torch; }

}  // namespace ferry
