// Checks a checkpoint: every byte that a digest, hash or CRC-32 covers, and everything that the
// readers check.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/passing_values.h"
#include "ckpt/engine/engine.h"
#include "ckpt/integrity/problem.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Whether fp32 masters are held against the weights that they belong to.
enum class Masters { compared, not_compared };

struct VerifyOptions {
  std::string iteration;  // of a run folder: a number, "release", or empty: the tracker decides
  Masters masters = Masters::compared;
  EngineOptions engine;  // progress counts the bytes that checksums are computed of
  /// Check the files against the manifests next to them.
  bool manifests = true;
  /// Look for NaN and infinite values, for which tensors under no checksum are read, too.
  bool values = true;
};

struct VerifyReport {
  std::string path;    // the folder or file that was checked (of a run folder, the iteration's)
  std::string format;  // as inspect names it; empty: could not be opened
  std::optional<int64_t> iteration;
  bool has_manifest = false;
  std::vector<Problem> problems;
  std::vector<std::string> notes;  // what could not be checked, and other warnings

  /// Counted in floating-point tensors that are stored as plain bytes; a note names the first.
  std::vector<NonFiniteTensor> non_finite;

  int64_t files = 0;
  uint64_t bytes = 0;          // of the files
  uint64_t covered_bytes = 0;  // of these, under at least one checksum
  int64_t masters = 0;         // fp32, that were held against the model's weights
  int64_t tensors = 0;         // whose chunks cover them once
  int64_t items = 0;           // archives inside files, or whole ones, whose structure is right
  int64_t digests = 0, crc32s = 0, sha256s = 0;  // that were computed
  double seconds = 0;                            // set by ops/verify.h
};

/// Checks, of whatever open_checkpoint() takes: the tracker of a run folder; ferry.manifest.json
/// and integrity.json where they are there, and the SHA-256 by which Hugging Face's cache names
/// large files (files missing, too short, too long, damaged, not
/// named); the CRC-32 of every record of .distcp items and .pt files; what the readers check; that
/// the chunks of every tensor cover it once; that the optimizer's fp32 masters, where it has some,
/// are what the model's weights are rounded from. Values that are not finite are no damage: the
/// report lists them. What is wrong is in the report. Throws what keeps it from looking: not_found,
/// invalid, unsupported without a manifest, cancelled; busy when the checkpoint was replaced or
/// removed meanwhile.
VerifyReport verify(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                    const VerifyOptions& options);

}  // namespace ferry
