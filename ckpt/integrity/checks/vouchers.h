// The files that are written last into a folder and vouch for all others.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ckpt/engine/engine.h"
#include "ckpt/integrity/manifest.h"
#include "ckpt/io/file_system.h"

namespace ferry {

struct VoucherOptions {
  bool manifest = true;  // ferry.manifest.json
  bool sha256 = false;   // integrity.json; reads all files of the folder once more
};

/// (name, content), to be written in this order: integrity.json of the files that lie in `folder`,
/// then the manifest of what `manifest` names and of integrity.json. `manifest` must name all
/// files, unless the options leave it out. Of the engine's options, threads and cancel count.
std::vector<std::pair<std::string, std::string>> vouchers(const VoucherOptions& options,
                                                          Manifest manifest,
                                                          const FileSystem& file_system,
                                                          const std::string& folder,
                                                          const EngineOptions& engine);

}  // namespace ferry
