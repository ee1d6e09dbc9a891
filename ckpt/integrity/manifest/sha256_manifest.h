// integrity.json: the SHA-256 of every file of a checkpoint's folder, which Megatron Core 0.18 and
// later write with --verify-integrity and check before they load.
//
//   {"algorithm": "sha256", "files": {"NAME": "64 hexadecimal digits", ...}}
//
// Source: megatron/core/dist_checkpointing/validation.py (save_integrity_manifest).
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/sha256.h"
#include "ckpt/io/file_system.h"

namespace ferry {

inline constexpr const char* kSha256ManifestName = "integrity.json";

/// File name and hash.
using Sha256Files = std::vector<std::pair<std::string, Sha256>>;

/// Reads every file of the folder and of folders inside it (the rank folders of a legacy
/// checkpoint; Megatron Core, which writes no folders, names only files of the folder itself),
/// several at a time, in pieces of 1 MiB. Sorted by name, "folder/file". cancelled when `cancel` is
/// set meanwhile.
Sha256Files hash_folder(const FileSystem& file_system, const std::string& folder, int threads,
                        const std::atomic<bool>* cancel = nullptr);

/// The text of integrity.json, as Megatron Core writes it.
std::string sha256_manifest_text(const Sha256Files& files);

/// corrupt when the text is something else, or a name would leave the folder; unsupported for
/// another algorithm. `path` is for messages.
Sha256Files parse_sha256_manifest(std::string_view text, const std::string& path);

}  // namespace ferry
