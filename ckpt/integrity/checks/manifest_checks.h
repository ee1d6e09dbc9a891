// Checks the files of a folder against the lists of them that it holds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/integrity/checks/byte_checks.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/integrity/manifest/sha256_manifest.h"
#include "ckpt/integrity/verify.h"

namespace ferry {

struct ManifestChecks {
  CheckList list;                   // refers to the manifest's items
  std::vector<Problem> problems;    // files that are missing, too short or too long
  std::vector<uint32_t> not_named;  // files that the list does not name
};

/// `files` are all files of `folder`, with paths that begin with it. Items that leave their file
/// have no check: the problem names what they hold.
ManifestChecks checks_of(const Manifest& manifest, const std::string& folder,
                         std::span<const FileInfo> files);
ManifestChecks checks_of(const Sha256Files& hashes, const std::string& folder,
                         std::span<const FileInfo> files);

}  // namespace ferry
