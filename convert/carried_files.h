// What goes with a Hugging Face model other than its weights and config.json.
#pragma once

#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "convert/export.h"

namespace ferry {

struct CarriedFiles {
  std::vector<CopiedFile> files;  // named by their paths inside the folder
  std::vector<std::string> left;  // other weights, state of a training, what is too large
};

/// All files of `folder`, and of its folders unless `top_only`, that are not weights, in any
/// format, and no state of a trainer; hidden ones, config.json and manifests are left out. The
/// model's own weights are in neither list.
CarriedFiles carried_files(const FileSystem& file_system, const std::string& folder,
                           bool top_only = false);

/// A sentence that names what is left out; empty where nothing is.
std::string left_out(const std::vector<std::string>& left);

}  // namespace ferry
