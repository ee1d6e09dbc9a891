// Holds checksums against the bytes of files, in one pass over the bytes.
//
// Checksums may be of any runs of bytes and may overlap: a CRC-32 of a record inside an item that
// has a digest, inside a file that has a SHA-256. What overlaps is read once, by one thread, from
// front to back; the rest is read by several threads, in the order of the files.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/base/sha256.h"
#include "ckpt/core/catalog.h"
#include "ckpt/core/passing_values.h"
#include "ckpt/engine/engine.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/io/file_system.h"

namespace ferry {

struct Crc32 {
  uint32_t value = 0;
};

/// What the bytes of a run must give: XXH3-128, CRC-32 or SHA-256; nothing where they only are read
/// to be seen.
using Checksum = std::variant<Digest, Crc32, Sha256, std::monostate>;

struct ByteCheck {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // may be 0
  Checksum expected;
};

struct FailedCheck {
  uint32_t check = 0;   // position among the checks
  std::string problem;  // why the bytes could not be read; empty: they are other bytes
};

/// Is shown the bytes at `offset` of a file.
using SeeBytes =
    std::function<void(uint32_t file, uint64_t offset, std::span<const std::byte> bytes)>;

/// Runs the checks; bytes that none covers are not read, but for gaps of a page. `files` has the
/// paths to open; runs that leave their file fail. Failed checks come in the order of file and
/// offset. In the options, memory is what the threads may read into; progress counts bytes read.
/// Each thread asks `seer`, if there is one, for an observer of all bytes that it reads.
std::vector<FailedCheck> run_checks(const FileSystem& file_system, std::span<const FileInfo> files,
                                    std::span<const ByteCheck> checks, const EngineOptions& options,
                                    const std::function<SeeBytes()>& seer = {});

/// Bytes that at least one checksum covers.
uint64_t covered_bytes(std::span<const ByteCheck> checks);

/// Checks without a checksum of those of `ranges`, by number of the file, that are not covered
/// whole.
std::vector<ByteCheck> reads_of_uncovered(std::span<const ByteCheck> checks,
                                          std::span<const std::vector<ByteRange>> ranges);

// The byte checks of a checkpoint, each with what it is of.

/// Where a check comes from.
struct CheckOrigin {
  const ManifestItem* item = nullptr;    // of ferry's manifest
  const std::string* archive = nullptr;  // of a record: what its archive holds
  std::string record;                    // of a record: its name
  bool blob = false;                     // of a download: the name of the blob is its SHA-256
};

/// Origins are parallel to checks. A file that is missing or could not be read has no checks.
struct CheckList {
  std::vector<ByteCheck> checks;
  std::vector<CheckOrigin> origins;

  void add(const ByteCheck& check, CheckOrigin origin = {}) {
    checks.push_back(check);
    origins.push_back(std::move(origin));
  }
  void append(CheckList list) {
    std::move(list.checks.begin(), list.checks.end(), std::back_inserter(checks));
    std::move(list.origins.begin(), list.origins.end(), std::back_inserter(origins));
  }
};

}  // namespace ferry
