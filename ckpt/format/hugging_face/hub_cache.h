// Hugging Face's cache of downloads: a folder models--ORGANISATION--NAME that holds
//
//   refs/main                 the commit that the branch was at
//   snapshots/COMMIT/FILE     a link to ../../blobs/NAME (or, where there are no links, the file)
//   blobs/NAME                each content once; that of a large file is named by its SHA-256
//
// Source: huggingface_hub file_download.py and its guide "Understand caching".
#pragma once

#include <optional>
#include <string>

#include "ckpt/base/sha256.h"
#include "ckpt/io/file_system.h"

namespace ferry {

bool is_hub_cache(const FileSystem& file_system, const std::string& folder);

/// The folder of the snapshot that refs/main names or, without one, of the only snapshot; empty
/// when `folder` is no such cache. not_found when that snapshot is missing, invalid when there are
/// several and nothing says which.
std::string hub_snapshot(const FileSystem& file_system, const std::string& folder);

/// The SHA-256 of a file of a snapshot, where the name of the blob that it leads to says it.
std::optional<Sha256> hub_sha256(const FileSystem& file_system, const std::string& path);

}  // namespace ferry
