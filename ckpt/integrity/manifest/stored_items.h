// The items of a manifest for existing files: one for each run of bytes that holds tensors or
// objects, and one for each run between them.
#pragma once

#include <span>
#include <string>

#include "ckpt/core/catalog.h"
#include "ckpt/integrity/manifest/manifest.h"

namespace ferry {

/// A manifest without digests. `stored`: the catalog as its files have it (null: nothing is known
/// of them). `files` are all files of `folder` that the manifest is to name.
Manifest stored_items(const Catalog* stored, const std::string& folder,
                      std::span<const FileInfo> files);

}  // namespace ferry
