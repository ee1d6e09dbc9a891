// From a plan and the digests that running it gave to a manifest.
//
//   complete_items(plan);                                  // before check() and run()
//   Manifest manifest = manifest_of(plan, run(plan, ...));
//   manifest.add_file("config.json", text);                // and every other file of the folder
//   staged.write_file(kManifestName, to_text(manifest));   // last
#pragma once

#include <span>

#include "ckpt/base/digest.h"
#include "ckpt/core/plan.h"
#include "ckpt/integrity/manifest/manifest.h"

namespace ferry {

/// Adds items to the plan until they tile its target files. Between the items that are there, every
/// chunk of a tensor and every object of the target catalog becomes one, and so does each run of
/// other bytes (headers, padding).
void complete_items(Plan& plan);

/// What the target files hold, with the names of tensors and objects of the target catalog.
/// `digests` are those of the plan's items, which must tile the files.
Manifest manifest_of(const Plan& plan, std::span<const Digest> digests);

}  // namespace ferry
