// Checks a checkpoint (every byte that a digest, hash or CRC-32 covers, and everything that the
// readers check), and writes the digests that it can be checked by.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/engine/engine.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Which digests are written with a checkpoint.
struct IntegrityOptions {
  bool manifest = true;  // ferry.manifest.json
  bool sha256 = false;   // integrity.json; reads all files of the folder once more
};

/// Something that is wrong with a checkpoint.
struct Problem {
  std::string file;     // inside the checkpoint's folder; empty: the checkpoint as a whole
  uint64_t offset = 0;  // of the bytes in question, in the file
  uint64_t bytes = 0;   // 0: the file as a whole
  std::string holds;    // what these bytes are: "tensor a.b [0:2, 0:32]", "object args"
  std::string what;     // is wrong: a sentence that names all of the above
};

/// Whether fp32 masters are compared with the weights that they belong to.
enum class Masters { compared, not_compared };

struct VerifyOptions {
  std::string iteration =
      {};  // of a run folder: a number, "release", or empty: the tracker decides
  Masters masters = Masters::compared;
  EngineOptions engine = {};  // progress counts the bytes that checksums are computed of
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
  int64_t masters = 0;         // fp32, that were compared with the model's weights
  int64_t tensors = 0;         // whose chunks cover them once
  int64_t items = 0;           // archives inside files, or whole ones, whose structure is right
  int64_t digests = 0, crc32s = 0, sha256s = 0;  // that were computed
  double seconds = 0;                            // 0 here; verify() of ops/verify.h measures it
};

/// Checks, of whatever open_checkpoint() takes: the tracker of a run folder; ferry.manifest.json
/// and integrity.json where they are there, and the SHA-256 by which Hugging Face's cache names
/// large files (files missing, too short, too long, damaged, not
/// named); the CRC-32 of every record of .distcp items and .pt files; what the readers check; that
/// the chunks of every tensor cover it once; that the optimizer's fp32 masters, where it has some,
/// are what the model's weights are rounded from. Values that are not finite are not damage: the
/// report lists them. What is wrong is in the report. Throws what keeps it from looking: not_found,
/// invalid, unsupported without a manifest, cancelled; busy when the checkpoint was replaced or
/// removed meanwhile.
VerifyReport verify(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                    const VerifyOptions& options);

struct SealOptions {
  std::string iteration = {};  // of a run folder, as verify's
  bool sha256 = false;         // integrity.json too; one that is there is renewed in any case
  bool dry_run = false;        // computes all and writes nothing
  EngineOptions engine = {};
};

struct SealReport {
  std::string path;  // the folder (of a run folder, the iteration's)
  std::string format;
  bool renewed = false;  // there was a manifest
  /// Against the manifest that was there: files that it does not name, that it names and are gone,
  /// that are of other bytes. Paths inside the folder, in order.
  std::vector<std::string> added, removed, changed;
  int64_t files = 0, tensors = 0, items = 0;
  uint64_t bytes = 0;
  bool sha256 = false;             // integrity.json was written
  std::vector<std::string> notes;  // warnings
};

/// Creates or updates the manifest of a checkpoint: after an edit, or for what another program
/// wrote. Looks for damage first, as verify() does without the manifests, and refuses (corrupt)
/// where there is some; then digests every byte and puts ferry.manifest.json in place in one step.
/// invalid for a lone file; busy when another process seals the folder or the checkpoint was
/// replaced meanwhile; cancelled. On any error the manifest that was there stays.
SealReport seal(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                const SealOptions& options);

}  // namespace ferry
