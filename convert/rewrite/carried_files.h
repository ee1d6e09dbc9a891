// What stands in a Hugging Face folder beside the weights.
#pragma once

#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "convert/convert.h"

namespace ferry {

/// All files of `folder` and its folders that are no weights, in any format, and no state of a
/// trainer; hidden ones, config.json and manifests are left out. `left` gets the weights that were
/// seen beside the model's own (paths inside the folder, in order).
std::vector<CopiedFile> carried_files(const FileSystem& file_system, const std::string& folder,
                                      std::vector<std::string>& left);

}  // namespace ferry
