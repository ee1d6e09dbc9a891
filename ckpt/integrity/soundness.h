// Whether a checkpoint is one to go on from: what decides which iterations of a run count as good.
#pragma once

#include <memory>
#include <string>

#include "ckpt/engine/engine.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Why the checkpoint in `folder` is not good; empty: it is. Good is one that opens (all its files
/// are there, and as long as their headers and ferry.manifest.json, if there is one, say) and whose
/// optimizer state, if any was saved, is there and can be read. Tensor data is not read.
std::string problem_by_structure(const std::shared_ptr<const FileSystem>& file_system,
                                 const std::string& folder);

/// The first problem that verify() finds, and how many more; empty: none.
std::string problem_by_bytes(const std::shared_ptr<const FileSystem>& file_system,
                             const std::string& folder, const EngineOptions& options);

}  // namespace ferry
