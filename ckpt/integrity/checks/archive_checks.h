// The torch.save archives of a checkpoint: items of .distcp files and whole .pt files. Each of
// their records has a CRC-32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/integrity/checks/byte_checks.h"
#include "ckpt/integrity/verify.h"

namespace ferry {

/// Where an archive is; for an item of a catalog also what it should be.
struct Archive {
  uint32_t file = 0;  // of the files that are checked
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string holds;               // "tensor a.b [0:2, 0:32]", "object args"; empty: a whole file
  const Entry* entry = nullptr;    // tensor item
  const Chunk* chunk = nullptr;    // of the entry
  const Object* object = nullptr;  // object item
};

/// The stored items of `stored`, a catalog as its files have it, and those of `files` that are
/// archives as a whole. Items in files that are not among `files` are left out.
std::vector<Archive> find_archives(const Catalog* stored, std::span<const FileInfo> files,
                                   const FileSystem& file_system);

struct ArchiveChecks {
  CheckList list;  // refers to the archives' `holds`
  std::vector<Problem> problems;
  int64_t tensors = 0, objects = 0, whole_files = 0;  // archives whose structure was checked
  int64_t zstd = 0;                                   // streams that were decoded
  int64_t without_crc32 = 0;                          // archives with records that have none
};

/// Checks the structure of every archive, with several threads: its directory, that it holds a
/// tensor of the dtype and size that the catalog says, that an object can be parsed; decodes zstd
/// streams. Gives the CRC-32 of every record to be checked.
ArchiveChecks check_archives(const Catalog* stored, std::span<const Archive> archives,
                             std::span<const FileInfo> files, const FileSystem& file_system,
                             const EngineOptions& options);

}  // namespace ferry
