// The files that are written last into a folder, and those among them that vouch for all others.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/core/placed.h"
#include "ckpt/engine/engine.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/integrity/verify.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Creates the folders inside `folder` that hold files of the output.
void create_inner_folders(const PlannedOutput& planned, const FileSystem& file_system,
                          const std::string& folder);

/// Writes what comes after a plan that was run into `folder`, each file synced: the small files,
/// then integrity.json of all that is there, then the manifest of all. `digests` are those of the
/// plan's items, which must tile its files where there is to be a manifest. Uses threads and cancel
/// of the engine's options.
void write_small_files(const PlannedOutput& planned, std::span<const Digest> digests,
                       const IntegrityOptions& options, const FileSystem& file_system,
                       const std::string& folder, const EngineOptions& engine);

/// The same for files that are known by name and content, besides those that `manifest` names.
void write_small_files(const std::vector<std::pair<std::string, std::string>>& small_files,
                       Manifest manifest, const IntegrityOptions& options,
                       const FileSystem& file_system, const std::string& folder,
                       const EngineOptions& engine);

}  // namespace ferry
