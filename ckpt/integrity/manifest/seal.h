// Creates or updates the manifest of a checkpoint: after an edit, or for what another program
// wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/engine/engine.h"
#include "ckpt/io/file_system.h"

namespace ferry {

struct SealOptions {
  std::string iteration;  // of a run folder, as verify's
  bool sha256 = false;    // integrity.json too; one that is there is renewed in any case
  bool dry_run = false;   // computes all and writes nothing
  EngineOptions engine;
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

/// Looks for damage first, as verify() does without the manifests, and refuses (corrupt) where
/// there is some; then digests every byte and puts ferry.manifest.json in place in one step.
/// invalid for a lone file; busy when another process seals the folder or the checkpoint was
/// replaced meanwhile; cancelled. On any error the manifest that was there stays.
SealReport seal(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                const SealOptions& options);

}  // namespace ferry
